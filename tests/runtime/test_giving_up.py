"""What becomes of a persistent process when the host gives a call up, and of faulty lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from protocol.errors import Reason
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import Congestion
from tests.bounds import WAIT_S
from tests.factories import PYTHON, actor, call, descriptor
from tests.runtime.conftest import Running
from tests.runtime.supervision.test_persistent import ask, submit

NEVER_S = 1000
LATE = Stopped(Reason.DEADLINE, "m.hang gave no answer in 1 s")
CALM = {"health": {"interval_s": NEVER_S}}


async def instance(running: Running) -> str:
    return str((await ask(running.module, "whoami"))["instance"])


async def test_a_module_that_echoes_ids_keeps_its_process_and_its_late_line_is_dropped(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    one, heard = call("late")
    module.submit(one)
    behind = submit(module, "whoami")
    module.give_up(one, LATE)
    assert behind.outcomes == []  # in doubt until a probe is answered
    assert (await behind.success()).result["instance"] == "m#1"
    assert module.counters.late_lines == 1
    assert (await heard.failure()).details["reason"] == "deadline"


async def test_a_module_that_echoes_no_ids_is_replaced(running: Running, tmp_path: Path) -> None:
    module = await running.ready(actor(tmp_path, "no-ids", supervision=CALM))
    one, _ = call("late")
    module.submit(one)
    behind = submit(module, "whoami")
    module.give_up(one, LATE)
    assert module.state is State.STOPPING
    assert (await behind.success()).result["instance"] == "m#2"
    assert module.last_exit is not None
    assert "echoes no requestId" in module.last_exit.message


async def test_one_that_does_not_answer_the_probe_after_it_is_replaced(
    running: Running, tmp_path: Path
) -> None:
    made = actor(tmp_path, supervision={**CALM, "timeouts": {"health_s": 0.1}})
    module = await running.ready(made)
    one, _ = call("deaf")
    module.submit(one)
    behind = submit(module, "whoami")
    module.give_up(one, LATE)
    assert (await behind.success()).result["instance"] == "m#2"
    assert module.last_exit is not None
    assert module.last_exit.message == "did not answer after a call was given up"


async def test_one_that_prints_no_whole_line_is_replaced_like_one_that_prints_nothing(
    running: Running, tmp_path: Path
) -> None:
    # Calls do not wait for the probe, so nothing else would end it.
    more = {"concurrency": 2, "timeouts": {"health_s": 0.1}}
    module = await running.ready(actor(tmp_path, supervision={**CALM, **more}))
    one, _ = call("mumble")
    module.submit(one)
    module.give_up(one, LATE)
    with trio.fail_after(WAIT_S):
        await running.until(lambda: module.last_exit is not None)
    assert module.last_exit is not None
    assert module.last_exit.message == "did not answer after a call was given up"


async def test_giving_one_call_up_does_not_disturb_the_others_in_flight(
    running: Running, tmp_path: Path
) -> None:
    supervision = {**CALM, "concurrency": 3, "timeouts": {"health_s": 0.1}}
    module = await running.ready(actor(tmp_path, "mute-after=1", supervision=supervision))
    other = submit(module, "hang")
    one, _ = call("hang")
    module.submit(one)
    module.give_up(one, LATE)
    assert await instance(running) == "m#1"
    assert (module.state, other.outcomes) == (State.READY, [])


async def test_a_module_with_the_feature_is_told_of_the_cancel(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, "cancel", supervision=CALM))
    one, heard = call("hang")
    module.submit(one)
    module.give_up(one, Stopped(Reason.CLIENT, "the client cancelled the request"))
    assert (await heard.failure()).code == "cancelled"
    assert await instance(running) == "m#1"
    assert module.counters.late_lines == 1  # its own answer to the cancel


@pytest.mark.fault(15)
async def test_a_request_that_is_not_read_to_its_end_poisons_that_instance_only(
    running: Running, tmp_path: Path
) -> None:
    supervision = {**CALM, "concurrency": 2, "timeouts": {"health_s": NEVER_S}}
    module = await running.ready(actor(tmp_path, supervision=supervision))
    submit(module, "deaf")
    large, heard = call("echo", text="x" * 1_000_000)
    module.submit(large)
    await trio.testing.wait_all_tasks_blocked()
    module.give_up(large, LATE)
    assert module.state is State.STOPPING
    assert (await heard.failure()).details["reason"] == "deadline"
    await running.until(lambda: module.state is State.READY)
    assert await instance(running) == "m#2"
    assert module.last_exit is not None
    assert "did not read the request" in module.last_exit.message


@pytest.mark.parametrize("number", [0, 1])
async def test_a_process_that_closes_a_pipe_and_lives_on_is_replaced(
    running: Running, tmp_path: Path, number: int
) -> None:
    module = await running.ready(actor(tmp_path, supervision={**CALM, "concurrency": 2}))
    first = submit(module, "close", fd=number)
    if number == 0:
        submit(module, "echo", text="x" * 1_000_000)
    failure = await first.failure()
    assert (failure.code, failure.details["reason"]) == ("unreachable", "broken_pipe")
    await running.until(lambda: module.restarts == 1)
    assert module.last_exit is not None
    assert "and kept running" in module.last_exit.message


async def test_a_stray_print_is_a_warning_and_the_stream_stays_in_step(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    one, heard = call("say", lines=["a banner", '{"requestId":"ID","ok":true,"result":1}'])
    lines = [line.replace("ID", one.request.request_id) for line in one.request.args["lines"]]
    one.request.args["lines"] = lines
    module.submit(one)
    assert (await heard.success()).result == 1
    (notice,) = one.all_notices()
    assert (notice.reason, notice.line_excerpt) == ("malformed_json", "a banner")
    assert await ask(module, "echo", n=2) == {"n": 2}
    ((instance, _),) = module.instances()
    assert instance.warning == notice.words
    assert notice.words in [one.text for one in await module.log.last_lines(100)]
    assert module.counters.quarantined_lines == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"requestId":"ID","ok":"yes"}', "invalid_event"),
        ('{"requestId":"ID","version":"0","type":"wat"}', "unknown_type"),
        ('{"requestId":"ID","version":"9","type":"log"}', "bad_version"),
        ("x" * 5000, "line_too_long"),
    ],
)
async def test_a_protocol_fault_fails_its_request_and_leaves_the_instance_in_step(
    running: Running, tmp_path: Path, line: str, reason: str
) -> None:
    limits = {**CALM, "limits": {"line_bytes": 4096}}
    module = await running.ready(actor(tmp_path, supervision=limits))
    one, heard = call("say")
    one.request.args["lines"] = [line.replace("ID", one.request.request_id)]
    module.submit(one)
    failure = await heard.failure()
    assert (failure.code, failure.details["reason"]) == ("internal", reason)
    assert failure.details["line_excerpt"]
    assert failure.details["instance"] == "m#1"
    assert await instance(running) == "m#1"


async def test_events_reach_their_listener_before_the_outcome(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    heard = submit(module, "events", count=3)
    await heard.success()
    assert [event.message.strip() for event in heard.events] == ["0", "1", "2"]  # type: ignore[union-attr]


async def test_a_slow_listener_holds_the_module_back_until_it_is_given_up(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    one, heard = call("events", count=20_000, pad="x" * 100)
    heard.slow = Congestion.SLOW
    module.submit(one)
    await heard.heard(1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(heard.events) < 2000
    module.give_up(one, Stopped(Reason.CLIENT, "the client cancelled the request"))
    assert await instance(running) == "m#1"


async def test_a_thousand_calls_at_once_get_a_thousand_answers(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision={**CALM, "concurrency": 64}))
    waiting = [submit(module, "echo", n=number) for number in range(1000)]
    answers: list[Any] = [(await heard.success()).result["n"] for heard in waiting]
    assert answers == list(range(1000))


OTHER_ID = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    health = {"requestId": request["requestId"], "status": "ok"}
    describe = {"requestId": request["requestId"], "inputs": {}}
    invoke = {"requestId": "x7", "ok": True}
    print(json.dumps(locals()[request["operation"]]), flush=True)
"""


