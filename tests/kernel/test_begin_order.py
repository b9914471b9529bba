"""In which order requests of one party begin, while the ops of some are still being looked up."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.begin_order import OWN_OPS, BeginOrder
from supervisor.runtime.turns import SharedTurn


class World:
    """Requests by their names; each begins in its turn, an unlisted one once it is answered."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.order = BeginOrder(SharedTurn("a client"))
        self.begun: list[str] = []
        self.looked_up: list[trio.Event] = []
        self._nursery = nursery

    async def hold(
        self, name: str, module: str | None, *, unlisted: bool = False
    ) -> trio.CancelScope:
        scope = self.hold_soon(name, module, unlisted=unlisted)
        await trio.testing.wait_all_tasks_blocked()
        return scope

    def hold_soon(
        self, name: str, module: str | None, *, unlisted: bool = False
    ) -> trio.CancelScope:
        place, scope = self.order.place(OWN_OPS if module is None else module), trio.CancelScope()

        async def begin() -> None:
            with scope, place:
                await place.turn()
                if unlisted:
                    await self._look_up()
                self.begun.append(name)

        self._nursery.start_soon(begin)
        return scope

    async def answer(self) -> None:
        self.looked_up[0].set()
        await trio.testing.wait_all_tasks_blocked()

    async def _look_up(self) -> None:
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
    scopes = {"1": await world.hold("1", "m", unlisted=True), "2": await world.hold("2", "m")}
    scopes["stop"] = await world.hold("stop", None)
    await world.hold("3", "m")
    scopes[gone].cancel()
    await trio.testing.wait_all_tasks_blocked()
    if gone != "1":
        await world.answer()
    assert world.begun == [one for one in ("1", "2", "stop", "3") if one != gone]
    assert not world.order


async def test_an_op_that_takes_long_to_begin_holds_up_all_behind_it(world: World) -> None:
    await world.hold("prompt", None, unlisted=True)
    assert world.order
    assert not world.order.is_clear("m")
    await world.hold("1", "m")
    assert world.begun == []
    await world.answer()
    assert world.begun == ["prompt", "1"]
    assert not world.order


@pytest.mark.fault(29)
async def test_thousands_behind_an_op_begin_in_order_and_all_that_come_meanwhile_behind_them(
    world: World,
) -> None:
    await world.hold("1", "m", unlisted=True)
    await world.hold("stop", None)
    for number in range(5000):
        world.hold_soon(str(number), "n")
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
        held: dict[str, trio.CancelScope] = {}
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
                    held.pop(name).cancel()
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
