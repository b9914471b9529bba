from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from protocol.connection import Answered, Notice, Stray
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Done, ErrorEvent
from protocol.json_line import Fault
from protocol.replies import Operation, read_done, read_reply, slips
from tests.protocol.wire import DESCRIPTION

HEALTH, DESCRIBE, INVOKE = Operation.HEALTH, Operation.DESCRIBE, Operation.INVOKE
WELL = {"status": "ok"}
BODY = {"code": "no_luck", "message": "try again", "details": {"sides": 6}}
NO_LUCK = Failure.reported("no_luck", "try again", {"sides": 6})

ACCEPTED: list[tuple[Operation, dict[str, Any], Outcome]] = [
    (HEALTH, WELL, Success(WELL)),
    (HEALTH, {"ok": True, "result": WELL}, Success(WELL)),
    (HEALTH, {"ok": False, "error": BODY}, NO_LUCK),
    (DESCRIBE, DESCRIPTION, Success(DESCRIPTION)),
    (DESCRIBE, {"ok": True, "result": DESCRIPTION}, Success(DESCRIPTION)),
    (DESCRIBE, {}, Success({})),
    (DESCRIBE, {"inputs": {}, "kind": None}, Success({"inputs": {}, "kind": None})),
    (INVOKE, {"ok": True, "result": [1]}, Success([1])),
    (INVOKE, {"ok": True, "result": None}, Success(None)),
    (INVOKE, {"ok": True}, Success(None)),
    (INVOKE, {"ok": True, "result": 1, "summary": "s", "later": 2}, Success(1, "s")),
    (INVOKE, {"ok": False, "error": BODY}, NO_LUCK),
    (INVOKE, {"ok": False, "error": {"code": "E", "message": "m"}}, Failure.reported("E", "m")),
    (INVOKE, {"ok": True, "result": WELL}, Success(WELL)),
]

REFUSED: list[tuple[Operation, dict[str, Any]]] = [
    (HEALTH, {}),
    (HEALTH, {"status": 1}),
    (HEALTH, {"ok": True}),
    (HEALTH, {"ok": False}),
    (DESCRIBE, WELL),
    (DESCRIBE, {"version": "1", "kind": "tool"}),
    (DESCRIBE, {"ok": True, "result": "hello"}),
    (DESCRIBE, {**DESCRIPTION, "capabilities": ["fs.read", 1]}),
    (DESCRIBE, {**DESCRIPTION, "features": "cancel"}),
    (INVOKE, {}),
    (INVOKE, WELL),
    (INVOKE, {"ok": 1}),
    (INVOKE, {"ok": "true"}),
    (INVOKE, {"ok": False}),
    (INVOKE, {"ok": False, "error": None}),
    (INVOKE, {"ok": False, "error": "it broke"}),
    (INVOKE, {"ok": False, "error": {"code": 1, "message": "m"}}),
    (INVOKE, {"ok": False, "error": {"code": "E"}}),
    (INVOKE, {"ok": False, "error": {"code": "E", "message": "m", "details": []}}),
]


@pytest.mark.clause("PV1-2-a")
@pytest.mark.clause("PV1-2-b")
@pytest.mark.clause("PV1-2-d")
@pytest.mark.clause("PV1-2-e")
@pytest.mark.parametrize(("operation", "document", "outcome"), ACCEPTED)
def test_a_reply_of_the_protocols_form_is_an_outcome(
    operation: Operation, document: dict[str, Any], outcome: Outcome
) -> None:
    assert read_reply(operation, document, "shown") == outcome


@pytest.mark.parametrize(("operation", "document"), REFUSED)
def test_a_reply_of_another_form_is_a_fault_that_shows_the_right_one(
    operation: Operation, document: dict[str, Any]
) -> None:
    fault = read_reply(operation, document, "shown")
    assert isinstance(fault, Fault)
    assert fault.reason is Reason.INVALID_EVENT
    assert fault.excerpt == "shown"
    assert f"bad reply to {operation}" in fault.message


def test_a_health_other_than_ok_says_what_it_is() -> None:
    outcome = read_reply(HEALTH, {"status": "warming up"}, "")
    assert isinstance(outcome, Failure)
    assert outcome.code == "unreachable"
    assert outcome.details == {
        "origin": "host",
        "reason": "not_ready",
        "health": {"status": "warming up"},
    }
    assert "warming up" in outcome.message


def done(*, ok: bool, **fields: Any) -> Done:
    return Done(version="0", ok=ok, **fields)


