"""In which order requests of one party begin, while the ops of some are still being looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Failure, Reason
from supervisor.kernel.begin_order import BeginOrder, Held
from supervisor.runtime import turns

REFUSED = Failure.because(Reason.UNKNOWN_OP, "m has no op 'x'")


class Lookups:
    """Answers, when it is told to, whether a module has an op (`request_checks.Unlisted`)."""

    why = "m was still being asked"

    def __init__(self) -> None:
        self.waiting: list[trio.MemorySendChannel[Failure | None]] = []

    async def settled(self) -> Failure | None:
        send, receive = trio.open_memory_channel[Failure | None](1)
        self.waiting.append(send)
        try:
            return await receive.receive()
        finally:
            if send in self.waiting:
                self.waiting.remove(send)

    async def answer(self, failure: Failure | None = None) -> None:
        self.waiting.pop(0).send_nowait(failure)
        await trio.testing.wait_all_tasks_blocked()


class World:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.lookups = Lookups()
        self.order = BeginOrder(nursery, "a client")
        self.begun: list[str] = []
        self.refused: list[str] = []

    async def hold(self, name: str, module: str | None, *, unlisted: bool = False) -> Held:
        def begin(failure: Failure | None) -> None:
            (self.begun if failure is None else self.refused).append(name)

        lookups: Any = self.lookups if unlisted else None
        held = self.order.hold(module, lookups, begin)
        await trio.testing.wait_all_tasks_blocked()
        return held


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
    await world.lookups.answer()
    assert world.begun == ["1", "2"]
    await world.lookups.answer(REFUSED)
    assert world.begun == ["1", "2", "4"]
    assert world.refused == ["3"]
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
    await world.lookups.answer()
    assert world.begun == ["1"]
    await world.lookups.answer()
    assert world.begun == ["1", "2", "stop", "3"]
    await world.lookups.answer()
    assert world.begun == ["1", "2", "stop", "3", "4", "start"]
    assert not world.order


@pytest.mark.parametrize("who", ["first", "second"])
async def test_a_cancelled_request_holds_up_nobody(world: World, who: str) -> None:
    first = await world.hold("1", "m", unlisted=True)
    second = await world.hold("2", "m")
    assert first.why == "m was still being asked"
    assert second.why == "a request before it had not begun yet"
    await world.hold("3", "m")
    gone = {"first": first, "second": second}[who]
    gone.leave()
    gone.leave()
    if who == "second":
        await world.lookups.answer()
    assert world.begun == {"first": ["2", "3"], "second": ["1", "3"]}[who]
    assert not world.order


async def test_an_op_that_takes_turns_to_begin_holds_up_ops_and_no_module(world: World) -> None:
    await world.hold("1", "m", unlisted=True)
    world.order.hold(None, None, lambda _: world.order.pause())
    await world.hold("stop", None)
    await world.lookups.answer()
    assert world.begun == ["1"]
    world.order.go_on()
    assert world.begun == ["1", "stop"]
    world.order.pause()
    assert world.order
    assert world.order.is_clear("m")
    world.order.go_on()
    assert not world.order


@pytest.mark.fault(29)
async def test_thousands_that_waited_begin_in_turns_and_all_that_come_meanwhile_behind_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)
    await world.hold("1", "m", unlisted=True)
    seen: list[bool] = []
    later: list[Callable[[], Held]] = [
        lambda: world.order.hold("m", None, lambda _: world.begun.append("4")),
        lambda: world.order.hold(None, None, lambda _: world.begun.append("c")),
    ]

    def begin(_: Failure | None) -> None:
        world.begun.append("2")
        seen.append(world.order.is_clear("m"))
        for one in later:
            one()

    world.order.hold("m", None, begin)
    await world.hold("3", "m")
    for name in ("a", "b"):
        await world.hold(name, None)
    await world.lookups.answer()
    assert world.begun == ["1", "2", "3", "a", "b", "4", "c"]
    assert seen == [False]
    assert not world.order
    assert world.order.is_clear("m")


async def test_thousands_behind_an_op_begin_when_it_has(world: World) -> None:
    await world.hold("1", "m", unlisted=True)
    await world.hold("stop", None)
    for number in range(5000):

        def begin(_: Failure | None, name: str = str(number)) -> None:
            world.begun.append(name)

        world.order.hold("n", None, begin)
    await world.lookups.answer()
    assert world.begun == ["1", "stop", *map(str, range(5000))]


STEPS = st.lists(
    st.tuples(st.sampled_from(["m", "n", None]), st.booleans())
    | st.sampled_from(["answer", "refuse", "leave"]),
    max_size=30,
)


@pytest.mark.parametrize("turn_s", [0, turns.TURN_S])
@given(steps=STEPS)
def test_each_begins_once_and_in_order(
    turn_s: float, steps: list[tuple[str | None, bool] | str]
) -> None:
    with mock.patch.object(turns, "TURN_S", turn_s):
        trio.run(_each_begins_once_and_in_order, steps)


async def _each_begins_once_and_in_order(steps: list[tuple[str | None, bool] | str]) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        asked: list[str | None] = []
        held: dict[str, Held] = {}
        left: set[str] = set()
        for step in steps:
            match step:
                case (module, unlisted):
                    name = str(len(asked))
                    asked.append(module)
                    clear = not world.order if module is None else world.order.is_clear(module)
                    unlisted = unlisted and module is not None
                    if clear and not unlisted:
                        world.begun.append(name)
                    else:
                        held[name] = await world.hold(name, module, unlisted=unlisted)
                case "leave" if held:
                    name = next(iter(held))
                    if held[name].begin is not None:
                        left.add(name)
                    held.pop(name).leave()
                    await trio.testing.wait_all_tasks_blocked()
                case "answer" if world.lookups.waiting:
                    await world.lookups.answer()
                case "refuse" if world.lookups.waiting:
                    await world.lookups.answer(REFUSED)
        while world.lookups.waiting:
            await world.lookups.answer()
        assert not world.order
    ended = [*world.begun, *world.refused, *left]
    assert sorted(map(int, ended)) == list(range(len(asked)))
    for module in ("m", "n"):
        begun = [int(one) for one in world.begun if asked[int(one)] in (module, None)]
        assert begun == sorted(begun)
