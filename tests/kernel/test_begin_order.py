"""In which order requests of one party begin, while the ops of some are still being looked up."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.begin_order import OWN_OPS, BeginOrder, BeginTasks, PlaceInOrder
from supervisor.kernel.kernel import Party
from supervisor.policy.verdict import Stopped
from supervisor.runtime.turns import LoopTime, SharedTurn
from tests.kernel.conftest import GONE, Asker, daemon_with
from tests.kernel.test_mcp_servers import served
from tests.principals import ADA


class Request:
    """A request that waits to begin."""

    place: PlaceInOrder

    def __init__(self) -> None:
        self.ended = False

    def cancel(self, stopped: Stopped) -> None:
        del stopped
        self.ended = True
        self.place.leave()

    def resume(self) -> None: ...


class World:
    """Requests by their names; each begins in its turn, an unlisted one once it is answered."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.now = 0.0
        """The time of the turns, which stands still."""
        self.order = BeginOrder(SharedTurn("a client", LoopTime(lambda: self.now)))
        self.begun: list[str] = []
        self.looked_up: list[trio.Event] = []
        self.tasks = BeginTasks(nursery)

    async def hold(self, name: str, module: str | None, *, unlisted: bool = False) -> Request:
        request = self.hold_soon(name, module, unlisted=unlisted)
        await trio.testing.wait_all_tasks_blocked()
        return request

    def hold_soon(
        self, name: str, module: str | None, *, unlisted: bool = False, steps: int = 0
    ) -> Request:
        def begin() -> Iterator[None]:
            for _ in range(steps):
                self.now += 1
                yield
            self.begun.append(name)

        request = Request()
        request.place = self.order.place(
            OWN_OPS if module is None else module,
            request,
            lambda _: begin() if steps else self.begun.append(name),
            self.tasks,
            cast("Any", self) if unlisted else None,
        )
        return request

    async def answer(self) -> None:
        self.looked_up[0].set()
        await trio.testing.wait_all_tasks_blocked()

    async def settled(self) -> None:
        """Look an op up (`request_checks.Unlisted`)."""
        answered = trio.Event()
        self.looked_up.append(answered)
        try:
            await answered.wait()
        finally:
            self.looked_up.remove(answered)


@pytest.fixture
def world(nursery: trio.Nursery) -> World:
    return World(nursery)


async def test_what_is_behind_an_unlisted_one_for_the_same_module_waits_for_it(
    world: World,
) -> None:
    assert world.order.is_clear("m")
    await world.hold("1", "m", unlisted=True)
    assert not world.order.is_clear("m")
    assert world.order.is_clear("n")
    await world.hold("2", "m")
    await world.hold("3", "m", unlisted=True)
    await world.hold("4", "m")
    assert world.begun == []
    await world.answer()
    assert world.begun == ["1", "2"]
    await world.answer()
    assert world.begun == ["1", "2", "3", "4"]
    assert not world.order


async def test_an_op_of_the_daemon_waits_for_all_before_it_and_all_behind_wait_for_it(
    world: World,
) -> None:
    await world.hold("1", "m", unlisted=True)
    await world.hold("2", "n", unlisted=True)
    await world.hold("stop", None)
    assert not world.order.is_clear("x")
    await world.hold("3", "x")
    await world.hold("4", "m", unlisted=True)
    await world.hold("start", None)
    await world.answer()
    assert world.begun == ["1"]
    await world.answer()
    assert world.begun == ["1", "2", "stop", "3"]
    await world.answer()
    assert world.begun == ["1", "2", "stop", "3", "4", "start"]
    assert not world.order
    assert world.order.is_clear("x")


@pytest.mark.parametrize("gone", ["1", "2", "stop"])
async def test_a_cancelled_request_holds_up_nobody(world: World, gone: str) -> None:
    held = {"1": await world.hold("1", "m", unlisted=True), "2": await world.hold("2", "m")}
    held["stop"] = await world.hold("stop", None)
    await world.hold("3", "m")
    held[gone].cancel(GONE)
    await trio.testing.wait_all_tasks_blocked()
    if gone != "1":
        await world.answer()
    assert world.begun == [one for one in ("1", "2", "stop", "3") if one != gone]
    assert not world.order


