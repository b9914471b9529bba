"""A process per invocation: each verdict through a real tiny script (DESIGN 5.3)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from protocol.errors import Failure, Reason, Success
from protocol.replies import Operation
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from tests.factories import (
    PYTHON,
    Heard,
    actor,
    call,
    children,
    descriptor,
    open_files,
    program,
    script,
)
from tests.runtime.conftest import Running

NEVER_S = 1000
DONE = """echo '{"version":"0","type":"done","ok":true,"result":{"n":1},"summary":"well"}'\n"""
NOT_OK = """echo '{"version":"0","type":"done","ok":false,"summary":"no luck"}'\n"""
ERROR = """echo '{"version":"0","type":"error","errorCode":"E1","errorMessage":"no","details":{"a":1}}'\n"""
LOG = """echo '{"version":"0","type":"log","level":"info","message":"hi"}'\n"""
ASSET = """echo '{"version":"0","type":"asset","assetId":"a","kind":"k","mediaType":"text/plain","path":"p"}'\n"""
BAD_ASSET = """echo '{"version":"0","type":"asset","assetId":"b","kind":"k","mediaType":"nonsense","path":"p"}'\n"""


def say(line: str) -> str:
    return f"echo '{line}'\n"


async def serve(running: Running, folder: Path, body: str, **fields: Any) -> tuple[Heard, Any]:
    """Run a script for one call; return what was heard, and the call."""
    module = await running.ready(script(folder, body, **fields))
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
    assert one.all_notices() == []


async def test_the_tool_reads_the_envelope_and_the_end_of_its_input(
    running: Running, tmp_path: Path
) -> None:
    await serve(running, tmp_path, "cat > input\n" + DONE)
    frame = json.loads((tmp_path / "input").read_text())
    assert (frame["tool"], frame["operation"], frame["input"]) == ("m", "draw", {"sides": 6})


async def test_not_ok_is_the_last_error_event(running: Running, tmp_path: Path) -> None:
    code, _, failure = await fails(running, tmp_path, ERROR.replace("E1", "E0") + ERROR + NOT_OK)
    assert (code, failure.message, failure.details) == ("E1", "no", {"a": 1})


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
    heard, one = await serve(running, tmp_path, ASSET + ASSET + BAD_ASSET + DONE)
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
    limits = {"timeouts": {"exit_s": 0.05}}
    code, reason, _ = await fails(running, tmp_path, DONE + "exec sleep 1000", supervision=limits)
    assert (code, reason) == ("timeout", "exit_deadline")
    await running.down()
    assert children() == []


async def test_a_tool_that_closes_its_stdout_and_runs_on_is_stopped(
    running: Running, tmp_path: Path
) -> None:
    limits = {"timeouts": {"exit_s": 0.05}}
    body = LOG + "exec >&-\nexec sleep 1000"
    code, reason, _ = await fails(running, tmp_path, body, supervision=limits)
    assert (code, reason) == ("internal", "missing_done")


async def test_a_call_that_is_given_up_is_answered_at_once_and_its_process_seen_to_the_end(
    running: Running, tmp_path: Path
) -> None:
    before = open_files()
    made = script(
        tmp_path, "trap '' TERM\n" + LOG + "sleep 1000", supervision={"timeouts": {"stop_s": 0.05}}
    )
    module = await running.ready(made)
    one, heard = call()
    module.submit(one)
    await heard.heard(1)
    module.give_up(one, Stopped(Reason.DEADLINE, "m.echo gave no answer in 1 s"))
    assert (await heard.failure()).details["reason"] == "deadline"
    await running.down()
    assert children() == []
    assert open_files() == before


async def test_a_call_that_is_given_up_before_its_process_exists_runs_nothing(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(script(tmp_path, "touch ran\n" + DONE))
    one, heard = call()
    module.submit(one)
    module.give_up(one, Stopped(Reason.CLIENT, "the client cancelled the request"))
    assert (await heard.failure()).code == "cancelled"
    await running.down()
    assert not (tmp_path / "ran").exists()


async def test_concurrency_bounds_the_processes(running: Running, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "door"))
        listener.listen(10)
        listener.setblocking(False)
        accepting = trio.socket.from_stdlib_socket(listener)
        body = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect('door')\ns.recv(1)\n"
        body += f"print({DONE[6:-2]!r})"
        made = descriptor(
            tmp_path,
            [*PYTHON, "-c", body],
            supervision={"concurrency": 2},
            transport={"protocol": "narratoria"},
        )
        module = await running.ready(made)
        waiting = []
        for _ in range(5):
            one, heard = call()
            module.submit(one)
            waiting.append(heard)
        assert module.queued == 3
        for _ in range(5):
            link, _ = await accepting.accept()
            with link:
                assert len(children()) <= 2
                await link.send(b"x")
        for heard in waiting:
            await heard.success()


async def test_a_probe_is_answered_by_the_host_and_never_runs_the_tool(
    running: Running, tmp_path: Path
) -> None:
    made = script(tmp_path, "touch ran\n" + DONE, version="2.0", inputs={"draw": {}})
    module = await running.ready(made)
    assert await module.ask(Operation.HEALTH) == Success({"status": "ok"})
    description = await module.ask(Operation.DESCRIBE)
    assert isinstance(description, Success)
    assert (description.result["name"], description.result["version"]) == ("m", "2.0")
    assert description.result["inputs"] == {"draw": {}}
    await running.down()
    assert not (tmp_path / "ran").exists()


async def test_a_tool_that_is_taken_away_is_unhealthy_and_its_calls_say_why(
    running: Running, tmp_path: Path
) -> None:
    path = program(tmp_path / "run", "#!/bin/sh\n" + DONE)
    made = descriptor(tmp_path, ["./run"], transport={"protocol": "narratoria"})
    module = await running.ready(made)
    path.unlink()
    health = await module.ask(Operation.HEALTH)
    assert isinstance(health, Failure)
    assert "run is not there" in health.message
    one, heard = call()
    module.submit(one)
    failure = await heard.failure()
    assert (failure.code, failure.details["reason"]) == ("unreachable", "spawn_failed")
    assert module.state is State.READY


async def test_a_tool_that_cannot_be_run_is_not_ready(running: Running, tmp_path: Path) -> None:
    made = descriptor(tmp_path, ["./gone"], transport={"protocol": "narratoria"})
    module = running(made)
    module.start("the test")
    await running.until(lambda: module.state is State.BACKOFF)
    assert module.slot.last_exit is not None
    assert module.slot.last_exit.reason == "spawn_failed"


async def test_a_module_per_invocation_answers_probes_with_a_process_of_its_own(
    running: Running, tmp_path: Path
) -> None:
    made = actor(tmp_path, transport={"lifecycle": "per-invocation"})
    module = await running.ready(made)
    assert await module.ask(Operation.HEALTH) == Success({"status": "ok"})
    one, heard = call("whoami")
    module.submit(one)
    assert (await heard.success()).result["instance"] == "m#2"


async def test_a_probe_nobody_waits_for_any_more_leaves_no_process(
    running: Running, tmp_path: Path
) -> None:
    made = actor(
        tmp_path,
        "ignore-term",
        "never-ready",
        transport={"lifecycle": "per-invocation"},
        supervision={"timeouts": {"stop_s": 0.05}},
    )
    module = await running.ready(made)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(module.ask, Operation.HEALTH, NEVER_S)
        while not module.slot.life.instances():  # type: ignore[union-attr]
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    await running.down()
    assert children() == []


async def test_a_stop_lets_a_run_finish_and_a_deadline_ends_one_that_does_not(
    running: Running, tmp_path: Path
) -> None:
    made = script(tmp_path, LOG + "exec sleep 1000", supervision={"timeouts": {"stop_s": 0.05}})
    module = await running.ready(made)
    one, heard = call()
    module.submit(one)
    await heard.heard(1)
    await running.down()
    failure = await heard.failure()
    assert (failure.code, failure.details["reason"]) == ("unreachable", "stopping")
    assert children() == []


async def test_a_hundred_runs_leave_no_process_and_no_descriptor(
    running: Running, tmp_path: Path
) -> None:
    before = open_files()
    module = await running.ready(script(tmp_path, DONE, supervision={"concurrency": 4}))
    waiting = []
    for _ in range(100):
        one, heard = call()
        module.submit(one)
        waiting.append(heard)
    for heard in waiting:
        await heard.success()
    await running.down()
    assert children() == []
    assert open_files() == before
