from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Failure, Reason, Success
from protocol.events import ErrorEvent
from protocol.response import Response
from supervisor.kernel.invoke_record import (
    DETAILS_BYTES,
    ERRORS_RECORDED,
    MESSAGE_CHARS,
    bounded_error,
    record_response,
)
from supervisor.kernel.kernel import Party
from supervisor.kernel.recorder import Recorder
from supervisor.kernel.store.settings import IN_FLIGHT, NAME_CHARS, InFlight, Span
from tests.kernel.conftest import Asker
from tests.kernel.pipeline import pipeline
from tests.principals import ADA


class Noted(Recorder):
    """A recorder that a test looks into."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[dict[str, Any]] = []
        self.kept: dict[str, None] = {}

    def record(self, event: str, **fields: Any) -> None:
        ended = fields.pop("in_place_of")
        self.entries.append({"event": event, **fields})
        if ended is not None:
            self.kept[ended[1]] = None


def in_flight(module: str, op: str, session_id: str) -> InFlight:
    key = (IN_FLIGHT, "span")
    span = Span(
        key=key, began=5.0, module=module, op=op, request_id="r1", session_id=session_id, by=ADA.by
    )
    return span.in_flight()


def test_an_invocation_is_in_flight_until_it_has_its_entry() -> None:
    noted = Noted()
    assert in_flight("dice", "roll", "s1") == InFlight(5.0, "dice", "roll", "r1", "s1", by=ADA.by)
    response = Response(Success(1), "r1", "dice", "roll", 7, "s1")
    record_response(noted, response, "span", parent=None, by=ADA.by, was_in_flight=True)
    assert noted.kept == {"span": None}
    (entry,) = noted.entries
    assert entry["span_id"] == "span"
    assert entry["by"] == ADA.by
    assert (entry["status"], entry["duration_ms"], entry["error"]) == ("ok", 7, None)
    assert (entry["session_id"], entry["request_id"]) == ("s1", "r1")


def test_what_a_client_chose_is_cut() -> None:
    noted = Noted()
    long = "x" * (NAME_CHARS + 1)
    document = in_flight(long, long, long)
    assert len(document.module) == len(document.op) == NAME_CHARS
    response = Response(Success(1), "r1", long, long, 7, long)
    record_response(noted, response, "span", parent=None, by=ADA.by, was_in_flight=True)
    (entry,) = noted.entries
    assert len(entry["module"]) == len(entry["data"]["op"]) == NAME_CHARS
    assert len(entry["session_id"]) == NAME_CHARS


def test_an_error_is_kept_whole_if_it_is_short() -> None:
    failure = Failure.because(Reason.EXITED, "it exited", exit_code=3, stderr_tail=["words"])
    assert bounded_error(failure) == {
        "code": "unreachable",
        "message": "it exited",
        "details": {"origin": "host", "reason": "exited", "exit_code": 3, "stderr_tail": ["words"]},
    }


def deep() -> Any:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    return value


@pytest.mark.parametrize("much", [["x" * DETAILS_BYTES], deep(), "\ud800"], ids=type)
def test_details_that_are_long_deep_or_no_text_are_left_out(much: Any) -> None:
    failure = Failure("c" * 999, "m" * 9999, {"reason": "exited", "pid": 5, "much": [much]})
    error = bounded_error(failure)
    assert error["details"] == {"reason": "exited", "pid": 5, "cut": True}
    assert (len(error["code"]), len(error["message"])) == (NAME_CHARS, MESSAGE_CHARS)


def test_the_command_line_of_an_exec_call_is_not_in_the_journal() -> None:
    failure = Failure.because(Reason.EXITED, "it exited", exit_code=3, ran="env -- sh -c 'secret'")
    noted = Noted()
    response = Response(failure, "r1", "box", "run", 7)
    record_response(noted, response, "span", parent=None, by=ADA.by, was_in_flight=False)
    (entry,) = noted.entries
    assert entry["error"]["details"] == {"reason": "exited", "origin": "host", "exit_code": 3}
    assert "ran" in response.document()["error"]["details"]


async def test_the_first_errors_of_a_request_are_in_the_journal_and_all_are_counted(
    tmp_path: Path,
) -> None:
    count = ERRORS_RECORDED + 4
    wrong = ErrorEvent(version="0", error_code="oom", error_message="no", details={"pid": 1})
    async with pipeline(tmp_path) as world:
        world.requests.begin(Party(ADA), "m", "invoke", {"op": "one"}, Asker())
        call = world.module.calls["one"]
        for _ in range(count):
            call.listener.event(wrong, call, None)
        world.module.answer("one")
    *errors, end = [one for one in world.entries if one["event"].startswith("module:")]
    assert len(errors) == ERRORS_RECORDED
    first = errors[0]
    assert (first["event"], first["module"], first["data"]) == ("module:error", "m", {"op": "one"})
    assert (first["request_id"], first["span_id"]) == (end["request_id"], end["span_id"])
    assert first["error"] == {
        "code": "oom",
        "message": "no",
        "details": {"origin": "module", "reported": {"pid": 1}},
    }
    assert (end["event"], end["status"], end["data"]["errors"]) == ("module:invoke", "ok", count)