async def test_an_op_that_takes_turns_to_begin_holds_up_all_behind_it(world: World) -> None:
    world.hold_soon("prompt", None, steps=5)
    world.hold_soon("1", "m")
    while world.now < 4:
        await trio.lowlevel.checkpoint()
        assert world.order
        assert not world.order.is_clear("m")
    assert world.begun == []
    await trio.testing.wait_all_tasks_blocked()
    assert world.begun == ["prompt", "1"]
    assert not world.order


async def test_as_many_begin_in_a_pass_of_the_loop_as_there_is_time_for(world: World) -> None:
    await world.hold("first", "m", unlisted=True)
    for number in range(1000):
        world.hold_soon(f"op {number}", None)
        world.hold_soon(f"call {number}", "m")
    world.looked_up[0].set()
    passes = 0
    while world.order:
        await trio.lowlevel.checkpoint()
        passes += 1
    assert len(world.begun) == 2001
    assert passes < 10


@pytest.mark.parametrize("how", ["stops", "ends without waiting"])
async def test_each_that_waits_when_the_daemon_ends_has_one_response(
    tmp_path: Path, how: str
) -> None:
    party, askers, ticks = Party(ADA), list[Asker](), itertools.count()
    # Each begins in a turn of its own, so that most wait when the modules have stopped.
    party.order = BeginOrder(SharedTurn("a client", LoopTime(lambda: next(ticks))))
    listings: list[Asker] = []
    server = served(tmp_path, "legacy", "mute")  # it does not list its tools again
    with trio.CancelScope() as scope:
        async with daemon_with(tmp_path, server) as daemon:

            def ask(tool: str, op: str, **args: Any) -> Asker:
                asker = Asker()
                askers.append(asker)
                daemon.begin(party, tool, "invoke", {"op": op, "args": args}, asker)
                return asker

            ask("server", "nope")
            for _ in range(20):
                ask("server", "draw", n=1)
                listings.append(ask("supervisor", "session.list"))
                ask("supervisor", "session.new")
            ask("supervisor", "session.prompt", session_id="x", content="y")
            ask("supervisor", "status")
            await trio.testing.wait_all_tasks_blocked()
            assert not any(one.responses for one in askers)
            if how == "ends without waiting":
                scope.cancel()
                await trio.sleep_forever()
    assert Counter(len(one.responses) for one in askers) == {1: len(askers)}
    assert not party.order
    assert [one.responses[0].ok for one in listings] == [how == "stops"] * 20


@pytest.mark.fault(29)
async def test_thousands_behind_an_op_begin_in_order_and_all_that_come_meanwhile_behind_them(
    world: World,
) -> None:
    await world.hold("1", "m", unlisted=True)
    await world.hold("stop", None)
    for number in range(5000):
        world.hold_soon(str(number), "n", steps=1)
    world.looked_up[0].set()
    while "0" not in world.begun:
        await trio.lowlevel.checkpoint()
    assert not world.order.is_clear("n")
    await world.hold("last", "n")
    assert world.begun == ["1", "stop", *map(str, range(5000)), "last"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["m", "n", None]), st.booleans())
    | st.sampled_from(["answer", "leave"]),
    max_size=30,
)


@given(steps=STEPS)
def test_each_begins_once_and_in_order(steps: list[tuple[str | None, bool] | str]) -> None:
    trio.run(_each_begins_once_and_in_order, steps)


async def _each_begins_once_and_in_order(steps: list[tuple[str | None, bool] | str]) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        asked: list[str | None] = []
        held: dict[str, Request] = {}
        left: set[str] = set()
        for step in steps:
            match step:
                case (module, unlisted):
                    name = str(len(asked))
                    asked.append(module)
                    clear = not world.order if module is None else world.order.is_clear(module)
                    if clear and not unlisted:
                        world.begun.append(name)
                    else:
                        held[name] = await world.hold(name, module, unlisted=unlisted)
                case "leave" if held:
                    name = next(iter(held))
                    if name not in world.begun:
                        left.add(name)
                    held.pop(name).cancel(GONE)
                    await trio.testing.wait_all_tasks_blocked()
                case "answer" if world.looked_up:
                    await world.answer()
        while world.looked_up:
            await world.answer()
        assert not world.order
    assert sorted(map(int, [*world.begun, *left])) == list(range(len(asked)))
    for module in ("m", "n"):
        begun = [int(one) for one in world.begun if asked[int(one)] in (module, None)]
        assert begun == sorted(begun)
