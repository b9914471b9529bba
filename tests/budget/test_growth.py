"""What one module more costs does not depend on how many there are."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from protocol.events import Progress
from supervisor.kernel.operations import long_answers
from supervisor.kernel.parties import Party
from supervisor.policy.lifecycle import SERVES, State
from supervisor.policy.principals import Principal
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.brand import Brands
from tests import factories
from tests.budget.fake_process import without_processes
from tests.budget.lines import Lines
from tests.budget.turns import Turns, taking_turns
from tests.kernel.conftest import Asker, daemon_with, run_op
from tests.principals import ADA

FEW, MANY = 20, 100
GROWTH = 1.2
"""A line that is run for each module whenever one changes makes this 1.4 and more."""

LAZY = {"start": "lazy"}


async def ignore(event: Progress | None) -> None:
    """Take no note of it."""


async def restarted_and_stopped(folder: Path, count: int) -> tuple[float, float]:
    """Return how many lines it takes, for each module, to restart and to stop all."""
    made = [factories.descriptor(folder, ["true"], name=f"m{one}") for one in range(count)]
    restart, stop = Lines(), Lines()
    async with daemon_with(folder, *made) as daemon:
        modules = daemon.fleet.modules.values()
        with restart.counting():
            for module in modules:
                module.restart("the test")
            await run_op(daemon, "wait", {"for": "ready"}, ignore)
        assert all(module.state in SERVES for module in modules)
        with stop.counting():
            await daemon.fleet.stop()
        assert all(module.state is State.DOWN for module in modules)
    return restart.run / count, stop.run / count


async def lines_of_status(folder: Path, count: int) -> float:
    """Return how many lines it takes, for each module, to tell the status of all."""
    made = [
        factories.descriptor(folder, ["true"], name=f"m{one}", supervision=LAZY)
        for one in range(count)
    ]
    status = Lines()
    async with daemon_with(folder, *made) as daemon:
        with status.counting():
            told = await run_op(daemon, "status", {}, ignore)
        assert len(told["modules"]) == count
    return status.run / count


async def test_telling_the_status_of_a_module_costs_the_same_among_many(tmp_path: Path) -> None:
    few, many = [await lines_of_status(tmp_path / str(n), n) for n in (FEW, MANY)]
    assert many / few < GROWTH, f"lines of one: {few}, among more {many}"


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("status", {}),
        ("offers", {"wait": False}),
        ("offers", {"wait": True}),
        ("wait", {"for": "down", "modules": [f"m{one}" for one in range(FEW)]}),
    ],
)
async def test_a_long_answer_leaves_the_neighbours_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, args: dict[str, Any]
) -> None:
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)  # each module is a turn of its own
    made = [
        factories.descriptor(
            tmp_path, ["true"], name=f"m{one}", supervision=LAZY, inputs={"go": {}}
        )
        for one in range(FEW)
    ]
    told, rounds = await told_beside_a_neighbour(made, tmp_path, op, args, ADA)
    name: Any = {"status": itemgetter("name"), "offers": itemgetter("module"), "wait": str}[op]
    assert list(told)[-1] == "modules"  # as in a short answer
    assert sorted(map(name, told["modules"])) == sorted(f"m{one}" for one in range(FEW))
    assert rounds >= FEW // 2  # who of the two comes first in a turn is chance


@pytest.mark.parametrize("op", ["status", "offers"])
async def test_modules_that_a_client_may_not_see_take_their_turns_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)  # each module is a turn of its own
    made = [
        factories.descriptor(tmp_path, ["true"], name=f"m{one}", supervision=LAZY)
        for one in range(FEW)
    ]
    blind = ADA.narrowed(modules=["other"])
    told, rounds = await told_beside_a_neighbour(made, tmp_path, op, {}, blind)
    assert told["modules"] == []
    assert rounds >= FEW // 2


async def told_beside_a_neighbour(
    made: list[Descriptor], folder: Path, op: str, args: dict[str, Any], principal: Principal
) -> tuple[Any, int]:
    """Return the result of an op, and how often somebody else had a turn meanwhile."""
    rounds = 0

    async def neighbour() -> None:
        nonlocal rounds
        while True:
            await trio.lowlevel.checkpoint()
            rounds += 1

    async with daemon_with(folder, *made) as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(neighbour)
        told = await run_op(daemon, op, args, ignore, principal)
        nursery.cancel_scope.cancel()
    return told, rounds


@pytest.mark.fault(30)
async def test_of_many_long_statuses_of_one_client_one_is_made_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)  # each module is a turn of its own
    made = [
        factories.descriptor(tmp_path, ["true"], name=f"m{one}", supervision=LAZY)
        for one in range(FEW)
    ]
    begun: dict[int, list[Any]] = {}
    most = 0
    tell = long_answers._gather_a_turn

    def counted(told: Iterator[Any], into: list[Any]) -> bool:
        nonlocal most
        begun[id(into)] = into
        most = max(most, len(begun))
        if done := tell(told, into):
            del begun[id(into)]
        # What was told is encoded in the same turn: the whole is no one step.
        assert all(isinstance(one, bytes) for one in into[1:])
        return done

    monkeypatch.setattr(long_answers, "_gather_a_turn", counted)
    async with daemon_with(tmp_path, *made) as daemon:
        party, askers = Party(ADA), [Asker() for _ in range(20)]
        for asker in askers:
            daemon.requests.begin(party, "supervisor", "invoke", {"op": "status"}, asker)
        answers = [await asker.document() for asker in askers]
    assert [len(one["result"]["modules"]) for one in answers] == [FEW] * len(askers)
    assert most == 1


async def test_starting_and_stopping_a_module_costs_the_same_among_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with taking_turns() as turns:
        few = await among(FEW, tmp_path, turns, monkeypatch)
        many = await among(MANY, tmp_path, turns, monkeypatch)
    growth = [more / less for less, more in zip(few, many, strict=True)]
    assert max(growth) < GROWTH, f"lines to restart and to stop one: {few}, among more {many}"


async def among(
    count: int, folder: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> tuple[float, float]:
    with monkeypatch.context() as patch:
        # A turn that is over, since the machine is slow, takes more lines.
        patch.setattr("supervisor.runtime.turns.TURN_S", math.inf)
        patch.setattr("supervisor.runtime.turns.ALL_S", math.inf)
        without_processes(turns, patch)
        found = await restarted_and_stopped(folder / str(count), count)
    turns.peers.clear()
    return found


def test_a_fork_is_seen_without_a_look_at_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    brands = Brands(whole_process=True)
    looked_at: list[int] = []

    def forked(pid: int, thread: int) -> list[int]:
        return list(range(1, MANY + 1))

    def brand(pid: int) -> int:
        looked_at.append(pid)
        return second if pid == MANY else first

    first, second = brands.next(), brands.next()
    monkeypatch.setattr(procfs, "children_of_thread", forked)
    monkeypatch.setattr(procfs, "brand", brand)

    def fork() -> None:
        with brands.forking(second):
            next_one = threading.Thread(target=fork_next)
            next_one.start()
            next_one.join()

    def fork_next() -> None:
        with brands.forking(brands.next()):
            pass

    # Not in the main thread, which is given orphans as well.
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert looked_at == [MANY]
