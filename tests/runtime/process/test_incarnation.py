"""The stop ladder and the end of a process, with real processes and pipes as their clock."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from protocol.connection import NOTHING, Events, Received, Unanswered
from protocol.descriptor.model import Descriptor, Timeouts
from protocol.dialects.module import ModuleConnection
from supervisor.policy.verdict import Exit
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.files.module_log import ModuleLog
from supervisor.runtime.process.incarnation import Incarnation, Receiver, StopStep
from supervisor.runtime.process.process import Process
from supervisor.runtime.process.spawning import spawn
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.taps import Taps
from supervisor.runtime.turns import LINES_AT_ONCE, PIECES_A_TURN
from tests.factories import PYTHON, call, children, descriptor, open_files, opened_since
from tests.runtime.process.stage import Passes

NEVER_S = 1000.0


class Ear(Receiver):
    """Keeps what a process said; the test can wait for it."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.most_at_once = 0
        self.closed: list[str] = []
        self.slow = self.tires = False
        self.heard = trio.Event()
        self.cut_off = trio.Event()

    def receive(self, events: Events) -> None:
        self.received += events
        self.most_at_once = max(self.most_at_once, len(events))
        if events:
            self.slow = self.tires
            self.heard.set()

    def congested(self) -> bool:
        return self.slow

    def stdout_closed(self) -> None:
        self.closed.append("stdout")
        self.cut_off.set()

    def stdin_broken(self) -> None:
        self.closed.append("stdin")
        self.cut_off.set()

    def held(self, end: Exit) -> None:
        raise AssertionError(end)


class Started:
    def __init__(self, incarnation: Incarnation, ear: Ear) -> None:
        self.incarnation, self.ear = incarnation, ear
        self.pid = incarnation.pid or 0
        self.exit: Exit | None = None
        self.ended = trio.Event()

    async def run(self) -> None:
        self.exit = await self.incarnation.run()
        self.ended.set()


def incarnation_of(
    host: Host,
    process: Process,
    made: Descriptor,
    receiver: Receiver,
    *,
    exit_s: float = NEVER_S,
    stop_s: float = NEVER_S,
) -> Incarnation:
    """Hold a process in the dialect `module`, whose start nobody waits for."""
    incarnation = Incarnation(
        "m#1",
        Unstarted(made, str, {}),
        receiver,
        module_log=ModuleLog("m", host.log_files, host.wall_clock),
        timeouts=Timeouts(exit_s=exit_s, stop_s=stop_s),
        deadlines=host.deadlines,
        taps=Taps(),
    )
    incarnation.spawned(process)
    return incarnation


class Unstarted(ModuleConnection):
    """A connection without a handshake."""

    def start(self) -> Events:
        return NOTHING


@asynccontextmanager
async def started(
    host: Host,
    folder: Path,
    code: str,
    *,
    exit_s: float = NEVER_S,
    stop_s: float = NEVER_S,
    registry: ProcessRegistry | None = None,
) -> AsyncIterator[Started]:
    """Run Python code that says a line when it is set up; wait for that."""
    made = descriptor(folder, [*PYTHON, "-c", "import os, signal, sys, time\n" + code])
    process = await spawn(made, os.environ, "m#1", registry or ProcessRegistry.bare())
    ear = Ear()
    incarnation = incarnation_of(host, process, made, ear, exit_s=exit_s, stop_s=stop_s)
    one = Started(incarnation, ear)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await one.ear.heard.wait()
        yield one
        nursery.cancel_scope.cancel()


READY = 'print(\'{"set":"up"}\', flush=True)\n'
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
FOREVER = "while True: signal.pause()\n"


async def test_a_polite_process_ends_with_its_input(host: Host, tmp_path: Path) -> None:
    async with started(host, tmp_path, READY + "sys.stdin.read(); sys.exit(7)") as one:
        one.incarnation.stop()
        await one.ended.wait()
    assert one.exit is not None
    assert (one.exit.exit_code, one.exit.signal, one.exit.instance) == (7, None, "m#1")


