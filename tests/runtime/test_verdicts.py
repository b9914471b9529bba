"""A process per invocation: each verdict through a real tiny script (docs/protocol.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from protocol.errors import Reason, Success
from supervisor.policy.verdict import Stopped
from tests.factories import (
    PYTHON,
    Heard,
    call,
    children,
    script,
)
from tests.runtime.conftest import Running

NEVER_S = 1000


def line(name: str, **fields: Any) -> str:
    """Return the shell command that prints an event."""
    return f"echo '{json.dumps({'version': '0', 'type': name, **fields})}'\n"


def asset(name: str, media_type: str) -> str:
    return line("asset", assetId=name, kind="k", mediaType=media_type, path="p")


DONE = line("done", ok=True, result={"n": 1}, summary="well")
NOT_OK = line("done", ok=False, summary="no luck")
ERROR = line("error", errorCode="E1", errorMessage="no", details={"a": 1})
LOG = line("log", level="info", message="hi")


def say(line: str) -> str:
    return f"echo '{line}'\n"


ONCE_ASKED = """
import os, select, sys
select.select([0], [], [])
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""
"""Waits for the request without reading it."""


@pytest.fixture(params=[False, True], ids=["cold", "warm"], autouse=True)
def warm(request: pytest.FixtureRequest, running: Running) -> None:
    """Give each request of the tests a process of its own, or one that waited for it."""
    running.warm = request.param


async def serve(running: Running, folder: Path, body: str, **fields: Any) -> tuple[Heard, Any]:
    """Run a script for one call; return what was heard, and the call."""
    made = script(folder, body, **fields)
    if running.warm:
        made = msgspec.structs.replace(
            made,
            transport=msgspec.structs.replace(
                made.transport, command=(*PYTHON, "-c", ONCE_ASKED, body)
            ),
            supervision=msgspec.structs.replace(made.supervision, warm=1),
        )
    module = await running.ready(made)
    while running.warm and not (module.workers[0].life and module.workers[0].life.instances()):
        await trio.lowlevel.checkpoint()
    one, heard = call("draw", sides=6)
    module.submit(one)
    await heard.outcome()
    return heard, one


async def fails(running: Running, folder: Path, body: str, **fields: Any) -> tuple[Any, ...]:
    heard, _ = await serve(running, folder, body, **fields)
    failure = await heard.failure()
    return failure.code, failure.details.get("reason"), failure


async def test_done_and_exit_0_is_well(running: Running, tmp_path: Path) -> None:
    heard, one = await serve(running, tmp_path, LOG + ERROR + DONE)
    assert heard.outcomes == [Success({"n": 1}, "well")]
    assert [type(event).__name__ for event in heard.events] == ["Log", "ErrorEvent"]
    assert one.all_notices() == ()


async def test_the_tool_reads_the_envelope_and_the_end_of_its_input(
    running: Running, tmp_path: Path
) -> None:
    await serve(running, tmp_path, "cat > input\n" + DONE)
    frame = json.loads((tmp_path / "input").read_text())
    assert (frame["tool"], frame["operation"], frame["input"]) == ("m", "draw", {"sides": 6})


async def test_not_ok_is_the_last_error_event(running: Running, tmp_path: Path) -> None:
    code, _, failure = await fails(running, tmp_path, ERROR.replace("E1", "E0") + ERROR + NOT_OK)
    assert (code, failure.message, failure.details) == (
        "E1",
        "no",
        {"origin": "module", "reported": {"a": 1}},
    )


async def test_not_ok_without_one_is_internal_with_the_summary(
    running: Running, tmp_path: Path
) -> None:
    code, _, failure = await fails(running, tmp_path, NOT_OK)
    assert (code, failure.message) == ("internal", "no luck")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (DONE + "exit 3", "exited"),
        (NOT_OK + "exit 255", "exited"),
        (DONE + "kill -9 $$", "signaled"),
        ("kill -11 $$", "signaled"),
        ("exit 1", "exited"),
        (LOG, "missing_done"),
        ("", "missing_done"),
        (say('{"version":"0","type":"wat"}') + DONE, "unknown_type"),
        (say('{"version":"1","type":"log"}') + DONE, "bad_version"),
        (say('{"type":"log"}') + DONE, "bad_version"),
        (say("hello") + DONE, "malformed_json"),
        (say("[1]") + DONE, "not_object"),
        ("printf '\\377\\n'\n" + DONE, "invalid_utf8"),
        (say('{"version":"0","type":"log"}') + DONE, "invalid_event"),
        (say('{"version":"0","type":"state_patch","patch":[]}') + DONE, "invalid_event"),
        (LOG + "printf '{\"version\"'", "truncated_line"),
        (LOG + "printf '{\"version\"'; exit 3", "exited"),
    ],
)
async def test_everything_else_is_internal_with_its_reason_and_evidence(
    running: Running, tmp_path: Path, body: str, reason: str
) -> None:
    code, found, failure = await fails(running, tmp_path, "echo evidence >&2\n" + body)
    assert (code, found) == ("internal", reason)
    assert failure.details["instance"] == "m#1"
    assert failure.details["stderr_tail"] == ["evidence"]


