"""A module with several processes: which one serves, comes and goes when, on a virtual clock."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import Sources
from tests.factories import ACTOR, PYTHON, actor, document
from tests.kernel.conftest import GONE, Asker, ask, begin, begun, own
from tests.kernel.test_supervision_times import AGAIN, BACKOFF, NO_PROBES, error_of
from tests.kernel.virtual import Clock, Story, story
from tests.principals import ADA

BEGUN = "down -> starting: the daemon started"
ANSWERED = "starting -> ready: answered health and describe"
IDLE = "ready -> stopping: idle for 3 s"
WAS = "was added", "changed"
ENDED = "stopping -> down: exited with code 0"


def pool(folder: Path, *flags: str, least: int = 2, most: int = 2, **more: Any) -> Descriptor:
    instances = {"min": least, "max": most, **more.pop("instances", {})}
    supervision = {"instances": instances, "health": NO_PROBES, "backoff": BACKOFF, **more}
    return actor(folder, *flags, supervision=supervision)


async def loads(world: Story) -> list[int]:
    """Return how many calls each process has."""
    return [one["in_flight"] for one in (await world.status())["instances"]]


async def lives(world: Story) -> dict[str, list[tuple[float, str]]]:
    """Return what the log says of each instance: of two, either may be the quicker one."""
    found: dict[str, list[tuple[float, str]]] = {}
    for at, instance, words in await world.told():
        if words.startswith("this instance: "):
            found.setdefault(instance, []).append((at, words.removeprefix("this instance: ")))
    return dict(sorted(found.items()))


async def test_it_grows_while_calls_wait_and_shrinks_when_it_has_been_idle(
    tmp_path: Path, mock_clock: Clock
) -> None:
    made = pool(tmp_path, least=1, most=3, instances={"idle_stop_s": 3})
    gates = [tmp_path / f"gate-{number}" for number in range(5)]
    for gate in gates:
        os.mkfifo(gate)
    async with story(mock_clock, tmp_path, made) as world:

        def begin(first: int, last: int) -> list[Asker]:
            args = ({"gate": str(gate)} for gate in gates[first:last])
            return [ask(world.kernel, "m", "gate", args=one) for one in args]

        await world.serve("m#1")
        calls = begin(0, 2)
        await world.passes(0.05)
        calls += begin(2, 3)
        await world.passes(0.049)
        await world.has("m#1")
        await world.passes(0.001)
        await world.serve("m#1", "m#2", "m#3")
        assert await loads(world) == [1, 1, 1]
        calls += begin(3, 5)
        await world.passes(2)
        status = await world.status()
        assert (status["queued"], status["restarts"], status["last_exit"]) == (2, 0, None)
        for number in 1, 2, 3, 4, 0:
            await world.passes(1)
            await trio.to_thread.run_sync(gates[number].write_text, "")
            assert (await calls[number].document())["ok"]
        # The first one stays, though it was the last to have a call.
        for left in 3, 2, 1:
            await world.passes(0.9 if left == 3 else 0.89)
            assert len(await loads(world)) == left
            await world.passes(0.1 if left == 3 else 0.11)
            while len(await loads(world)) == left > 1:
                await trio.lowlevel.checkpoint()
        await world.passes(50)
        await world.has("m#1")
        waited = (0.1, "down -> starting: a request has waited 0.1 s")
        told = await lives(world)
        assert told.pop("m") == [waited, waited]
        assert sorted(told.values()) == [
            [(0.1, ANSWERED), (8.1, IDLE), (8.1, ENDED)],
            [(0.1, ANSWERED), (9.1, IDLE), (9.1, ENDED)],
        ]


async def test_of_those_that_are_idle_for_as_long_only_as_many_go_as_are_to_spare(
    tmp_path: Path, mock_clock: Clock
) -> None:
    made = pool(tmp_path, least=1, most=3, instances={"idle_stop_s": 3})
    gates = [tmp_path / f"gate-{number}" for number in range(3)]
    for gate in gates:
        os.mkfifo(gate)
    async with story(mock_clock, tmp_path, made) as world:
        await world.serve("m#1")
        args = ({"gate": str(gate)} for gate in gates)
        calls = [ask(world.kernel, "m", "gate", args=one) for one in args]
        await world.passes(0.1)
        await world.serve("m#1", "m#2", "m#3")
        for gate, call in zip(gates, calls, strict=True):
            await trio.to_thread.run_sync(gate.write_text, "")
            await call.document()
        await world.passes(3)
        while len((await world.status())["instances"]) > 1:
            await trio.lowlevel.checkpoint()
        await world.stays("ready", 50)
        assert len((await world.status())["instances"]) == 1


async def test_the_last_one_stays_while_a_module_that_runs_depends_on_it(
    tmp_path: Path, mock_clock: Clock
) -> None:
    instances = {"min": 0, "max": 2, "idle_stop_s": 3}
    supervision = {"instances": instances, "health": NO_PROBES, "start": "lazy"}
    needed = actor(tmp_path, name="needed", supervision=supervision)
    made = actor(tmp_path, supervision={"depends_on": ["needed"], "health": NO_PROBES})
    async with story(mock_clock, tmp_path, needed, made) as world:
        await world.is_in("ready")
        await world.has("needed#1", module="needed")
        gates = [tmp_path / "gate", tmp_path / "other"]
        for gate in gates:
            os.mkfifo(gate)
        args = ({"gate": str(gate)} for gate in gates)
        calls = [ask(world.kernel, "needed", "gate", args=one) for one in args]
        await world.passes(0.1)
        await world.serve("needed#1", "needed#2", module="needed")
        for gate, call in zip(gates, calls, strict=True):
            await trio.to_thread.run_sync(gate.write_text, "")
            await call.document()
        await world.passes(3)
        while len((await world.status("needed"))["instances"]) > 1:
            await trio.lowlevel.checkpoint()
        await world.stays("ready", 50, "needed")
        await own(world.kernel, ADA, "stop", module="m")
        await world.passes(3)
        await world.is_in("down", "needed")


async def test_the_least_loaded_serves(tmp_path: Path, mock_clock: Clock) -> None:
    made = pool(tmp_path, "cancel", least=3, most=3, concurrency=2)
    async with story(mock_clock, tmp_path, made) as world:
        await world.serve("m#1", "m#2", "m#3")
        calls = []
        for expected in ([1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1], [2, 2, 1], [2, 2, 2]):
            calls.append(begun(world.kernel, "m", "hang"))
            assert await loads(world) == expected
        late = ask(world.kernel, "m", "whoami")
        assert (await world.status())["queued"] == 1
        for at in 1, 4:
            calls[at][0].cancel(GONE)
        assert (await late.document())["result"]["instance"] == "m#2"
        assert await loads(world) == [2, 0, 2]
        begun(world.kernel, "m", "hang")
        assert await loads(world) == [2, 1, 2]


async def test_a_crash_takes_one_place_and_the_others_serve(
    tmp_path: Path, mock_clock: Clock
) -> None:
    async with story(mock_clock, tmp_path, pool(tmp_path)) as world:
        await world.serve("m#1", "m#2")
        for code, after in (1, ["m#3", "m#2"]), (2, []):
            await ask(world.kernel, "m", "exit", args={"code": code}).document()
            await (world.serve(*after) if after else world.has("m#2"))
        await world.passes(1)
        assert await lives(world) == {
            "m": [(0, BEGUN)],
            "m#1": [(0, ANSWERED), (0, "ready -> starting: exited with code 1")],
            "m#2": [(0, ANSWERED)],
            "m#3": [(0, ANSWERED), (0, "ready -> backoff: exited with code 2")],
        }
        status = await world.status()
        assert (status["state"], status["restarts"], status["next_retry_s"]) == ("degraded", 1, 2)
        answer = await ask(world.kernel, "m", "whoami").document()
        assert answer["result"]["instance"] == "m#2"
        await world.passes(2)
        await world.serve("m#2", "m#4")
        status = await world.is_in("ready")
        assert (status["restarts"], status["last_exit"]["exit_code"]) == (2, 2)
        assert (await lives(world))["m#3"][2:] == [(3, f"backoff -> starting: {AGAIN}")]


@pytest.mark.parametrize("command", ["restart", "stop"])
async def test_a_command_is_for_all_of_them(
    tmp_path: Path, mock_clock: Clock, command: str
) -> None:
    async with story(mock_clock, tmp_path, pool(tmp_path)) as world:
        await world.serve("m#1", "m#2")
        await own(world.kernel, ADA, command, module="m")
        if command == "restart":
            await world.serve("m#3", "m#4")
        await world.passes(1)
        told = await lives(world)
        asked = [(0, ANSWERED), (0, "ready -> stopping: a command")]
        assert {one: told[one][:2] for one in ("m#1", "m#2")} == {"m#1": asked, "m#2": asked}
        if command == "stop":
            assert (await world.status())["instances"] == []
        else:
            again = [(0, "stopping -> starting: restart")]
            assert [told[one][2:] for one in ("m#1", "m#2")] == [again, again]
            assert [told[one] for one in ("m#3", "m#4")] == [[(0, ANSWERED)], [(0, ANSWERED)]]
        status = await world.status()
        assert (status["restarts"], status["last_exit"]["reason"]) == (0, "stopped")


async def test_at_their_age_they_are_renewed_one_after_the_other(
    tmp_path: Path, mock_clock: Clock
) -> None:
    made = pool(tmp_path, instances={"max_age_s": 40})
    async with story(mock_clock, tmp_path, made) as world:
        await world.serve("m#1", "m#2")
        for at in 38, 76:
            await world.passes(38)
            await world.serve(*(("m#3", "m#4") if at == 38 else ("m#5", "m#6")))
        old = "ready -> stopping: it is 38 s old", "stopping -> down: exited with code 0"
        follows = "is 38 s old, and this one follows it"
        assert await lives(world) == {
            "m": [
                (0, BEGUN),
                *((38, f"down -> starting: m#{number} {follows}") for number in (1, 2)),
                *((76, f"down -> starting: m#{number} {follows}") for number in (3, 4)),
            ],
            **{f"m#{n}": [(0, ANSWERED), *((38, one) for one in old)] for n in (1, 2)},
            **{f"m#{n}": [(38, ANSWERED), *((76, one) for one in old)] for n in (3, 4)},
            **{f"m#{n}": [(76, ANSWERED)] for n in (5, 6)},
        }
        assert (await world.status())["last_exit"] is None


async def test_the_health_of_several_is_that_of_the_worst_and_the_newest_describes_them(
    tmp_path: Path, mock_clock: Clock
) -> None:
    async with story(mock_clock, tmp_path, pool(tmp_path, timeouts={"health_s": 3})) as world:
        await world.serve("m#1", "m#2")
        well = await begin(world.kernel, "m", "health").document()
        assert (well["ok"], well["result"]["status"]) == (True, "ok")
        begun(world.kernel, "m", "deaf")
        health = begin(world.kernel, "m", "health")
        await trio.testing.wait_all_tasks_blocked()  # both are asked, and m#2 answers in order
        assert (await begin(world.kernel, "m", "describe").document())["ok"]
        await world.passes(2.99)
        assert not health.responses
        await world.passes(0.01)
        code, words, details = await error_of(health)
        assert (code, words) == ("timeout", "m#1 gave no answer to health in 3 s")
        assert (details["reason"], details["instance"]) == ("deadline", "m#1")


@asynccontextmanager
async def reloaded(
    clock: Clock, folder: Path, **supervision: Any
) -> AsyncIterator[tuple[Story, Callable[..., Awaitable[None]]]]:
    """Run a kernel over a directory of one module; the function reloads another descriptor."""
    directory = folder / "modules"
    directory.mkdir()
    sources = Sources.of_directories([directory])

    async def reload(*flags: str, **more: Any) -> None:
        made = document(
            [*PYTHON, ACTOR, "m", *flags],
            supervision={"health": NO_PROBES, "backoff": BACKOFF, **supervision, **more},
        )
        (directory / "m.json").write_text(json.dumps(made))
        assert isinstance(await own(world.kernel, ADA, "reload"), dict)

    async with story(clock, folder, sources=sources, directories=[directory]) as world:
        await reload()
        yield world, reload


async def test_a_new_descriptor_takes_over_once_one_of_its_processes_is_ready(
    tmp_path: Path, mock_clock: Clock
) -> None:
    two = {"instances": {"min": 2, "max": 2}}
    async with reloaded(mock_clock, tmp_path, overlap=True, **two) as (world, reload):
        await world.serve("m#1", "m#2")
        await reload("cancel")
        await world.serve("m#3", "m#4")
        assert (await world.status())["last_exit"] is None
        await reload("kind=other")
        await world.serve("m#3", "m#4")
        told = await lives(world)
        over = (0, "ready -> stopping: m#3 has taken over")
        for one in "m#1", "m#2":
            assert told.pop(one) == [(0, ANSWERED), over, (0, ENDED)]
        for one in "m#3", "m#4":
            assert told.pop(one) == [(0, ANSWERED)]
        why = "describes itself with kind 'other'; its descriptor says 'tool'"
        for one in "m#5", "m#6":
            assert told.pop(one)[:2] == [
                (0, f"starting -> stopping: {why}"),
                (0, f"stopping -> backoff: {why}"),
            ]
        added, changed = ((0, f"down -> starting: its descriptor {one}") for one in WAS)
        assert told == {"m": [added, *[changed] * 4]}
        status = await world.status()
        kept = f"the module that it describes did not start: it {why}. The last good version stays"
        assert status["quarantined"] == f"{kept} in use."
        assert (status["last_exit"], status["restarts"]) == (None, 0)
        assert (0, "m", status["quarantined"]) in await world.told()
        await ask(world.kernel, "m", "exit", args={"code": 1}).document()
        await world.serve("m#4", "m#7")


async def test_a_new_descriptor_that_fails_is_followed_by_the_one_before(
    tmp_path: Path, mock_clock: Clock
) -> None:
    async with reloaded(mock_clock, tmp_path, overlap=False) as (world, reload):
        await world.serve("m#1")
        await reload("kind=other")
        await world.has("m#3")
        await world.serve("m#3")
        why = "describes itself with kind 'other'; its descriptor says 'tool'"
        kept = f"the module that it describes did not start: it {why}. The last good version stays"
        assert await world.told() == [
            (0, "m", "down -> starting: its descriptor was added"),
            (0, "m#1", ANSWERED),
            (0, "m#1", "ready -> stopping: its descriptor changed"),
            (0, "m#1", ENDED),
            (0, "m", "down -> starting: its descriptor changed"),
            (0, "m#2", f"starting -> stopping: {why}"),
            (0, "m#2", f"stopping -> backoff: {why}"),
            (0, "m", f"{kept} in use."),
            (0, "m#2", "backoff -> down: it did not get ready"),
            (0, "m", "down -> starting: its new descriptor failed, and this one was good"),
            (0, "m#3", ANSWERED),
        ]
        status = await world.status()
        assert (status["quarantined"], status["wanted"], status["last_exit"]["reason"]) == (
            f"{kept} in use.",
            "up",
            "bad_describe",
        )
