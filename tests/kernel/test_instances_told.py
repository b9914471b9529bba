"""Processes per invocation, those that wait, starts in turn, doubts: on a virtual clock."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import Kernel
from supervisor.policy.findings import Found
from tests.factories import actor, descriptor, script
from tests.kernel.conftest import GONE, Asker, ask, begun, own
from tests.kernel.service_peer import hang, peer
from tests.kernel.test_mcp_servers import served
from tests.kernel.test_supervision_times import AGAIN, BACKOFF, BEGAN, error_of
from tests.kernel.virtual import Clock, Story, story
from tests.principals import ADA

RUNS = "starting -> ready: its command can be run"
DONE = """echo '{"version":"0","type":"done","ok":true}'"""


def warm(folder: Path, body: str, count: int = 2, **supervision: Any) -> Descriptor:
    return script(folder, body, supervision={"warm": count, "backoff": BACKOFF, **supervision})


async def states(world: Story) -> list[tuple[str, str, int]]:
    """Return what status says of each process."""
    told = (await world.status())["instances"]
    return [(one["id"], one["state"], one["in_flight"]) for one in told]


async def until(world: Story, *expected: tuple[str, str, int]) -> None:
    while await states(world) != [*expected]:
        await trio.lowlevel.checkpoint()


async def test_a_process_that_waits_is_taken_for_a_request_and_replaced_soon(
    tmp_path: Path, mock_clock: Clock
) -> None:
    body = f"read -r x; case $x in *slow*) read -r y < {tmp_path}/gate;; esac; {DONE}"
    os.mkfifo(tmp_path / "gate")
    async with story(mock_clock, tmp_path, warm(tmp_path, body)) as world:
        await until(world, ("m#1", "warm", 0), ("m#2", "warm", 0))
        asker = ask(world.kernel, "m", "slow")
        await until(world, ("m#1", "ready", 1), ("m#2", "warm", 0))
        await world.passes(0.09)
        assert len(await states(world)) == 2
        await world.passes(0.01)
        await until(world, ("m#1", "ready", 1), ("m#2", "warm", 0), ("m#3", "warm", 0))
        await trio.to_thread.run_sync((tmp_path / "gate").write_text, "\n")
        assert (await asker.document())["ok"]
        await until(world, ("m#2", "warm", 0), ("m#3", "warm", 0))
        assert (await ask(world.kernel, "m", "quick").document())["ok"]
        await until(world, ("m#3", "warm", 0), ("m#4", "warm", 0))
        assert await world.told() == [BEGAN, (0, "m", RUNS)]


async def test_one_that_ends_while_it_waits_is_a_crash(tmp_path: Path, mock_clock: Clock) -> None:
    body = f"[ -e {tmp_path}/go ] && {{ read -r x; {DONE}; exit; }}; echo oops >&2; exit 3"
    async with story(mock_clock, tmp_path, warm(tmp_path, body, 1)) as world:
        status = await world.is_in("backoff")
        words = "exited with code 3 while it waited for a request (supervision.warm)"
        died = status["last_exit"]
        assert (status["restarts"], status["next_retry_s"], status["instances"]) == (1, 3, [])
        assert (died["reason"], died["message"]) == ("exited", f"m#2 {words}")
        code, _, details = await error_of(ask(world.kernel, "m"))
        assert (code, details["exit_code"], details["stderr_tail"]) == ("unreachable", 3, ["oops"])
        (tmp_path / "go").touch()
        await world.stays("backoff", 3)
        await until(world, ("m#3", "warm", 0))
        assert await world.told() == [
            BEGAN,
            (0, "m", RUNS),
            (0, "m#1", "oops"),
            (0, "m", f"ready -> starting: m#1 {words}"),
            (0, "m", RUNS),
            (0, "m#2", "oops"),
            (0, "m", f"ready -> backoff: m#2 {words}"),
            (3, "m", f"backoff -> starting: {AGAIN}"),
            (3, "m", RUNS),
        ]
        await world.passes(50)
        assert await states(world) == [("m#3", "warm", 0)]


async def test_a_stop_waits_for_calls_and_discards_what_waits(
    tmp_path: Path, mock_clock: Clock
) -> None:
    body = f"trap '' TERM; read -r x; sleep 1000; {DONE}"
    timeouts = {"stop_s": 3, "exit_s": 2}
    async with story(mock_clock, tmp_path, warm(tmp_path, body, 1, timeouts=timeouts)) as world:
        await until(world, ("m#1", "warm", 0))
        asker = ask(world.kernel, "m")
        await until(world, ("m#1", "ready", 1))
        await world.passes(0.1)
        await until(world, ("m#1", "ready", 1), ("m#2", "warm", 0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(own, world.kernel, ADA, "stop", module="m"))
            await world.is_in("stopping")
            await world.passes(2.99)
            assert not asker.responses
            assert (await states(world))[0] == ("m#1", "stopping", 1)
            await world.passes(0.01)
            code, words, details = await error_of(asker)
            assert (code, words) == ("unreachable", "m#1 is being stopped")
            assert (details["reason"], details["instance"]) == ("stopping", "m#1")
            await world.stays("stopping", 3)
            status = await world.comes_to("down", 0)
            assert (status["instances"], status["last_exit"]["reason"]) == ([], "stopped")
        assert [line[2] for line in await world.told()][2:] == [
            "ready -> stopping: a command",
            "stopping -> down: was stopped",
        ]


@pytest.mark.parametrize("kind", ["stop", "give up"])
async def test_what_is_not_begun_yet_leaves_no_process(
    tmp_path: Path, mock_clock: Clock, kind: str
) -> None:
    """A call of a tool is stopped in the moment in which its process is being started."""
    async with story(mock_clock, tmp_path, script(tmp_path, "sleep 1000")) as world:
        await world.is_in("ready")
        handle, asker = begun(world.kernel, "m", "x")
        await trio.lowlevel.checkpoint()
        if kind == "stop":
            status = own(world.kernel, ADA, "stop", module="m")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: status)
                await trio.testing.wait_all_tasks_blocked()
                await world.passes(20)
        else:
            handle.cancel(GONE)
        assert (await asker.document())["ok"] is False
        while (await world.status())["instances"]:
            await world.passes(0.1)


async def test_so_many_start_at_once_and_the_next_ones_a_second_later(
    tmp_path: Path, mock_clock: Clock
) -> None:
    silent = [
        descriptor(tmp_path, ["sh", "-c", "while read -r x; do :; done"], name=f"n{number}")
        for number in range(40)
    ]
    async with story(mock_clock, tmp_path, *silent) as world:

        async def begun() -> set[str]:
            listed = (await own(world.kernel, ADA, "status"))["modules"]
            return {one["name"] for one in listed if any(i["pid"] for i in one["instances"])}

        while len(await begun()) < 32:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        await world.passes(0.99)
        assert len(await begun()) == 32
        await world.passes(0.01)
        while len(await begun()) < 40:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("end", ["ready", "failed"])
async def test_one_that_is_ready_or_has_failed_lets_the_next_one_start_at_once(
    tmp_path: Path, mock_clock: Clock, end: str
) -> None:
    described = '{"name":"$NAME","kind":"tool","version":"1","capabilities":[],"inputs":{},'
    described = (described + '"outputs":{}}').replace('"', '\\"')
    body = f"""
        [ {end} = failed ] && exit 3
        while read -r x; do case $x in
            *health*) echo '{{"status":"ok"}}';; *) echo "{described}";;
        esac; done"""
    quick = [
        descriptor(
            tmp_path,
            ["sh", "-c", body],
            name=f"n{number}",
            transport={"env": {"NAME": f"n{number}"}},
            supervision={"intensity": 0, "restart": "transient"},
        )
        for number in range(40)
    ]
    async with story(mock_clock, tmp_path, *quick) as world:
        states = set[str]()
        while states != {end}:
            await trio.lowlevel.checkpoint()
            listed = (await own(world.kernel, ADA, "status"))["modules"]
            states = {one["state"] for one in listed}


async def test_a_server_has_a_tool_that_came_after_its_start(
    tmp_path: Path, mock_clock: Clock
) -> None:
    async with story(mock_clock, tmp_path, served(tmp_path, "legacy")) as world:
        await world.is_in("ready", "server")
        assert (await ask(world.kernel, "server", "grow").document())["ok"]
        answers = [ask(world.kernel, "server", "grown") for _ in range(3)]
        for one in answers:
            assert (await one.document())["ok"]
        told = ["draw", "ask", "sample", "trace", "album", "grow", "die", "grown"]
        assert await error_of(ask(world.kernel, "server", "nothing")) == (
            "unsupported_op",
            "server has no op 'nothing'",
            {"origin": "host", "reason": "unknown_op", "ops": told},
        )
        assert await world.told("server") == [
            (0, "server", "down -> starting: the daemon started"),
            (0, "server#1", "starting -> ready: answered initialize (2025-06-18)"),
            (0, "server#1", "describes itself anew"),
        ]


@pytest.mark.parametrize("kind", ["persistent", "tool", "warm", "service"])
async def test_a_kernel_that_breaks_off_answers_what_is_open(
    tmp_path: Path, mock_clock: Clock, kind: str
) -> None:
    async with peer() as services:
        services.scripts["m/invoke"] = hang
        made = {
            "persistent": actor(tmp_path),
            "tool": script(tmp_path, "sleep 1000"),
            "warm": warm(tmp_path, "sleep 1000", 1),
            "service": services.service(tmp_path, "m"),
        }[kind]
        askers: list[Asker] = []

        async def break_off() -> None:
            async with Kernel(Found((made,)), data_dir=tmp_path / "data") as kernel:
                await kernel.wait_ready()
                askers.extend(ask(kernel, "m", "hang") for _ in range(2))
                world = Story(kernel, mock_clock)
                while not any(load for _, _, load in await states(world)):
                    await trio.lowlevel.checkpoint()
                raise RuntimeError("the end")

        with pytest.raises(ExceptionGroup):
            await break_off()
        asker, late = askers
        code, words, details = await error_of(asker)
        assert (code, words) == ("cancelled", "the daemon is stopping, and m#1 with it")
        assert (details["reason"], details["instance"]) == ("shutdown", "m#1")
        assert await error_of(late) == (
            "cancelled",
            "the daemon is stopping, and m with it",
            {"origin": "host", "reason": "shutdown", "state": "ready"},
        )