async def test_a_fault_that_ends_processing_stops_a_process_that_goes_on(
    running: Running, tmp_path: Path
) -> None:
    _, reason, _ = await fails(running, tmp_path, say("hello") + "exec sleep 1000")
    assert reason == "malformed_json"


async def test_a_tolerant_tool_has_its_prints_quarantined_as_warnings(
    running: Running, tmp_path: Path
) -> None:
    heard, one = await serve(
        running, tmp_path, say("hello") + DONE, transport={"stdout": "tolerant"}
    )
    assert (await heard.success()).result == {"n": 1}
    (notice,) = one.all_notices()
    assert (notice.reason, notice.line_excerpt) == ("malformed_json", "hello")


async def test_what_follows_done_is_not_accepted_and_counted(
    running: Running, tmp_path: Path
) -> None:
    heard, one = await serve(running, tmp_path, DONE + LOG + NOT_OK)
    await heard.success()
    assert heard.events == []
    assert [notice.reason for notice in one.all_notices()] == ["after_done", "after_done"]


async def test_a_refused_asset_is_a_warning_and_the_invocation_goes_on(
    running: Running, tmp_path: Path
) -> None:
    good = asset("a", "text/plain")
    body = good + good + asset("b", "nonsense") + DONE
    heard, one = await serve(running, tmp_path, body)
    await heard.success()
    assert len(heard.events) == 1
    reasons = [notice.reason for notice in one.all_notices()]
    assert reasons == ["duplicate_asset", "bad_media_type"]


async def test_warnings_beyond_a_number_are_only_counted(running: Running, tmp_path: Path) -> None:
    body = DONE + "for n in $(seq 100); do echo x; done"
    _, one = await serve(running, tmp_path, body)
    notices = one.all_notices()
    assert len(notices) == 33
    assert notices[-1].message == "68 more warnings were not kept"


async def test_a_tool_that_runs_on_after_done_is_stopped(running: Running, tmp_path: Path) -> None:
    limits = {"timeouts": {"linger_s": 0.05}}
    code, reason, _ = await fails(running, tmp_path, DONE + "exec sleep 1000", supervision=limits)
    assert (code, reason) == ("timeout", "exit_deadline")
    await running.down()
    assert children() == []


async def test_what_done_carried_is_reported_of_a_tool_that_runs_on(
    running: Running, tmp_path: Path
) -> None:
    limits = {"timeouts": {"linger_s": 0.05}}
    _, _, failure = await fails(running, tmp_path, DONE + "exec sleep 1000", supervision=limits)
    assert failure.details["reported"] == {"ok": True, "result": {"n": 1}, "summary": "well"}


async def test_a_deadline_after_done_says_that_it_was_the_exit_that_took_too_long(
    running: Running, tmp_path: Path
) -> None:
    made = script(tmp_path, ERROR + NOT_OK + "exec sleep 1000")
    module = await running.ready(made)
    one, heard = call("go")
    module.submit(one)
    late = Stopped(Reason.DEADLINE, "m.go gave no answer in 1 s")
    while one.server is None or one.server.refined(late) is late:
        await trio.testing.wait_all_tasks_blocked()
    module.give_up(one, late)
    failure = await heard.failure()
    assert (failure.code, failure.details["reason"]) == ("timeout", "exit_deadline")
    assert failure.message == "m.go: its process answered, and still ran at the deadline"
    error = {"code": "E1", "message": "no", "details": {"a": 1}}
    assert failure.details["reported"] == {"ok": False, "error": error}


@pytest.mark.parametrize("last", ["", DONE, NOT_OK])
async def test_the_last_error_is_reported_beside_a_bad_exit(
    running: Running, tmp_path: Path, last: str
) -> None:
    code, reason, failure = await fails(running, tmp_path, ERROR + last + "exit 3")
    assert (code, reason, failure.details["origin"]) == ("internal", "exited", "host")
    error = {"code": "E1", "message": "no", "details": {"a": 1}}
    assert failure.details["reported"] == error
    (line,) = [one for one in await running.module.log.last_lines(9) if one.stream == "event"]
    assert line.text == 'error: E1: no {"a":1}'


async def test_a_tool_that_closes_its_stdout_and_runs_on_is_stopped(
    running: Running, tmp_path: Path
) -> None:
    limits = {"timeouts": {"exit_s": 0.05}}
    body = LOG + "exec >&-\nexec sleep 1000"
    code, reason, _ = await fails(running, tmp_path, body, supervision=limits)
    assert (code, reason) == ("internal", "missing_done")