@pytest.mark.parametrize("last_words", ["sys.stdin.read()", "pass"], ids=["living", "dying"])
async def test_a_chunk_of_many_lines_is_taken_in_turns(
    host: Host, tmp_path: Path, last_words: str
) -> None:
    lines = 40_000
    junk = f"os.write(1, b'x\\n' * 20_000)\nos.write(1, b'x\\n' * {lines - 20_000})\n{last_words}"
    async with started(host, tmp_path, READY + junk) as one:
        while len(one.ear.received) <= lines:
            one.ear.heard = trio.Event()
            await one.ear.heard.wait()
        one.incarnation.stop()
        await one.ended.wait()
    assert len(one.ear.received) == lines + 1
    assert one.ear.most_at_once <= PIECES_A_TURN * LINES_AT_ONCE + 1


async def test_one_that_ignores_the_end_of_its_input_is_terminated(
    host: Host, tmp_path: Path
) -> None:
    async with started(host, tmp_path, READY + FOREVER, exit_s=0.0) as one:
        one.incarnation.stop()
        await one.ended.wait()
    assert one.exit is not None
    assert one.exit.signal == signal.SIGTERM


async def test_one_that_ignores_sigterm_is_killed(host: Host, tmp_path: Path) -> None:
    async with started(host, tmp_path, IGNORE + READY + FOREVER, exit_s=0.0, stop_s=0.0) as one:
        one.incarnation.stop()
        await one.ended.wait()
    assert one.exit is not None
    assert one.exit.signal == signal.SIGKILL


async def test_a_first_rung_leaves_out_those_below_it(host: Host, tmp_path: Path) -> None:
    async with started(host, tmp_path, READY + FOREVER) as one:
        one.incarnation.stop(StopStep.TERMINATE)  # with the bound of the rung below at NEVER_S
        await one.ended.wait()
    assert one.exit is not None
    assert one.exit.signal == signal.SIGTERM


async def test_a_kill_cuts_a_stop_short(host: Host, tmp_path: Path) -> None:
    code = IGNORE + READY + "sys.stdin.read(); print('{}', flush=True)\n" + FOREVER
    async with started(host, tmp_path, code) as one:
        one.ear.heard = trio.Event()
        one.incarnation.stop()
        await one.ear.heard.wait()  # it has seen the end of its input and stays
        one.incarnation.stop(StopStep.KILL)
        one.incarnation.stop(StopStep.KILL)
        await one.ended.wait()
    assert one.exit is not None
    assert one.exit.signal == signal.SIGKILL


async def test_a_stopped_process_is_continued_to_take_its_sigterm(
    host: Host, tmp_path: Path
) -> None:
    bye = "signal.signal(signal.SIGTERM, lambda *_: os._exit(5))\n"
    async with started(host, tmp_path, bye + READY + FOREVER) as one:
        os.kill(one.pid, signal.SIGSTOP)
        one.incarnation.stop(StopStep.TERMINATE)
        await one.ended.wait()
    assert one.exit is not None
    assert one.exit.exit_code == 5


async def test_a_stopped_process_can_be_killed(host: Host, tmp_path: Path) -> None:
    async with started(host, tmp_path, READY + FOREVER) as one:
        os.kill(one.pid, signal.SIGSTOP)
        one.incarnation.stop(StopStep.KILL)
        await one.ended.wait()
    assert one.exit is not None
    assert one.exit.signal == signal.SIGKILL


@pytest.mark.fault(25)
async def test_a_cancelled_incarnation_kills_and_reaps(host: Host, tmp_path: Path) -> None:
    before = open_files()
    async with started(host, tmp_path, IGNORE + READY + FOREVER):
        assert len(children()) == 1
    assert children() == []
    assert not opened_since(before)