REPORTED = ErrorEvent(
    version="0", error_code="E", error_message="m", details={"at": 1}, request_id=UNSET
)


@pytest.mark.parametrize(
    ("operation", "event", "outcome"),
    [
        (INVOKE, done(ok=True), Success(None)),
        (INVOKE, done(ok=True, result=[1], summary="s"), Success([1], "s")),
        (HEALTH, done(ok=True), Success(WELL)),
        (HEALTH, done(ok=True, result=WELL), Success(WELL)),
        (DESCRIBE, done(ok=True, result=DESCRIPTION), Success(DESCRIPTION)),
    ],
)
def test_done_closes_a_stream_with_its_result(
    operation: Operation, event: Done, outcome: Outcome
) -> None:
    assert read_done(operation, event, None, "") == outcome


@pytest.mark.parametrize(
    ("operation", "event"),
    [(DESCRIBE, done(ok=True)), (HEALTH, done(ok=True, result=1))],
)
def test_done_without_the_result_that_was_asked_for_is_a_fault(
    operation: Operation, event: Done
) -> None:
    assert isinstance(read_done(operation, event, None, ""), Fault)


@pytest.mark.parametrize("operation", Operation)
def test_a_failure_is_told_by_dones_error_then_the_last_error_event_then_the_summary(
    operation: Operation,
) -> None:
    carried = done(ok=False, error=BODY, summary="s")
    silent = done(ok=False, summary="s")
    assert read_done(operation, carried, REPORTED, "") == Failure.reported(
        "no_luck", "try again", {"sides": 6}, "s"
    )
    assert read_done(operation, silent, REPORTED, "") == Failure.reported("E", "m", {"at": 1}, "s")
    assert read_done(operation, silent, None, "") == Failure.reported(
        "internal", "s", None, "s", reason="reported"
    )


@pytest.mark.clause("N001-3-d")
@pytest.mark.parametrize("error", [None, "it broke", {"code": 1}, []])
def test_an_error_field_of_another_shape_is_a_field_like_any_other(error: Any) -> None:
    event = done(ok=False, error=error)
    assert read_done(INVOKE, event, REPORTED, "") == Failure.reported("E", "m", {"at": 1})


def test_a_failure_without_any_words_gets_some() -> None:
    outcome = read_done(INVOKE, done(ok=False), None, "")
    assert isinstance(outcome, Failure)
    assert outcome.message


def test_errors_on_the_way_do_not_spoil_a_success() -> None:
    assert read_done(INVOKE, done(ok=True), REPORTED, "") == Success(None)


@pytest.mark.parametrize(
    ("reason", "excerpt", "words"),
    [
        ("malformed_json", "hello", "the last line it printed is not an answer: hello (why)"),
        ("invalid_utf8", "hello", "the last line it printed is not an answer: hello (why)"),
        ("malformed_json", None, ""),
        ("asset_not_copied", "hello", ""),
    ],
)
def test_a_line_that_is_no_answer_is_shown_where_one_was_waited_for(
    reason: str, excerpt: str | None, words: str
) -> None:
    notice = Notice(reason, "why", excerpt)
    assert notice.in_place_of_answer == words
    assert notice.words == ("why" if excerpt is None else "why: hello")


def test_a_stray_line_is_told_with_80_characters_of_the_id_that_it_names() -> None:
    words = (
        "a line came for request '{}', which is not open: is each request answered once, with "
        "its own requestId?"
    )
    for named, shown in (("r" * 80, "r" * 80), ("r" * 81, "r" * 79 + "…"), ("a\n", "a\\n")):
        stray = Stray("hello", named)
        assert stray.in_place_of_answer == words.format(shown)
        assert stray.warning == f"{words.format(shown)}: hello"
        assert stray.evidence == {"line_excerpt": "hello", "stray_id": named}
    assert Stray("hello").warning == Stray("hello").in_place_of_answer == ""
    assert Stray("hello", "r1", "why").warning == "why: hello"
    assert Stray("hello", None, "why").in_place_of_answer == "why"


def test_of_eight_unknown_fields_each_is_compared_and_of_nine_none() -> None:
    for count, told in ((7, '"resul" is an unknown field; did you mean "result"?'), (8, None)):
        many = {f"x{number}": 1 for number in range(count)}
        assert slips(INVOKE, {"ok": True, "requestId": "r", "resul": 1, **many}, "r") == told


def test_an_answer_stands_for_a_process_that_ends_well() -> None:
    assert Answered("r1", Success(None)).codes == (0,)
    assert Answered("r1", Success(None)).fault is None
