"""A process per invocation, on a virtual clock: probes, stops, deadlines, what is remembered."""

from __future__ import annotations

import json
import re
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
import trio.testing

from tests.factories import actor, descriptor, program, script
from tests.kernel.conftest import GONE, ask, begin, begun
from tests.kernel.test_supervision_times import error_of
from tests.kernel.virtual import Clock, Story, story

TIMES = {
    "invoke_s": 1000,
    "health_s": 50,
    "describe_s": 70,
    "stop_s": 30,
    "exit_s": 5,
    "linger_s": 7,
}
RUNS = {"lifecycle": "per-invocation"}
LOG = json.dumps({"version": "0", "type": "log", "level": "info", "message": "hi"})
DONE = json.dumps({"version": "0", "type": "done", "ok": True, "result": {"n": 1}})
ERROR = json.dumps(
    {"version": "0", "type": "error", "errorCode": "E1", "errorMessage": "no", "details": {"a": 1}}
)
NOT_OK = json.dumps({"version": "0", "type": "done", "ok": False})
STAYS = f"trap '' TERM\necho '{LOG}'\nwhile :; do sleep 1000; done"
"""A tool that only a kill ends."""


def says(*lines: str) -> str:
    return "".join(f"echo '{line}'\n" for line in lines)


async def alone(world: Story, number: int = 1) -> None:
    """Wait until a number of processes run."""
    while len((await world.status())["instances"]) != number:
        await trio.lowlevel.checkpoint()


async def is_deaf_to_term(world: Story) -> None:
    """Wait until a process ignores SIGTERM: before that, one would end it."""
    status = trio.Path(f"/proc/{(await world.status())['instances'][0]['pid']}/status")
    ignored = 0
    while not ignored & 1 << SIGTERM - 1:
        ignored = int(re.findall(r"SigIgn:\s*(\w+)", await status.read_text())[0], 16)


async def ends(world: Story) -> None:
    """Pass time, of which signals take none, until no process is left."""
    while (await world.status())["instances"]:
        await world.passes(0.01)


@pytest.mark.parametrize(("probe", "bound_s"), [("health", 50), ("describe", 70)])
async def test_a_probe_that_is_not_answered_in_its_time_leaves_no_process(
    probe: str, bound_s: int, tmp_path: Path, mock_clock: Clock
) -> None:
    mute = ("never-ready", "no-describe", "ignore-term")
    made = actor(tmp_path, *mute, transport=RUNS, supervision={"timeouts": TIMES})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        asker = begin(world.kernel, "m", probe)
        await alone(world)
        await is_deaf_to_term(world)
        await world.passes(bound_s - 0.01)
        assert (await world.status())["in_flight"] == 1
        assert not asker.responses
        await world.passes(0.01)
        assert await error_of(asker) == (
            "timeout",
            f"m gave no answer to {probe} in {bound_s} s",
            {
                "origin": "host",
                "reason": "deadline",
                "instance": "m#1",
                "uptime_s": float(bound_s),
                "stderr_tail": [],
            },
        )
        await world.passes(29.99)
        await alone(world)
        await ends(world)
        assert ((await world.status())["state"], (await world.status())["in_flight"]) == (
            "ready",
            0,
        )


async def test_probes_and_calls_have_a_process_each(tmp_path: Path, mock_clock: Clock) -> None:
    made = actor(tmp_path, transport=RUNS, supervision={"timeouts": TIMES})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        assert (await begin(world.kernel, "m", "health").document())["result"] == {"status": "ok"}
        described = (await begin(world.kernel, "m", "describe").document())["result"]
        assert (described["name"], described["version"]) == ("m", "1")
        assert (await ask(world.kernel, "m", "whoami").document())["result"]["instance"] == "m#3"
        assert (await world.status())["counters"]["invocations"] == 1


async def test_a_run_that_does_not_end_is_stopped_with_its_module_step_by_step(
    tmp_path: Path, mock_clock: Clock
) -> None:
    made = script(tmp_path, STAYS, supervision={"timeouts": TIMES})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        asker = ask(world.kernel, "m", "go")
        await asker.heard(1)
        stop = begin(world.kernel, "supervisor", "invoke", {"op": "stop", "args": {"module": "m"}})
        await world.passes(29.99)
        assert not asker.responses
        await world.passes(0.01)
        assert await error_of(asker) == (
            "unreachable",
            "m#1 is being stopped",
            {
                "origin": "host",
                "reason": "stopping",
                "instance": "m#1",
                "uptime_s": 30.0,
                "stderr_tail": [],
            },
        )
        await world.passes(29.99)
        assert (await world.status())["state"] == "stopping"
        await ends(world)
        assert (await stop.document())["result"]["state"] == "down"


async def test_a_module_that_is_stopped_waits_for_a_run_that_ends(
    tmp_path: Path, mock_clock: Clock
) -> None:
    made = actor(tmp_path, transport=RUNS, supervision={"timeouts": TIMES})
    gate = tmp_path / "gate"
    await trio.run_process(["mkfifo", str(gate)])
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        asker = ask(world.kernel, "m", "gate", args={"gate": str(gate)})
        await alone(world)
        stop = begin(world.kernel, "supervisor", "invoke", {"op": "stop", "args": {"module": "m"}})
        await world.passes(29)
        assert (await world.status())["state"] == "stopping"
        code, words, details = await error_of(begin(world.kernel, "m", "health"))
        assert (code, words, details["reason"]) == (
            "unreachable",
            "m is being stopped",
            "stopping",
        )
        await trio.Path(gate).write_text("")
        assert (await asker.document())["ok"]
        assert (await stop.document())["result"]["state"] == "down"


