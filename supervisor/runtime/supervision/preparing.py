"""A worker while its program is prepared: one process that is not spoken with, or a wait for that.

What it prints goes to the module's log. It has `prepare_s`; it ends by SIGTERM, then SIGKILL, as
all that is stopped at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from protocol.errors import Failure, Outcome, Reason
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input
from supervisor.runtime.process.incarnation import Incarnation, StopStep
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.supervision.life import Ended, Instance, Life, Setting
from supervisor.runtime.supervision.prepare_once import (
    PREPARED,
    begin_prepare,
    is_unprepared,
    note_prepared,
)

if TYPE_CHECKING:
    from supervisor.runtime.supervision.worker import Worker


class PreparingLife(Life):
    def __init__(self, setting: Setting, owner: Worker) -> None:
        self.id = setting.next_instance()
        self._setting = setting
        self._owner = owner
        self._incarnation: Incarnation | None = None
        self._waiting: trio.CancelScope | None = None
        self._stop_at: StopStep | None = None

    async def run(self) -> Ended:
        """Prepare, unless another worker does, or has done meanwhile."""
        shared = self._setting.preparation
        while is_unprepared(self._setting) and self._stop_at is None:
            if not shared.is_running:
                return await self._prepare_for_all()
            with trio.CancelScope() as self._waiting:
                failure = await shared.wait()
                if failure is not None:
                    return failure
        if self._stop_at is not None:
            return Ended("stopped", "was stopped before it was prepared")
        return Ended(PREPARED, "is prepared")

    async def _prepare_for_all(self) -> Ended:
        shared = self._setting.preparation
        shared.begin()
        failure: Ended | None = None
        try:
            ended = await self._prepare()
            # If it was this worker that did not want it any more, the next one begins anew.
            if ended.reason != PREPARED and self._stop_at is None:
                failure = ended
        finally:
            shared.end(failure)
        return ended

    async def _prepare(self) -> Ended:
        setting, host = self._setting, self._setting.host
        supervision = setting.descriptor.supervision
        try:
            self._incarnation = await begin_prepare(
                setting.descriptor,
                host.environment,
                self.id,
                host.custody,
                module_log=setting.log,
                deadlines=host.deadlines,
                parting=lambda: host.shutting_down,
            )
        except SpawnError as error:
            return Ended("spawn_failed", f"could not be prepared: {error}")
        setting.unset_variables[:] = self._incarnation.unset_variables
        if self._stop_at is not None:
            self._incarnation.stop(self._stop_at)
        timer = host.deadlines.after(supervision.timeouts.prepare_s, self._overdue)
        try:
            with host.sampler.watching(self._incarnation, supervision.limits):
                exit_ = await self._incarnation.run()
        finally:
            timer.cancel()
        if exit_.abnormal or self._stop_at is not None:
            program = setting.descriptor.transport.prepare[0]
            words = f"could not be prepared: {program} {exit_.words}{exit_.remark}"
            return Ended(str(exit_.reason), words, exit_)
        note_prepared(setting)
        return Ended(PREPARED, f"was prepared in {exit_.uptime_s:.3g} s", exit_)

    def _overdue(self) -> None:
        bound_s = self._setting.descriptor.supervision.timeouts.prepare_s
        words = f"was not prepared within {bound_s:g} s"
        self._owner.happened(
            self, Input.START_FAILED, words, Ended(str(Reason.START_DEADLINE), words)
        )

    def end(self, *, abrupt: bool) -> None:
        del abrupt
        self._stop(StopStep.TERMINATE)

    def hurry(self) -> None:
        self._stop(StopStep.KILL)

    def _stop(self, rung: StopStep) -> None:
        self._stop_at = rung if self._stop_at is None else max(rung, self._stop_at)
        if self._waiting is not None:
            self._waiting.cancel()
        if self._incarnation is not None:
            self._incarnation.stop(rung)

    async def ask(self, operation: Operation, timeout_s: float) -> Outcome:
        del operation, timeout_s
        return Failure.because(Reason.NOT_READY, f"{self.id} is being prepared")

    def instances(self) -> list[Instance]:
        one = self._incarnation
        if one is None:
            return []
        said = one.stderr.tail()
        return [Instance(self.id, one.pid, one.uptime_s, 0, last_line=said[-1] if said else None)]
