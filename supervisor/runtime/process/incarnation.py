"""One process from its first byte to its last: its pumps (`pipes`), exit watch, stop ladder.

The order at the end is the design (docs/architecture.md). The pidfd says that the leader has ended;
then

1. the pumps and the ladder are cancelled: an exit ends every escalation;
2. the rest of the containment is killed while the leader is still unreaped, so its number is safe;
3. what the leader left in the pipes is read, as much as FIONREAD says and no more: a grandchild
   that holds a pipe open is not waited for;
4. those who were killed are seen gone, within a bound; who is left is named in the exit;
5. the leader is reaped and everything is closed. While a tracer keeps it from being reaped
   (`reaping`), the receiver is told how it ended and by whom it is held, and it is tried again.

The stop ladder: end of stdin, wait `exit_s`; SIGTERM and SIGCONT to the containment, wait `stop_s`;
SIGKILL to all of it. A process that survives that (uninterruptible in the kernel), and a dead one
that can't be reaped, keep their place: starting another would make two.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgspec
import structlog
import trio

from protocol.descriptor.model import Timeouts
from protocol.transcript import EntrySource, Happened
from supervisor.policy.verdict import Breach, Exit, unset_remark
from supervisor.runtime.containment.reaping import REAP_AGAIN_S, End
from supervisor.runtime.files.module_log import ModuleLog, Stderr
from supervisor.runtime.process.dialogue import Dialogue, Receiver
from supervisor.runtime.process.pipes import Pump
from supervisor.runtime.process.process import Process

UNKILLABLE_AFTER_S = 5.0
"""A killed process is gone within milliseconds; after this long its name goes into the log."""

EXIT_FOLLOWS_S = 0.25
"""A dying process closes its pipes before its exit can be seen; so an end of a pipe is taken for
the choice of a living process only when no exit has followed."""

ABANDON_AFTER_S = 10.0
"""How long a cancelled incarnation may wait for its killed process before it gives up."""

PART_AFTER_S = 1.0
"""How long a daemon that ends waits for a killed process that a tracer holds."""

log = structlog.get_logger()


class StopStep(IntEnum):
    END_OF_INPUT = 0
    TERMINATE = 1
    KILL = 2


class Incarnation:
    """A spawned process and its connection; `run` returns when nothing is left of it."""

    def __init__(
        self,
        process: Process,
        dialogue: Dialogue,
        module_log: ModuleLog,
        timeouts: Timeouts,
        *,
        parting: Callable[[], bool] = lambda: False,
    ) -> None:
        """Speak with a spawned process; `parting` says whether the daemon is ending."""
        self.instance = instance = dialogue.instance
        self.pid = dialogue.pid = process.pid
        self.containment = process.containment
        self.unset_variables = process.unset_variables
        self._breach: Breach | None = None
        self.started_at = trio.current_time()
        self.stderr = Stderr(instance, module_log)
        self._process = process
        self.dialogue = dialogue
        self._timeouts = timeouts
        self._stopping = False
        self._parting = parting
        self.is_held = False
        """Whether it is dead and cannot be reaped."""
        self._is_left = False
        """Whether it is left to the guardian: killed, and kept by a tracer from dying."""
        self._nursery: trio.Nursery | None = None
        self._hurry = trio.Event()
        self._first_rung = StopStep.END_OF_INPUT
        self._taps = taps = dialogue.taps
        self._stdout = Pump(
            instance,
            process.stdout,
            EntrySource.MODULE,
            taps,
            take=dialogue.receive_data,
            is_full=dialogue.receiver.congested,
        )
        self._stderr = Pump(
            instance, process.stderr, EntrySource.STDERR, taps, take=self.stderr.feed
        )

    @property
    def mid_line(self) -> bool:
        return self.dialogue.unfinished_line is not None

    @property
    def exited(self) -> bool:
        """Whether the process has ended, even if nobody has taken note yet."""
        return self.is_held or self._process.exited

    @property
    def uptime_s(self) -> float:
        return trio.current_time() - self.started_at

    def evidence(self) -> dict[str, Any]:
        tracer = self._process.tracer
        return {
            "instance": self.instance,
            "pid": self.pid,
            "uptime_s": round(self.uptime_s, 3),
            "stderr_tail": self.stderr.tail(),
            "traced_by": None if tracer is None else msgspec.structs.asdict(tracer),
        }

    def hand_over(self, receiver: Receiver) -> None:
        """Tell another receiver, which decides from now on whether stdout is read."""
        self.dialogue.receiver = receiver
        self._stdout.is_full = receiver.congested

    def nudge(self) -> None:
        """Let a paused reader look again whether there is room."""
        self._stdout.nudge()

    def stop(self, rung: StopStep = StopStep.END_OF_INPUT) -> None:
        """Begin the stop ladder at a rung, or climb on to it if it has begun."""
        if self.is_held:
            return  # it is dead, and of something else
        self._first_rung = max(self._first_rung, rung)
        if not self._stopping and self._nursery is not None:
            self._nursery.start_soon(self._climb_down)
        self._stopping = True
        if rung is StopStep.KILL:
            self._hurry.set()

    def breach(self, breach: Breach) -> None:
        """End it for a limit that it passed; the first one is the reason."""
        self._breach = self._breach or breach
        self.stop(StopStep.KILL)

    async def run(self, asked: trio.Event | None = None) -> Exit:
        """Speak with the process until it has ended; the last lines are received before that.

        With `asked`, stdout is left in the pipe until that is set, or the process has ended.
        """
        with self._taps.of_process(self):
            try:
                return await self._run(asked)
            finally:
                self.dialogue.end()

    async def remove_container(self, exit_: Exit) -> Exit:
        """Remove the container that its command ran, if any; returns the exit, naming one left."""
        remove = self._process.remove_container
        left = "" if remove is None else await remove()
        return msgspec.structs.replace(exit_, remark=exit_.remark + left) if left else exit_

    async def _run(self, asked: trio.Event | None) -> Exit:
        ended = False
        exit_ = Exit()
        try:
            self.dialogue.begin(self._process)
            if not self._process.exited:  # a quick tool may have said all there is in the meantime
                await self._listen(asked)
            ended = True
        finally:
            if self._is_left:
                exit_ = self._exit(End(), (self.pid,))
                self.dialogue.exited(None)
            elif ended or await self._kill():
                exit_ = await self._process.ends.serve(self._finish(), "its end", self.instance)
        return exit_

    async def _listen(self, asked: trio.Event | None) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stdout.run, self._stdout_ended, asked)
            nursery.start_soon(self._stderr.run, self._stderr_ended)
            if self._process.stdin is not None:
                nursery.start_soon(self._write_stdin)
            if self._stopping:
                nursery.start_soon(self._climb_down)
            self._nursery = nursery  # `stop` starts the ladder there; most never need one
            try:
                await self._process.wait_exited()
            finally:
                self._nursery = None
            nursery.cancel_scope.cancel()

    async def _finish(self) -> Exit:
        await self._process.kill()
        survivors: tuple[int, ...] = ()
        try:
            await self._stdout.take_rest()
            self.dialogue.receive_eof()
            await self._stderr.take_rest()
            self.stderr.finish()
            counted = self.containment.memory_breach()
            if counted is not None:
                self._breach = Breach("memory_bytes", *counted, by_kernel=True)
        finally:
            survivors = await self._process.kill_the_rest()
            end = self._process.reap()
            if end is None:
                end = await self._until_reaped(survivors)
        if survivors:
            log.error("processes cannot be killed", instance=self.instance, pids=survivors)
        exit_ = self._exit(end, survivors)
        self._taps.exited(self.instance, exit_)
        if not self.is_held:
            self.dialogue.exited(exit_.exit_code)
        return exit_

    def _exit(self, end: End, survivors: tuple[int, ...]) -> Exit:
        return Exit(
            exit_code=end.exit_code,
            signal=end.signal,
            instance=self.instance,
            pid=self.pid,
            uptime_s=round(self.uptime_s, 3),
            stderr_tail=tuple(self.stderr.tail()),
            survivors=survivors,
            breach=self._breach,
            stopped_by_host=self._stopping,
            traced_by=self._process.tracer,
            remark="" if self._stopping else unset_remark(self.unset_variables),
        )

    async def _until_reaped(self, survivors: tuple[int, ...]) -> End:
        """Try again until the dead leader can be reaped; it keeps its place for as long."""
        self.is_held = True
        exit_ = self._exit(self._process.end, survivors)
        known = {"instance": self.instance, "pid": self.pid, "words": exit_.words}
        known["traced_by"] = exit_.traced_by.words if exit_.traced_by else None
        log.warning("a dead process cannot be reaped", **known)
        end: End | None = None
        try:
            self.dialogue.exited(exit_.exit_code)
            self.dialogue.receiver.held(exit_)
            part_at = math.inf
            while end is None and trio.current_time() < part_at:
                if self._parting():
                    part_at = min(part_at, trio.current_time() + PART_AFTER_S)
                await trio.sleep(REAP_AGAIN_S)
                end = self._process.reap()
        finally:
            if end is None:
                self._process.abandon()
                log.error("left behind: a dead process that could not be reaped", **known)
        return end or End(exit_.exit_code, exit_.signal)

    async def _kill(self) -> bool:
        await self._process.kill()
        with trio.move_on_after(ABANDON_AFTER_S, shield=True):
            # One that /proc calls dead can be reaped a moment later, unless a tracer holds it.
            while not self._process.exited and not self._process.is_held:
                with trio.move_on_after(REAP_AGAIN_S):
                    await self._process.wait_exited()
            return True
        self._tell_unkillable()
        return False

    def _tell_unkillable(self) -> None:
        tracer = self._process.tracer
        known = {} if tracer is None else {"traced_by": tracer.words}
        log.error("process cannot be killed", instance=self.instance, pid=self.pid, **known)

    async def _stdout_ended(self) -> None:
        self._taps.happened(self.instance, Happened.EOF)
        self.dialogue.receive_eof()
        await trio.sleep(EXIT_FOLLOWS_S)
        if not self._died_unseen():
            self.dialogue.receiver.stdout_closed()

    async def _stderr_ended(self) -> None:
        self.stderr.finish()

    async def _write_stdin(self) -> None:
        if not await self.dialogue.write_rest():
            await trio.sleep(EXIT_FOLLOWS_S)
            if not self._died_unseen():
                self.dialogue.receiver.stdin_broken()

    async def _climb_down(self) -> None:
        if self._first_rung <= StopStep.END_OF_INPUT:
            self.dialogue.close_stdin()
            await self._pause(self._timeouts.exit_s)
        if self._first_rung <= StopStep.TERMINATE:
            # A stopped process takes its SIGTERM only once it is continued.
            await self._process.signal(signal.SIGTERM, signal.SIGCONT)
            await self._pause(self._timeouts.stop_s)
        await self._process.kill()
        killed_at = trio.current_time()
        tell_at = killed_at + UNKILLABLE_AFTER_S
        while not self._died_unseen():
            await trio.sleep(REAP_AGAIN_S)
            if trio.current_time() > killed_at + PART_AFTER_S and self._parting():
                self._leave_if_traced()
            if trio.current_time() > tell_at:
                self._tell_unkillable()
                tell_at = math.inf

    def _leave_if_traced(self) -> None:
        # A tracer may stop it on its way out (PTRACE_EVENT_EXIT), where it hears no SIGKILL.
        tracer = self._process.tracer
        if tracer is None or self._nursery is None:
            return
        self._is_left = True
        known = {"instance": self.instance, "pid": self.pid, "traced_by": tracer.words}
        log.error("left behind: a killed process that a tracer keeps from dying", **known)
        self._nursery.cancel_scope.cancel()

    def _died_unseen(self) -> bool:
        """End the listening if the process is dead and its pidfd does not say so (`reaping`)."""
        if self._nursery is None or not self._process.is_dead:
            return False
        self._nursery.cancel_scope.cancel()
        return True

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._hurry.wait()