async def test_a_deadline_after_an_answer_to_another_id_says_so(
    running: Running, tmp_path: Path
) -> None:
    made = descriptor(tmp_path, [*PYTHON, "-c", OTHER_ID], supervision=CALM)
    module = await running.ready(made)
    one, heard = call("hang")
    module.submit(one)
    while one.instead is None:
        await trio.testing.wait_all_tasks_blocked()
    module.give_up(one, LATE)
    failure = await heard.failure()
    assert failure.message == (
        "m.hang gave no answer in 1 s; a line came for request 'x7', which is not open: "
        "is each request answered once, with its own requestId?"
    )
    assert failure.details["stray_id"] == "x7"


async def test_a_deadline_after_a_banner_quotes_it(running: Running, tmp_path: Path) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    one, heard = call("say", lines=["Loading model..."])
    module.submit(one)
    while one.instead is None:
        await trio.testing.wait_all_tasks_blocked()
    module.give_up(one, LATE)
    failure = await heard.failure()
    assert (
        "; the last line it printed is not an answer: Loading model... (the line is not JSON; use"
        in failure.message
    )
    assert failure.details["line_excerpt"] == "Loading model..."


NO_NEWLINE = """
import sys
for line in sys.stdin:
    answer = '{"ok": true}' if '"invoke"' in line else '{"status":"ok","inputs":{}}\\n'
    print(answer, end="", flush=True)
"""


async def test_a_deadline_in_the_middle_of_a_line_says_that_its_end_is_missing(
    running: Running, tmp_path: Path
) -> None:
    made = descriptor(tmp_path, [*PYTHON, "-c", NO_NEWLINE], supervision=CALM)
    module = await running.ready(made)
    one, heard = call("hang")
    module.submit(one)
    while one.server is None or one.server.evidence()["unfinished_line"] is None:
        await trio.testing.wait_all_tasks_blocked()
    module.give_up(one, LATE)
    failure = await heard.failure()
    words = '; it printed a line without a newline at its end: {"ok": true}'
    assert failure.message.endswith(words)