@pytest.mark.fault(1)
async def test_an_exit_is_seen_while_a_grandchild_holds_the_pipes(
    host: Host, tmp_path: Path
) -> None:
    code = READY + "os.write(1, b'{\"last\":1}')\nos.write(2, b'bye')\n"
    code += "if os.fork() == 0: signal.pause()\nos._exit(3)"
    async with started(host, tmp_path, code) as one:
        await one.ended.wait()
        assert children() == []
    assert one.exit is not None
    assert one.exit.exit_code == 3
    assert one.exit.stderr_tail == ("bye",)
    assert len(one.ear.received) == 2  # the line without its newline too
    assert one.ear.closed == []


async def test_the_end_of_a_process_is_not_taken_for_the_choice_to_close_its_pipes(
    host: Host, tmp_path: Path
) -> None:
    async with started(host, tmp_path, READY + "os._exit(4)") as one:
        one.incarnation.ask(call(text="x" * 1_000_000)[0].request, busy=True)
        await one.ended.wait()
    assert one.ear.closed == []


@pytest.mark.parametrize(("number", "name"), [(1, "stdout"), (0, "stdin")])
async def test_a_pipe_that_a_living_process_closes_is_reported(
    host: Host, tmp_path: Path, number: int, name: str
) -> None:
    code = READY + f"os.close({number})\nos.write(2, b'closed\\n')\n" + FOREVER
    async with started(host, tmp_path, code) as one:
        if name == "stdin":
            one.incarnation.ask(call(text="x" * 1_000_000)[0].request, busy=True)
        await one.ear.cut_off.wait()
        assert one.ear.closed == [name]
        assert one.exit is None


async def test_a_flood_on_stderr_before_the_first_word_is_no_deadlock(
    host: Host, tmp_path: Path
) -> None:
    code = "for _ in range(160): os.write(2, b'x' * 65536)\nos.write(2, b'the end')\n" + READY
    async with started(host, tmp_path, code + "sys.stdin.read()") as one:
        one.incarnation.stop()
        await one.ended.wait()
    assert one.exit is not None
    assert one.exit.exit_code == 0
    assert one.exit.stderr_tail[-1].endswith("the end")


async def test_a_receiver_that_cannot_keep_up_pauses_the_reading_until_it_is_nudged(
    host: Host, tmp_path: Path
) -> None:
    code = READY + "sys.stdin.readline()\n"
    code += "for n in range(50_000): os.write(1, b'{\"n\":1}\\n')\nos._exit(0)"
    async with started(host, tmp_path, code) as one:
        one.ear.tires = True
        one.ear.heard = trio.Event()
        one.incarnation.ask(call()[0].request, busy=True)
        await one.ear.heard.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert len(one.ear.received) <= 65536 // 8 + 1  # a pipe full; the process waits
        assert one.exit is None
        one.ear.tires = one.ear.slow = False
        one.incarnation.nudge()
        await one.ended.wait()
    lines = [item for item in one.ear.received if not isinstance(item, Unanswered)]
    assert len(lines) == 50_001


@pytest.mark.fault(29)
async def test_processes_that_end_in_one_moment_are_seen_to_a_few_at_a_time(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twenty took 50 ms of one turn of the event loop while a thread looked through /proc.
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)
    passes, ends = Passes(), Counter[int]()
    kill = Process.kill

    async def counted(process: Process) -> None:
        ends[passes.counted] += 1
        await kill(process)

    registry = ProcessRegistry.bare()
    async with AsyncExitStack() as running:
        many = [
            await running.enter_async_context(
                started(host, tmp_path, READY + FOREVER, registry=registry)
            )
            for _ in range(20)
        ]
        monkeypatch.setattr(Process, "kill", counted)
        trio.lowlevel.add_instrument(passes)
        for one in many:
            os.kill(one.pid, signal.SIGKILL)
            os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        for one in many:
            await one.ended.wait()
        trio.lowlevel.remove_instrument(passes)
    # Each kills twice: its group, then whoever it left.
    assert ends.total() == 2 * len(many)
    assert max(ends.values()) <= 4, ends
