"""What commands, probes and other modules do to a module: its log, on a virtual clock."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import trio

from protocol.response import Response
from supervisor.kernel.kernel import Congestion, Kernel, Party
from tests.factories import ACTOR, PYTHON, actor, descriptor
from tests.kernel.conftest import Asker, ask, own
from tests.kernel.test_supervision_times import (
    BACKOFF,
    BEGAN,
    NO_PROBES,
    READY,
    error_of,
)
from tests.kernel.virtual import Clock, Story, story
from tests.principals import ADA

ANSWERED = "starting -> ready: answered health and describe"


@pytest.mark.parametrize("command", ["start", "restart", "stop"])
async def test_a_command_while_a_module_waits_to_be_tried_again_is_done_once_and_at_once(
    tmp_path: Path, mock_clock: Clock, command: str
) -> None:
    here = tmp_path / "here"
    body = f"[ -e {here} ] && exec {' '.join(PYTHON)} {ACTOR} m; touch {here}; exit 3"
    supervision = {"backoff": {**BACKOFF, "initial_s": 3.00449}, "health": NO_PROBES}
    made = descriptor(tmp_path, ["sh", "-c", body], supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        assert (await world.is_in("backoff"))["next_retry_s"] == 3.004
        await world.passes(1)
        assert (await world.status())["next_retry_s"] == 2.004
        status = await own(world.kernel, ADA, command, module="m")
        assert (status["next_retry_s"], status["wanted"]) == (
            None,
            "down" if command == "stop" else "up",
        )
        await world.passes(20)
        crash = (0, "m#1", "starting -> backoff: exited with code 3")
        after = [
            (1, "m#1", "backoff -> starting: a command"),
            (1, "m#2", ANSWERED),
        ]
        if command == "stop":
            after = [(1, "m#1", "backoff -> down: a command")]
        assert await world.told() == [BEGAN, crash, *after]


async def test_a_module_that_answers_its_probes_stays_ready_and_is_well_again_after_one_missed(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {
        "timeouts": {"health_s": 2},
        "health": {"interval_s": 4, "failures": 2},
    }
    made = actor(tmp_path, "mute-at=5,8", "unwell-at=10", supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        await world.passes(2)
        for number in range(10):
            if number == 8:  # a bad answer while it has a call shows that it is busy
                await world.is_in("degraded")
            await ask(world.kernel, "m").document()  # the probe has its answer before
            await world.passes(4)
        assert await world.told() == [
            BEGAN,
            READY,
            (16, "m#1", "ready -> degraded: missed a health probe"),
            (18, "m#1", "degraded -> ready: answered a health probe"),
            (28, "m#1", "ready -> degraded: missed a health probe"),
            (30, "m#1", "degraded -> ready: answered a health probe"),
            (34, "m#1", "ready -> degraded: missed a health probe"),
            (38, "m#1", "degraded -> ready: answered a health probe"),
        ]


class Again(Asker):
    """A client that asks again as soon as it has an answer."""

    def __init__(self, kernel: Kernel, op: str) -> None:
        super().__init__()
        self.next = Asker()
        self._kernel = kernel
        self._op = op

    def finished(self, response: Response) -> None:
        super().finished(response)
        content = {"op": self._op}
        self._kernel.begin(Party(ADA), "m", "invoke", content, self.next)


async def test_a_client_that_asks_again_at_the_death_of_a_process_is_served_by_the_next_one(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"concurrency": 3, "health": NO_PROBES}
    made = actor(tmp_path, supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        clients = [Again(world.kernel, "whoami") for _ in range(2)]
        for client in clients:
            world.kernel.begin(Party(ADA), "m", "invoke", {"op": "hang"}, client)
        died = ask(world.kernel, "m", "exit", args={"code": 7})
        for one in (*clients, died):
            code, _, details = await error_of(one)
            assert (code, details["reason"], details["exit_code"]) == ("unreachable", "exited", 7)
        for client in clients:
            assert (await client.next.document())["result"]["instance"] == "m#2"


@pytest.mark.parametrize("why", ["stop", "replace"])
async def test_a_process_that_is_ended_lets_its_calls_finish_if_it_can_be_spoken_with(
    tmp_path: Path, mock_clock: Clock, why: str
) -> None:
    timeouts = {"stop_s": 6, "invoke_s": 60}
    supervision = {"timeouts": timeouts, "concurrency": 3, "health": NO_PROBES, "backoff": BACKOFF}
    made = actor(tmp_path, supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world, trio.open_nursery() as nursery:
        await world.is_in("ready")
        call = ask(world.kernel, "m", "deaf" if why == "replace" else "hang")
        if why == "stop":
            nursery.start_soon(partial(own, world.kernel, ADA, "stop", module="m"))
            await world.is_in("stopping")
            await world.stays("stopping", 6)
            words = "m#1 is being stopped"
        else:
            long = ask(world.kernel, "m", args={"pad": "x" * (1 << 20)}, timeout_s=2)
            await world.stays("ready", 2)
            assert (await error_of(long))[0] == "timeout"
            words = "m#1 is being replaced: it did not read the request it was sent (deadline)"
        code, said, details = await error_of(call)
        assert (code, said) == ("unreachable", words)
        assert (details["reason"], details["instance"]) == ("stopping", "m#1")
        if why == "stop":
            await world.is_in("down")
            told = [
                (0, "m#1", "ready -> stopping: a command"),
                (6, "m#1", "stopping -> down: exited with code 0"),
            ]
        else:
            await world.has("m#2")
            await world.is_in("ready")
            late = "did not read the request it was sent (deadline)"
            told = [
                (2, "m#1", f"ready -> stopping: {late}"),
                (2, "m#1", f"stopping -> starting: {late}"),
                (2, "m#2", ANSWERED),
            ]
        assert await world.told() == [BEGAN, READY, *told]


DEPENDS = {"depends_on": ["first"], "timeouts": {"invoke_s": 30}}


async def test_a_death_is_told_with_the_age_of_the_process(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"backoff": BACKOFF, "health": NO_PROBES}
    async with story(mock_clock, tmp_path, actor(tmp_path, supervision=supervision)) as world:
        await world.is_in("ready")
        await world.passes(1.2344)
        assert (await world.status())["instances"][0]["uptime_s"] == 1.234
        died = ask(world.kernel, "m", "exit", args={"code": 7, "words": "oops"})
        assert await error_of(died) == (
            "unreachable",
            "m.exit: m#1 exited with code 7 before it answered",
            {
                "origin": "host",
                "reason": "exited",
                "instance": "m#1",
                "exit_code": 7,
                "uptime_s": 1.234,
                "stderr_tail": ["oops"],
            },
        )


async def test_a_call_that_cannot_be_served_is_told_what_its_module_waits_for(
    tmp_path: Path, mock_clock: Clock
) -> None:
    first = descriptor(
        tmp_path,
        ["sh", "-c", "exit 4"],
        name="first",
        supervision={"intensity": 0, "retry_failed_s": 50, "backoff": BACKOFF},
    )
    made = actor(tmp_path, supervision=DEPENDS)
    last = actor(tmp_path, name="last", supervision={"depends_on": ["m"], "start": "lazy"})
    async with story(mock_clock, tmp_path, first, made, last) as world:
        await world.is_in("failed", "first")
        stuck = "first failed too often to be restarted now: it exited with code 4"
        for name in "m", "last":
            assert await error_of(ask(world.kernel, name)) == (
                "unreachable",
                f"{name} waits for first: {stuck}",
                {"origin": "host", "reason": "not_ready", "waits_for": "first"},
            )
        status = await world.status()
        assert (status["waits_for"], status["missing"]) == (["first"], [])
        await own(world.kernel, ADA, "stop", module="m")
        assert await error_of(ask(world.kernel, "m")) == (
            "unreachable",
            "m is stopped; `stdiod start m` starts it",
            {
                "origin": "host",
                "reason": "not_ready",
                "state": "down",
                "waits_for": ["first"],
            },
        )


async def test_what_runs_is_told_when_what_it_depends_on_does_not_serve(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"backoff": BACKOFF, "health": NO_PROBES}
    first = actor(tmp_path, name="first", supervision=supervision)
    pool = {"instances": {"min": 2, "max": 2}, "health": NO_PROBES}
    made = actor(tmp_path, supervision={"depends_on": ["first"], **pool})
    async with story(mock_clock, tmp_path, first, made) as world:
        await world.is_in("ready")
        for number, state in (1, "ready"), (2, "backoff"):
            await world.has(f"first#{number}", module="first")
            await world.is_in("ready", "first")
            await ask(world.kernel, "first", "exit", args={"code": number}).document()
            await world.is_in(state, "first")
        await world.stays("backoff", 3, "first")
        await world.is_in("ready", "first")
        changes = [
            (0, "ready to starting: exited with code 1"),
            (0, "starting to ready: answered health and describe"),
            (0, "ready to backoff: exited with code 2"),
            (3, "starting to ready: answered health and describe"),
        ]
        words = "first, which it depends on, went from"
        told = [line for line in await world.told() if "depends" in line[2]]
        assert told == [(at, "m#1", f"{words} {change}") for at, change in changes]


async def test_a_call_whose_client_does_not_read_is_told_once_to_pause_and_once_to_go_on(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"concurrency": 4, "health": NO_PROBES, "timeouts": {"invoke_s": 60}}
    made = actor(tmp_path, "flow", supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        others = [ask(world.kernel, "m", "hang")]
        slow = Asker()
        slow.slow = Congestion.SLOW
        stays = {"op": "events", "args": {"count": 1, "stay": True}}
        handle = world.kernel.begin(Party(ADA), "m", "invoke", stays, slow)
        assert handle is not None
        await slow.heard(1)
        (told,) = await flow_of(world, 1)
        named = told.removeprefix("pause ")
        line = {"version": "0", "type": "log", "requestId": named, "level": "info", "message": "x"}

        async def more() -> None:
            others.append(ask(world.kernel, "m", "say", args={"lines": [json.dumps(line)]}))
            await slow.heard(len(others))

        await more()
        slow.slow = Congestion.NONE
        handle.resume()
        handle.resume()
        assert await flow_of(world, 2) == [told, f"resume {named}"]
        slow.slow = Congestion.FULL
        await more()
        code, words, details = await error_of(slow)
        assert (code, details["reason"]) == ("unreachable", "slow_reader")
        assert words == (
            "m.events: more than 8388608 bytes of its events were not read by its client, and the "
            "process serves other clients, too"
        )
        assert details["stderr_tail"] == [told, f"resume {named}"]
        assert not any(one.responses for one in others)


async def flow_of(world: Story, count: int) -> list[str]:
    """Return what a module was told of its calls, once that is so much."""
    told: list[str] = []
    while len(told) < count:
        await trio.lowlevel.checkpoint()
        told = [line[2] for line in await world.told() if line[2].startswith(("pause", "resume"))]
    return told


async def test_a_module_that_is_prepared_is_so_again_if_that_is_asked_for(
    tmp_path: Path, mock_clock: Clock
) -> None:
    counts = f"echo done >> {tmp_path}/count"
    transport = {"prepare": ["sh", "-c", counts]}
    supervision = {"health": NO_PROBES}
    made = actor(tmp_path, transport=transport, supervision=supervision)
    plain = actor(tmp_path, name="plain", supervision=supervision)
    async with story(mock_clock, tmp_path, made, plain) as world:
        await world.serve("m#2")
        await own(world.kernel, ADA, "restart", module="m")
        await world.serve("m#3")
        assert (tmp_path / "count").read_text() == "done\n"
        await own(world.kernel, ADA, "restart", module="m", prepare=True)
        await world.serve("m#5")
        assert (tmp_path / "count").read_text() == "done\n" * 2
        assert await own(world.kernel, ADA, "restart", module="plain", prepare=True) == (
            "plain has no transport.prepare in its descriptor"
        )
        fetched = "preparing -> starting: was prepared in 0 s"
        ended = "ready -> stopping: a command"
        assert [line[1:] for line in await world.told()] == [
            ("m", "down -> preparing: the daemon started"),
            ("m#1", fetched),
            ("m#2", ANSWERED),
            ("m#2", ended),
            ("m#2", "stopping -> starting: restart"),
            ("m#3", ANSWERED),
            ("m#3", ended),
            ("m#3", "stopping -> preparing: restart"),
            ("m#4", fetched),
            ("m#5", ANSWERED),
        ]
