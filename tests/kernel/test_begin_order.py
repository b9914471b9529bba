"""In which order requests of one party begin, while args of some are still being looked at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.args_schema import OpSchema
from protocol.errors import Failure
from protocol.problem import Problem
from supervisor.kernel.begin_order import BeginOrder, Held
from supervisor.kernel.request_checks import Doubt
from supervisor.runtime import turns
from supervisor.runtime.checking.checks import Check, Verdict

DOUBT = Doubt("m.op", OpSchema(b"{}", vouched=True), {})


class Looking:
    """Looks at args when it is told to (runtime.checking.checks)."""

    ended = False

    def __init__(self) -> None:
        self.waiting: list[Check] = []
        self.full = False
        self.rests: list[Iterator[None]] = []
        """What is left for later turns."""

    def ask(
        self, party: str, schema: OpSchema, args: bytes, told: Callable[[Verdict], None]
    ) -> Check | None:
        if self.full:
            return None
        check = Check(party, schema, args, told)
        self.waiting.append(check)
        return check

    def in_turns(self, party: str, doing: str, steps: Iterator[None]) -> None:
        del party, doing
        self.rests.append(steps)

    def take_turns(self) -> None:
        while self.rests:
            deque(self.rests.pop(0), maxlen=0)

    def finish(self) -> None:
        self.take_turns()
        while self.waiting:
            self.answer()
            self.take_turns()

    def answer(self, verdict: Verdict = None) -> None:
        check = self.waiting.pop(0)
        if check.told is not None:
            check.told(verdict)


class World:
    def __init__(self) -> None:
        self.looking = Looking()
        self.order = BeginOrder(self.looking, "a client")  # type: ignore[arg-type]
        self.begun: list[str] = []
        self.refused: list[str] = []

    def hold(self, name: str, module: str | None, doubt: Doubt | None = None) -> Held:
        def begin(failure: Failure | None) -> None:
            (self.begun if failure is None else self.refused).append(name)

        return self.order.hold(module, doubt, begin)


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_behind_a_doubtful_one_for_the_same_module_waits_for_it(world: World) -> None:
    assert world.order.is_clear("m")
    world.hold("1", "m", DOUBT)
    assert not world.order.is_clear("m")
    assert world.order.is_clear("n")
    world.hold("2", "m")
    world.hold("3", "m", DOUBT)
    world.hold("4", "m")
    assert world.begun == []
    world.looking.answer()
    assert world.begun == ["1", "2"]
    world.looking.answer(Problem("", "is wrong"))
    assert world.begun == ["1", "2", "4"]
    assert world.refused == ["3"]
    assert not world.order


def test_an_op_of_the_daemon_waits_for_all_before_it_and_all_behind_wait_for_it(
    world: World,
) -> None:
    world.hold("1", "m", DOUBT)
    world.hold("2", "n", DOUBT)
    world.hold("stop", None)
    assert not world.order.is_clear("x")
    world.hold("3", "x")
    world.hold("4", "m", DOUBT)
    world.hold("start", None)
    world.looking.answer()
    assert world.begun == ["1"]
    world.looking.answer()
    assert world.begun == ["1", "2", "stop", "3"]
    world.looking.answer()
    assert world.begun == ["1", "2", "stop", "3", "4", "start"]
    assert not world.order


@pytest.mark.parametrize("who", ["first", "second"])
def test_who_is_given_up_holds_up_nobody(world: World, who: str) -> None:
    first, second = world.hold("1", "m", DOUBT), world.hold("2", "m")
    assert first.why == "its args were still being checked"
    assert second.why == "a request before it had not begun yet"
    world.hold("3", "m")
    gone = {"first": first, "second": second}[who]
    gone.leave()
    gone.leave()
    if who == "second":
        world.looking.answer()
    assert world.begun == {"first": ["2", "3"], "second": ["1", "3"]}[who]
    assert not world.order


def test_where_nobody_can_look_all_are_refused_at_once(world: World) -> None:
    world.hold("1", "m", DOUBT)
    for number in range(5000):
        world.hold(f"{number}", "m", DOUBT)
    world.looking.full = True
    world.looking.answer()
    world.looking.take_turns()
    assert world.begun == ["1"]
    assert len(world.refused) == 5000
    assert not world.order


def test_an_op_that_takes_turns_to_begin_holds_up_ops_and_no_module(world: World) -> None:
    world.hold("1", "m", DOUBT)
    world.order.hold(None, None, lambda _: world.order.pause())
    world.hold("stop", None)
    world.looking.answer()
    assert world.begun == ["1"]
    world.order.go_on()
    assert world.begun == ["1", "stop"]
    world.order.pause()
    assert world.order
    assert world.order.is_clear("m")
    world.order.go_on()
    assert not world.order


@pytest.mark.fault(29)
def test_thousands_that_waited_begin_in_turns_and_all_that_come_meanwhile_behind_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)
    world.hold("1", "m", DOUBT)
    for name in ("2", "3"):
        world.hold(name, "m")
    for name in ("a", "b"):
        world.hold(name, None)
    world.looking.answer()
    assert world.begun == ["1", "2"]
    assert not world.order.is_clear("m")
    world.hold("c", None)
    world.hold("4", "m")
    next(world.looking.rests[0])
    assert world.begun == ["1", "2", "3"]
    with pytest.raises(StopIteration):
        next(world.looking.rests.pop(0))
    assert world.begun == ["1", "2", "3", "a"]
    assert world.order, "what comes now is to wait"
    world.hold("d", None)
    world.looking.take_turns()
    assert world.begun == ["1", "2", "3", "a", "b", "c", "4", "d"]
    assert not world.order
    assert world.order.is_clear("m")


def test_thousands_behind_an_op_begin_when_it_has(world: World) -> None:
    world.hold("1", "m", DOUBT)
    world.hold("stop", None)
    for number in range(5000):
        world.hold(f"{number}", "n")
    world.looking.answer()
    world.looking.take_turns()
    assert world.begun == ["1", "stop", *map(str, range(5000))]


STEPS = st.lists(
    st.tuples(st.sampled_from(["m", "n", None]), st.booleans())
    | st.sampled_from(["answer", "refuse", "leave", "turns"]),
    max_size=30,
)


@pytest.mark.parametrize("turn_s", [0, turns.TURN_S])
@given(steps=STEPS)
def test_each_begins_once_and_in_order(
    turn_s: float, steps: list[tuple[str | None, bool] | str]
) -> None:
    with mock.patch.object(turns, "TURN_S", turn_s):
        _each_begins_once_and_in_order(steps)


def _each_begins_once_and_in_order(steps: list[tuple[str | None, bool] | str]) -> None:
    world = World()
    asked: list[str | None] = []
    held: dict[str, Held] = {}
    left: set[str] = set()
    for step in steps:
        match step:
            case (module, doubtful):
                name = str(len(asked))
                asked.append(module)
                clear = not world.order if module is None else world.order.is_clear(module)
                doubt = DOUBT if doubtful and module is not None else None
                if clear and doubt is None:
                    world.begun.append(name)
                else:
                    held[name] = world.hold(name, module, doubt)
            case "leave" if held:
                name = next(iter(held))
                if held[name].begin is not None:
                    left.add(name)
                held.pop(name).leave()
            case "answer" if world.looking.waiting:
                world.looking.answer()
            case "refuse" if world.looking.waiting:
                world.looking.answer(Problem("", "is wrong"))
            case "turns":
                world.looking.take_turns()
    world.looking.finish()
    assert not world.order
    ended = [*world.begun, *world.refused, *left]
    assert sorted(map(int, ended)) == list(range(len(asked)))
    for module in ("m", "n"):
        begun = [int(one) for one in world.begun if asked[int(one)] in (module, None)]
        assert begun == sorted(begun)