REPORTED = {"ok": False, "error": {"code": "E1", "message": "no", "details": {"a": 1}}}


@pytest.mark.parametrize(
    ("lines", "words", "reported"),
    [
        ((LOG,), "m.go gave no answer in 5 s", None),
        ((LOG, DONE), "m.go: its process answered, and still ran at the deadline", {"n": 1}),
        ((LOG, ERROR, NOT_OK), "m.go: its process answered, and still ran at the deadline", None),
    ],
)
async def test_a_deadline_says_whether_the_answer_was_there(
    lines: tuple[str, ...], words: str, reported: Any, tmp_path: Path, mock_clock: Clock
) -> None:
    # In one write, so that the answer is there when the event is.
    whole = "".join(f"{line}\n" for line in lines)
    body = f"printf '%s' '{whole}'; exec sleep 1000"
    made = script(tmp_path, body, supervision={"timeouts": TIMES})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        asker = ask(world.kernel, "m", "go", timeout_s=5)
        await asker.heard(1)
        await world.passes(4.99)
        assert not asker.responses
        await world.passes(0.01)
        code, said, details = await error_of(asker)
        assert (code, said.startswith(words)) == ("timeout", True), said
        expected = REPORTED if ERROR in lines else reported and {"ok": True, "result": reported}
        assert details.get("reported") == expected
        assert details["reason"] == ("deadline" if lines == (LOG,) else "exit_deadline")


@pytest.mark.parametrize(
    ("body", "died"),
    [
        ("echo words >&2; exit 3", ("exited", 3, None, ("words",))),
        ("kill -KILL $$", ("signaled", None, 9, ())),
    ],
)
async def test_the_last_bad_end_is_remembered_and_neither_a_good_run_nor_a_cancel_undoes_it(
    body: str, died: tuple[Any, ...], tmp_path: Path, mock_clock: Clock
) -> None:
    bodies = (
        f"read line\ncase $line in *bad*) {body};; *hang*) echo '{LOG}'; exec sleep 1000;; esac\n"
    )
    made = script(tmp_path, bodies + says(DONE), supervision={"timeouts": TIMES})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        assert (await ask(world.kernel, "m", "good").document())["ok"]
        assert (await world.status())["last_exit"] is None
        assert not (await ask(world.kernel, "m", "bad").document())["ok"]
        status = await world.status()
        last = status["last_exit"]
        found = last["reason"], last["exit_code"], last["signal"], last["stderr_tail"]
        assert found == died
        assert (status["state"], status["restarts"]) == ("ready", 0)
        handle, asker = begun(world.kernel, "m", "hang")
        await asker.heard(1)
        handle.cancel(GONE)
        await asker.response()
        assert (await ask(world.kernel, "m", "good").document())["ok"]
        assert (await world.status())["last_exit"] == last


async def test_a_tool_that_is_taken_away_is_unhealthy_and_its_calls_say_why(
    tmp_path: Path, mock_clock: Clock
) -> None:
    path = program(tmp_path / "run", "#!/bin/sh\n" + says(DONE))
    made = descriptor(tmp_path, ["./run"], transport={"protocol": "narratoria"})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        assert (await begin(world.kernel, "m", "health").document())["result"] == {"status": "ok"}
        path.unlink()
        for asker, what in (
            (begin(world.kernel, "m", "health"), "could not be started"),
            (ask(world.kernel, "m", "go"), "m.go could not be started"),
        ):
            code, words, details = await error_of(asker)
            assert words.startswith(f"{what}: ")
            assert "run is not there" in words
            assert (code, details["reason"]) == ("unreachable", "spawn_failed")
        assert (await world.status())["state"] == "ready"
        program(path, "#!/bin/sh\n" + says(DONE))
        assert (await ask(world.kernel, "m", "go").document())["result"] == {"n": 1}


async def test_a_tool_that_cannot_be_run_is_not_ready(tmp_path: Path, mock_clock: Clock) -> None:
    made = descriptor(tmp_path, ["./gone"], transport={"protocol": "narratoria"})
    async with story(mock_clock, tmp_path, made) as world:
        status = await world.is_in("backoff")
        assert status["last_exit"]["reason"] == "spawn_failed"


async def test_as_many_run_at_a_time_as_may(tmp_path: Path, mock_clock: Clock) -> None:
    made = script(tmp_path, STAYS, supervision={"timeouts": TIMES, "concurrency": 2})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        calls = [begun(world.kernel, "m", "go") for _ in range(5)]
        await alone(world, 2)
        status = await world.status()
        assert (status["in_flight"], status["queued"]) == (2, 3)
        assert {one["id"] for one in status["instances"]} == {"m#1", "m#2"}
        for handle, _ in calls[2:]:
            handle.cancel(GONE)
        assert [(await asker.document())["error"]["code"] for _, asker in calls[2:]] == [
            "cancelled"
        ] * 3
        assert (await world.status())["queued"] == 0
