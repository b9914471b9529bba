"""Checks of args in processes of the daemon's own: whose turn it is, and what ends a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trio
from trio.testing import MockClock

from protocol.args_schema import ArgsValidator, OpSchema
from protocol.problem import Problem
from protocol.weight import MOST_VALUES
from supervisor.runtime.checking import checks as checks_module
from supervisor.runtime.checking.checker import Checker, Unchecked, checker
from supervisor.runtime.checking.checks import PROCESSES, Checks, Verdict
from supervisor.runtime.checking.contract import SIZES, command
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.supervision.deadlines import Deadlines
from tests.bounds import until
from tests.factories import open_files, opened_since
from tests.runtime.containment.lifelines import letter
from tests.runtime.containment.tracer import Tracer

EVIL = {"properties": {"a": {"pattern": "^(a+)+$"}}}
SLOW = {"a": "a" * 60 + "!"}
BOUND_S = 60
ANY = OpSchema(b"{}", vouched=True)


@asynccontextmanager
async def process() -> AsyncIterator[Checker]:
    async with checker(Custody.bare()) as one:
        yield one


def hurried(lifeline: int) -> list[str]:
    """Return a command that gives a schema an eighth of its time: 4 s are enough for large ones."""
    hurry = "from supervisor.runtime.checking import program; program.SCHEMA_CPU_S = 0.5; main("
    return [word.replace("main(", hurry) for word in command(lifeline)]


@asynccontextmanager
async def without_jsonschema() -> AsyncIterator[Checker]:
    """Have a process in which jsonschema fails, whatever it is asked."""
    fail = "from supervisor.runtime.checking import program; "
    fail += "program.CompiledSchema.problem = lambda *_: 1 / 0; main("

    def failing(lifeline: int) -> list[str]:
        return [word.replace("main(", fail) for word in command(lifeline)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("supervisor.runtime.checking.checker.command", failing)
        async with process() as one:
            yield one


async def check(one: Checker, schema: Any, args: Any, *, vouched: bool = True) -> Verdict:
    return await one.check(
        OpSchema(msgspec.json.encode(schema), vouched), msgspec.json.encode(args)
    )


async def test_a_process_says_what_is_wrong_and_where_as_often_as_it_is_asked() -> None:
    async with process() as one:
        for _ in range(3):
            assert await check(one, EVIL, {"a": "aaa"}) is None
            found = await check(one, EVIL, {"a": "b"})
            assert found == Problem("/a", "\"b\" does not match '^(a+)+$'")


@pytest.mark.fault(29)
async def test_a_check_without_end_ends_with_its_process_and_leaves_nothing() -> None:
    before = open_files()
    async with process() as one:
        verdict = await check(one, EVIL, SLOW)
        assert isinstance(verdict, Unchecked)
        assert "more than 1 s" in verdict.why
    assert not psutil.pid_exists(one.pid)
    assert not opened_since(before)


@pytest.mark.fault(26)
async def test_who_stops_the_process_is_named_and_not_the_args(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("supervisor.runtime.checking.checker.WALL_S", 0.01)
    async with process() as one:
        os.kill(one.pid, signal.SIGSTOP)
        await trio.to_thread.run_sync(until, lambda: letter(one.pid) == "T", "its being stopped")
        verdict = await check(one, EVIL, {"a": "a"})
        assert verdict == Unchecked(f"the process that looks at them (pid {one.pid}) is stopped")
    async with process() as one:
        with Tracer(one.pid) as tracer:
            verdict = await check(one, EVIL, {"a": "a"})
            assert isinstance(verdict, Unchecked)
            assert verdict.why.endswith(f" (pid {tracer.pid}), which traces it")


@pytest.mark.fault(29)
async def test_what_takes_more_memory_than_it_may_is_refused_and_the_process_lives() -> None:
    async with process() as one:
        verdict = await check(one, {"items": {"type": "null"}}, [[[[]]]] * 3_000_000)
        assert isinstance(verdict, Problem | Unchecked)
        if isinstance(verdict, Problem):
            assert await check(one, EVIL, {"a": "aaa"}) is None


@pytest.mark.fault(29)
async def test_what_a_module_described_is_looked_at_here_too_and_may_be_no_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("supervisor.runtime.checking.checker.command", hurried)
    async with process() as one:
        assert await check(one, {"type": "strin"}, {"a": "b"}, vouched=False) is None
        found = await check(one, EVIL, {"a": "b"}, vouched=False)
        assert found == Problem("/a", "\"b\" does not match '^(a+)+$'")
        alternatives = [
            {"properties": {f"p{n}": {"oneOf": [{"pattern": "^a"}]}}} for n in range(9000)
        ]
        verdict = await check(one, {"anyOf": alternatives}, {"a": "b"}, vouched=False)
        assert isinstance(verdict, Unchecked)  # its schema alone takes too long


@pytest.mark.fault(29)
async def test_args_of_very_many_values_are_checked_without_jsonschema() -> None:
    schema = {"properties": {"n": {"items": {"type": "integer", "minimum": 0, "maximum": 9}}}}
    good = {"n": [1] * MOST_VALUES}
    assert not ArgsValidator({"op": schema}).accepts("op", good)
    async with without_jsonschema() as one:
        assert await check(one, schema, good) is None
        found = await check(one, schema, {"n": [1, 10]})
        assert found == Problem("", "cannot be validated: ZeroDivisionError")


async def test_what_a_check_trips_over_is_refused() -> None:
    async with process() as one:
        verdict = await check(one, {"type": "nothing"}, {})  # never let through to here
        assert verdict == Problem("", "cannot be validated: KeyError")


def test_the_program_needs_neither_trio_nor_logging() -> None:
    program = (
        "import sys; import supervisor.runtime.checking.program; "
        "assert not {'trio', 'structlog', 'asyncio'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.fault(29)
def test_it_dies_with_the_daemon_in_the_midst_of_a_check() -> None:
    theirs, ours = os.pipe()
    schema, args = msgspec.json.encode(EVIL), msgspec.json.encode(SLOW)
    # A check that takes for ever even for the kernel: the timer is stopped by its own hand.
    with subprocess.Popen(
        command(theirs), stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[theirs]
    ) as popen:
        assert popen.stdin is not None
        assert popen.stdout is not None
        os.close(theirs)
        quick = msgspec.json.encode({"a": "b"})
        popen.stdin.write(SIZES.pack(len(schema), len(quick), True) + schema + quick)
        popen.stdin.flush()
        assert popen.stdout.readline()
        popen.stdin.write(SIZES.pack(len(schema), len(args), True) + schema + args)
        popen.stdin.flush()
        os.close(ours)
        # By the daemon's end, and not by the time that one check may take.
        assert popen.wait(BOUND_S) == -signal.SIGIO


class Fake:
    """A process that answers when it is told to."""

    def __init__(self, made: Callable[[Fake], None]) -> None:
        self.pid = 0
        self.ended = False
        self.asked: list[bytes] = []
        self._answer: Verdict = None
        self._go_on = trio.Event()
        made(self)

    async def check(self, schema: OpSchema, args: bytes) -> Verdict:
        self.asked.append(args)
        self._go_on = trio.Event()
        await self._go_on.wait()
        return self._answer

    async def answer(self, verdict: Verdict = None) -> None:
        self._answer = verdict
        self._go_on.set()
        await trio.testing.wait_all_tasks_blocked()


class World:
    """Checks with fake processes, under a virtual clock."""

    def __init__(self, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Fake] = []
        self.told: list[tuple[str, Verdict]] = []
        deadlines = Deadlines()
        self.checks = Checks(Custody.bare(), deadlines)
        monkeypatch.setattr(checks_module, "checker", self._checker)
        nursery.start_soon(deadlines.run)
        nursery.start_soon(self.checks.run)

    @asynccontextmanager
    async def _checker(self, *_: object) -> AsyncIterator[Fake]:
        yield Fake(self.made.append)

    def ask(self, party: str, what: str) -> Any:
        return self.checks.ask(party, ANY, what.encode(), lambda v: self.told.append((what, v)))

    @property
    def asked(self) -> list[list[bytes]]:
        return [one.asked for one in self.made]


@pytest.fixture
async def world(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(nursery, monkeypatch)
    await trio.testing.wait_all_tasks_blocked()
    return made


OVERRUN = Unchecked("it took too long")


async def test_nothing_is_started_before_there_is_something_to_check(
    world: World, autojump_clock: MockClock
) -> None:
    assert world.made == []


@pytest.mark.fault(29)
async def test_each_party_has_its_turn_and_one_check_at_a_time(
    world: World, autojump_clock: MockClock
) -> None:
    for what in ("a1", "a2", "a3"):
        world.ask("a", what)
    world.ask("b", "b1")
    await trio.testing.wait_all_tasks_blocked()
    (first,) = world.made
    for _ in range(4):
        await first.answer()
    assert first.asked == [b"a1", b"b1", b"a2", b"a3"]
    assert world.told == [("a1", None), ("b1", None), ("a2", None), ("a3", None)]


@pytest.mark.fault(29)
async def test_who_waits_for_a_slow_one_gets_a_process_of_his_own(
    world: World, autojump_clock: MockClock
) -> None:
    world.ask("a", "a1")
    world.ask("a", "a2")
    await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(1)
    assert world.asked == [[b"a1"]]  # his own next one waits
    world.ask("b", "b1")
    await trio.sleep(1)
    assert world.asked == [[b"a1"], [b"b1"]]


@pytest.mark.fault(29)
async def test_those_who_took_too_long_never_have_the_last_process(
    world: World, autojump_clock: MockClock
) -> None:
    for party in ("a", "b"):
        world.ask(party, f"{party}1")
        await trio.testing.wait_all_tasks_blocked()
        await world.made[-1].answer(OVERRUN)
    world.ask("a", "a2")
    world.ask("b", "b2")
    await trio.sleep(1)
    assert world.asked[2:] == [[b"a2"]]
    world.ask("c", "c1")
    await trio.sleep(1)
    assert world.asked[2:] == [[b"a2"], [b"c1"]]
    assert PROCESSES == 2
    await world.made[-2].answer()
    assert world.asked[2:] == [[b"a2", b"b2"], [b"c1"]]


async def test_a_process_that_was_killed_is_followed_by_another(
    world: World, autojump_clock: MockClock
) -> None:
    world.ask("a", "a1")
    world.ask("b", "b1")
    await trio.testing.wait_all_tasks_blocked()
    await world.made[0].answer(OVERRUN)
    assert world.asked == [[b"a1"], [b"b1"]]
    assert world.told == [("a1", OVERRUN)]


async def test_one_that_died_while_it_had_nothing_to_do_costs_nobody_an_answer(
    world: World, autojump_clock: MockClock
) -> None:
    world.ask("a", "a1")
    await trio.testing.wait_all_tasks_blocked()
    await world.made[0].answer()
    world.made[0].ended = True
    world.ask("a", "a2")
    world.ask("a", "a3")
    await trio.testing.wait_all_tasks_blocked()
    await world.made[1].answer()
    await world.made[1].answer()
    assert world.asked == [[b"a1"], [b"a2", b"a3"]]
    assert world.told == [("a1", None), ("a2", None), ("a3", None)]


async def test_a_process_that_nobody_needs_any_more_ends(
    world: World, autojump_clock: MockClock
) -> None:
    world.ask("a", "a1")
    await trio.testing.wait_all_tasks_blocked()
    await world.made[0].answer()
    await trio.sleep(checks_module.IDLE_S * 2)
    world.ask("a", "a2")
    await trio.testing.wait_all_tasks_blocked()
    assert world.asked == [[b"a1"], [b"a2"]]


async def test_what_is_dropped_is_told_to_nobody_and_not_begun(
    world: World, autojump_clock: MockClock
) -> None:
    begun, waiting = world.ask("a", "a1"), world.ask("a", "a2")
    await trio.testing.wait_all_tasks_blocked()
    begun.drop()
    waiting.drop()
    waiting.drop()
    await world.made[0].answer()
    world.ask("a", "a3")
    await trio.testing.wait_all_tasks_blocked()
    await world.made[0].answer()
    assert world.asked == [[b"a1", b"a3"]]
    assert world.told == [("a3", None)]


@pytest.mark.fault(29)
async def test_what_waits_is_bounded_in_number_and_in_bytes(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks_module, "WAITING", 3)
    world.ask("a", "a1")
    await trio.testing.wait_all_tasks_blocked()
    assert [world.ask("a", "a") is not None for _ in range(4)] == [True, True, True, False]
    monkeypatch.setattr(checks_module, "WAITING", 1000)
    monkeypatch.setattr(checks_module, "WAITING_BYTES", 20)
    assert world.ask("b", "b" * 20) is None
    assert world.ask("b", "b") is not None


async def test_at_the_end_those_who_wait_are_told_and_nobody_is_taken_in(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, monkeypatch)
        await trio.testing.wait_all_tasks_blocked()
        world.ask("a", "a1")
        world.ask("a", "a2")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    stopping = Unchecked("the daemon is stopping")
    assert sorted(world.told) == [("a1", stopping), ("a2", stopping)]
    assert world.ask("a", "a3") is None


async def test_where_no_process_can_be_started_nobody_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    told: list[Verdict] = []
    done = trio.Event()

    def tell(verdict: Verdict) -> None:
        told.append(verdict)
        done.set()

    checks = Checks(Custody.bare(), Deadlines())
    with trio.fail_after(BOUND_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checks.run)
            checks.ask("a", ANY, b"{}", tell)
            await done.wait()
            nursery.cancel_scope.cancel()
    (verdict,) = told
    assert isinstance(verdict, Unchecked)
    assert "no process that looks at them could be started: No such file" in verdict.why
