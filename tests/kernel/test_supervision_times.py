"""What supervision does, and when: the log of a module on a virtual clock, from begin to end."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import Code
from tests.factories import actor, descriptor, script
from tests.kernel.conftest import Asker, ask, begin
from tests.kernel.virtual import Clock, story

BACKOFF = {"initial_s": 3, "factor": 2, "max_s": 10, "jitter": 0}
NO_PROBES = {"interval_s": 10_000}
BEGAN = (0.0, "m", "down -> starting: the daemon started")
READY = (0.0, "m#1", "starting -> ready: answered health and describe")
AGAIN = "the time to try again has come"
IDLE = "it used no CPU and printed nothing: waiting for something, or its output is not flushed"


async def error_of(asker: Asker) -> tuple[str, str, dict[str, Any]]:
    """Return code, words and details of a failure, but for what differs from run to run."""
    error = (await asker.document())["error"]
    details = {**error["details"]}
    for changing in "pid", "cpu_s":
        details.pop(changing, None)
    return str(Code(error["code"])), error["message"], details


async def test_a_module_that_crashes_waits_longer_each_time_until_it_has_failed(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"backoff": BACKOFF, "intensity": 3, "period_s": 30, "retry_failed_s": 40}
    made = descriptor(tmp_path, ["sh", "-c", "echo oops >&2; exit 3"], supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        for restarts, pause_s in enumerate((3, 6, 10)):
            status = await world.is_in("backoff")
            assert (status["next_retry_s"], status["restarts"]) == (pause_s, restarts)
            await world.stays("backoff", pause_s)
        assert (await world.is_in("failed"))["next_retry_s"] == 40
        assert await error_of(ask(world.kernel, "m")) == (
            "unreachable",
            "m failed too often to be restarted now: it exited with code 3",
            {
                "origin": "host",
                "reason": "failed",
                "state": "failed",
                "retry_in_s": 40.0,
                "exit_code": 3,
                "stderr_tail": ["oops"],
            },
        )
        await world.stays("failed", 40)
        assert (await world.is_in("failed"))["restarts"] == 4
        expected: list[tuple[float, str, str]] = [BEGAN]
        for number, at, pause in (1, 0, 3), (2, 3, 6), (3, 9, 10), (4, 19, 40), (5, 59, 0):
            state = "failed" if number > 3 else "backoff"
            instance = f"m#{number}"
            expected.append((at, instance, "oops"))
            expected.append((at, instance, f"starting -> {state}: exited with code 3"))
            expected.append((at + pause, instance, f"{state} -> starting: {AGAIN}"))
        assert await world.told() == expected[:-1]


async def test_good_health_for_a_period_makes_crashes_forgotten(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"backoff": BACKOFF, "period_s": 20, "health": NO_PROBES}
    made = actor(tmp_path, supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        for number, lived_s in enumerate((5, 5, 5, 19.9, 20, 5), 1):
            await world.has(f"m#{number}")
            await world.is_in("ready")
            await world.stays("ready", lived_s)
            ask(world.kernel, "m", "exit", args={"code": 1})
            if number not in (1, 5):
                pause_s = (await world.is_in("backoff"))["next_retry_s"]
                await world.stays("backoff", pause_s)
        await world.has("m#7")
        await world.is_in("ready")
        crashes = [line for line in await world.told() if line[2].startswith("ready ->")]
        assert crashes == [
            (5, "m#1", "ready -> starting: exited with code 1"),
            (10, "m#2", "ready -> backoff: exited with code 1"),
            (10 + 3 + 5, "m#3", "ready -> backoff: exited with code 1"),
            (18 + 6 + 19.9, "m#4", "ready -> backoff: exited with code 1"),
            (43.9 + 10 + 20, "m#5", "ready -> starting: exited with code 1"),
            (78.9, "m#6", "ready -> backoff: exited with code 1"),
        ]


async def test_a_module_that_is_not_healthy_in_time_is_ended_step_by_step(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"timeouts": {"start_s": 7, "exit_s": 2, "stop_s": 3}, "backoff": BACKOFF}
    body = "trap '' TERM; echo up >&2; while :; do sleep 1000; done"
    made = descriptor(tmp_path, ["sh", "-c", body], supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.says("up")
        waiting = ask(world.kernel, "m")
        await world.stays("starting", 7)
        await world.is_in("stopping")
        status = await world.comes_to("backoff", 2 + 3)
        words = (
            f"was not healthy within 7 s; {IDLE}; if it is only slow to begin, "
            "supervision.timeouts.start_s allows more"
        )
        assert await error_of(waiting) == (
            "timeout",
            f"m is not ready: it {words}",
            {
                "origin": "host",
                "reason": "start_deadline",
                "state": "backoff",
                "retry_in_s": 3.0,
                "signal": 9,
                "stopped_by_host": True,
                "stderr_tail": ["up"],
            },
        )
        assert (status["last_exit"]["reason"], status["last_exit"]["signal"]) == (
            "start_deadline",
            9,
        )
        *log, last = await world.told()
        assert log == [
            BEGAN,
            (0, "m#1", "up"),
            (7, "m#1", f"starting -> stopping: {words}"),
        ]
        assert last[1:] == ("m#1", f"stopping -> backoff: {words}")


async def test_a_module_that_misses_as_many_probes_as_it_may_is_replaced(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {
        "timeouts": {"health_s": 2},
        "health": {"interval_s": 4, "failures": 3},
        "backoff": BACKOFF,
    }
    made = actor(tmp_path, "mute-after=1", supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        await world.stays("ready", 4)
        await world.is_in("degraded")
        await world.stays("degraded", 8)
        status = await world.is_in("ready")
        assert (status["restarts"], status["last_exit"]["stopped_by_host"]) == (1, True)
        missed = "missed 3 health probes in a row"
        assert await world.told() == [
            BEGAN,
            READY,
            (4, "m#1", "ready -> degraded: missed a health probe"),
            (12, "m#1", f"degraded -> stopping: {missed}"),
            (12, "m#1", f"stopping -> starting: {missed}"),
            (12, "m#2", "starting -> ready: answered health and describe"),
        ]


async def test_a_call_is_given_up_at_its_time_and_its_process_replaced_if_it_stays_mute(
    tmp_path: Path, mock_clock: Clock
) -> None:
    timeouts = {"invoke_s": 5, "silence_s": 3, "health_s": 1, "stop_s": 4}
    supervision = {"timeouts": timeouts, "backoff": BACKOFF, "health": NO_PROBES}
    made = actor(tmp_path, "ignore-term", supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        served = ask(world.kernel, "m", "deaf")
        waiting = ask(world.kernel, "m", "hang")
        hasty = ask(world.kernel, "m", "hang", timeout_s=2)
        for asker, seconds in (hasty, 2), (served, 1):
            await world.stays("ready", seconds - 0.01)
            assert not asker.responses
            await world.passes(0.01)
        await world.stays("ready", 1)
        await world.stays("stopping", 0.99)
        assert not waiting.responses
        await world.passes(0.01)
        assert await error_of(served) == (
            "timeout",
            f"m.deaf printed nothing for 3 s; {IDLE}",
            {
                "origin": "host",
                "reason": "silence",
                "instance": "m#1",
                "uptime_s": 3.0,
                "stderr_tail": [],
            },
        )
        assert await error_of(hasty) == (
            "timeout",
            (
                "m.hang was not begun in 2 s; it was still waiting for its turn: it waits for deaf "
                "of m, concurrency 1 (2 s so far)"
            ),
            {"origin": "host", "reason": "deadline", "state": "ready", "waits_for_op": "deaf"},
        )
        assert await error_of(waiting) == (
            "timeout",
            "m.hang was not begun in 5 s; it waits for m to start: m is stopping",
            {"origin": "host", "reason": "deadline", "state": "stopping"},
        )
        await world.comes_to("starting", 3)
        await world.is_in("ready")
        why = "did not answer after a call was given up"
        log = await world.told()
        assert log[:3] == [BEGAN, READY, (4, "m#1", f"ready -> stopping: {why}")]
        assert [line[1:] for line in log[3:]] == [
            ("m#1", f"stopping -> starting: {why}"),
            ("m#2", "starting -> ready: answered health and describe"),
        ]


async def test_so_many_questions_to_a_process_wait_for_an_answer_and_the_next_is_answered_at_once(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"timeouts": {"health_s": 5}, "health": NO_PROBES}
    made = actor(tmp_path, "mute-after=1", supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        waiting = [begin(world.kernel, "m", "health") for _ in range(8)]
        await trio.testing.wait_all_tasks_blocked()
        code, words, details = await error_of(begin(world.kernel, "m", "health"))
        assert (code, words) == ("timeout", "m#1 gave no answer to health in 5 s")
        assert (details["reason"], details["instance"]) == ("deadline", "m#1")
        await world.passes(4.99)
        assert not any(asker.responses for asker in waiting)
        await world.passes(0.01)
        for asker in waiting:
            assert (await error_of(asker))[:2] == (code, words)
        assert (await world.status())["state"] == "ready"


LINES = (
    '{"version":"0","type":"log","level":"info","message":"here"}\n'
    '{"version":"0","type":"done","ok":true}\n'
)
"""In one write, so that the answer is there when the event is."""


async def test_a_tool_that_stays_after_its_answer_is_ended_step_by_step(
    tmp_path: Path, mock_clock: Clock
) -> None:
    timeouts = {"linger_s": 6, "exit_s": 2, "stop_s": 3, "invoke_s": 30}
    body = f"""trap '' TERM; printf '%s' '{LINES}'; while :; do sleep 1000; done"""
    made = script(tmp_path, body, supervision={"timeouts": timeouts})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        asker = ask(world.kernel, "m", "go")
        await asker.heard(1)
        await world.passes(5.99)
        assert not asker.responses
        await world.passes(0.01)
        assert await error_of(asker) == (
            "timeout",
            "m.go: its process still ran 6 s after its answer",
            {
                "origin": "host",
                "reason": "exit_deadline",
                "instance": "m#1",
                "uptime_s": 6.0,
                "stderr_tail": [],
                "reported": {"ok": True, "result": None},
            },
        )
        await world.passes(2.99)
        status = await world.status()
        assert (status["in_flight"], [one["id"] for one in status["instances"]]) == (1, ["m#1"])
        while (status := await world.status())["instances"]:
            await world.passes(0.01)
        assert status["in_flight"] == 0
        assert await world.told() == [
            BEGAN,
            (0, "m", "starting -> ready: its command can be run"),
            (0, "m#1", "info: here"),
        ]


@pytest.mark.parametrize(
    ("instances", "lasts_s", "why"),
    [
        ({"max_age_s": 40}, 38, "is 38 s old"),
        ({"max_requests": 2}, 0, "has served 2 requests"),
        ({"max_requests": 2, "max_age_s": 40}, 0, "has served 2 requests"),
    ],
)
async def test_a_process_is_followed_by_another_at_its_age_or_after_its_last_request(
    tmp_path: Path, mock_clock: Clock, instances: dict[str, float], lasts_s: float, why: str
) -> None:
    supervision = {"instances": instances, "start": "lazy", "health": NO_PROBES}
    made = actor(tmp_path, supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await ask(world.kernel, "m").document()
        if lasts_s:
            await world.stays("ready", lasts_s)
        else:
            await world.has("m#1")
        await ask(world.kernel, "m").document()
        await world.has("m#2")
        await world.is_in("ready")
        # Two processes at a time: which of them is seen first is the machine's.
        assert sorted(await world.told(), key=itemgetter(1)) == [
            (0, "m", "down -> starting: a request came"),
            (
                lasts_s,
                "m",
                f"this instance: down -> starting: m#1 {why}, and this one follows it",
            ),
            READY,
            (lasts_s, "m#1", f"this instance: ready -> stopping: it {why}"),
            (lasts_s, "m#1", "this instance: stopping -> down: exited with code 0"),
            (lasts_s, "m#2", "this instance: starting -> ready: answered health and describe"),
        ]


async def test_an_idle_module_sleeps_until_a_request_comes(
    tmp_path: Path, mock_clock: Clock
) -> None:
    instances = {"min": 0, "max": 2, "idle_stop_s": 5}
    made = actor(
        tmp_path, supervision={"instances": instances, "start": "lazy", "health": NO_PROBES}
    )
    async with story(mock_clock, tmp_path, made) as world:
        for number in 1, 2:
            await ask(world.kernel, "m").document()
            await world.has(f"m#{number}")
            await world.passes(3)
            await ask(world.kernel, "m").document()
            await world.stays("ready", 5)
            status = await world.is_in("down")
            assert (status["wanted"], status["last_exit"], status["instances"]) == (
                "down",
                None,
                [],
            )
        answered = "answered health and describe"
        assert await world.told() == [
            line
            for number, at in ((1, 0), (2, 8))
            for line in (
                (at, f"m#{number - 1}" if at else "m", "down -> starting: a request came"),
                (at, f"m#{number}", f"starting -> ready: {answered}"),
                (at + 8, f"m#{number}", "ready -> stopping: idle for 5 s"),
                (at + 8, f"m#{number}", "stopping -> down: exited with code 0"),
            )
        ]


async def test_as_many_calls_wait_as_may_and_as_its_start_could_serve(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"start": "lazy", "queue": 0, "concurrency": 2}
    made = actor(tmp_path, supervision=supervision)

    def full(waiting: int, limit: int) -> tuple[str, str, dict[str, Any]]:
        words = f"m has {waiting} requests waiting, which is its limit"
        details = {"origin": "host", "reason": "queue_full", "queue": limit}
        return "unreachable", words, details

    async with story(mock_clock, tmp_path, made) as world:
        served = [ask(world.kernel, "m", "hang") for _ in range(2)]
        assert await error_of(ask(world.kernel, "m")) == full(2, 2)
        await world.is_in("ready")
        assert (await world.status())["in_flight"] == 2
        assert await error_of(ask(world.kernel, "m")) == full(0, 0)
        assert not any(asker.responses for asker in served)


async def test_a_module_is_started_when_what_it_depends_on_serves(
    tmp_path: Path, mock_clock: Clock
) -> None:
    timeouts = dict.fromkeys(("start_s", "describe_s", "health_s", "invoke_s"), 10_000)
    needed = {"start": "lazy", "timeouts": timeouts, "health": NO_PROBES}
    first = actor(tmp_path, "starting=1", name="first", supervision=needed)
    other = actor(tmp_path, name="other", supervision=needed)
    patient = {**needed, "start": "eager", "depends_on": ["first", "other"]}
    made = actor(tmp_path, supervision=patient)
    async with story(mock_clock, tmp_path, first, other, made) as world:
        waiting = ask(world.kernel, "m")
        await world.is_in("ready", "other")
        await world.is_in("starting", "first")
        status = await world.status()
        assert (status["state"], status["queued"]) == ("down", 1)
        assert (status["waits_for"], status["missing"]) == (["first"], [])
        # A spawn has a bound of its own, and takes real time.
        while not any(one["pid"] for one in (await world.status("first"))["instances"]):
            await trio.lowlevel.checkpoint()
        while (await world.status())["state"] == "down":
            await world.passes(0.05)
        assert (await waiting.document())["ok"]
        for name, why in (
            ("m", "first, other got ready"),
            ("first", "m depends on it"),
            ("other", "m depends on it"),
        ):
            assert [line[1:] for line in await world.told(name)] == [
                (name, f"down -> starting: {why}"),
                (f"{name}#1", "starting -> ready: answered health and describe"),
            ]


async def test_what_prepares_a_module_has_its_time_and_is_tried_again_as_a_start_is(
    tmp_path: Path, mock_clock: Clock
) -> None:
    body = "[ -e here ] && exit 0; touch here; echo fetching >&2; while :; do sleep 1000; done"
    supervision = {"timeouts": {"prepare_s": 20, "stop_s": 1, "exit_s": 1}, "backoff": BACKOFF}
    transport = {"prepare": ["sh", "-c", body]}
    made = actor(tmp_path, transport=transport, supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.says("fetching")
        (instance,) = (await world.status())["instances"]
        assert (instance["state"], instance["last_line"]) == ("preparing", "fetching")
        status = await world.comes_to("backoff", 20)
        died = status["last_exit"]
        assert (died["reason"], died["stderr_tail"]) == ("start_deadline", ("fetching",))
        await world.stays("backoff", status["next_retry_s"])
        status = await world.is_in("ready")
        assert (status["restarts"], [one["id"] for one in status["instances"]]) == (1, ["m#3"])
        log = await world.told()
        assert [line[0] for line in log[:3]] == [0, 0, 20]
        late = "was not prepared within 20 s"
        assert [line[1:] for line in log] == [
            ("m", "down -> preparing: the daemon started"),
            ("m#1", "fetching"),
            ("m#1", f"preparing -> stopping: {late}"),
            ("m#1", f"stopping -> backoff: {late}"),
            ("m#1", f"backoff -> preparing: {AGAIN}"),
            ("m#2", "preparing -> starting: was prepared in 0 s"),
            ("m#3", "starting -> ready: answered health and describe"),
        ]


NO_JSON = "the line is not JSON; use stderr for anything that is not an answer"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("", f"{IDLE}; if it is only slow to begin, supervision.timeouts.start_s allows more"),
        ("echo hello; ", f"the last line it printed is not an answer: hello ({NO_JSON})"),
    ],
)
async def test_what_was_printed_instead_of_an_answer_is_why_it_was_not_healthy_in_time(
    says: str, why: str, tmp_path: Path, mock_clock: Clock
) -> None:
    made = descriptor(
        tmp_path,
        ["sh", "-c", f"{says}echo up >&2; while :; do sleep 1000; done"],
        transport={"stdout": "tolerant"},
        supervision={"timeouts": {"start_s": 7}, "backoff": BACKOFF},
    )
    async with story(mock_clock, tmp_path, made) as world:
        await world.says("up")
        await world.stays("starting", 7)
        await world.is_in("stopping")
        said = (await world.told())[-1]
        assert said == (7, "m#1", f"starting -> stopping: was not healthy within 7 s; {why}")
