r"""One start of a persistent module: of one process, or of a second one that its dialect wants.

    begun --ready--> over
      |  \--fail, or the bound--> failed
      \--again--> (the process ends) --next_process--> begun, once

Whatever else is said of a start that is over, or waits for its second process, changes nothing.
What is known of it goes into the words about its end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from protocol.connection import ModuleLog, Notice, Quarantined, Stray, Violated, Warned
from protocol.errors import Reason
from supervisor.policy.lifecycle import Input
from supervisor.policy.verdict import Exit, unset_remark
from supervisor.runtime.process.dialogue import Dialogue, effort
from supervisor.runtime.process.preflight import obstacle
from supervisor.runtime.supervision.deadlines import Timer
from supervisor.runtime.supervision.life import Ended, Life, Setting

if TYPE_CHECKING:
    from supervisor.runtime.supervision.worker import Worker

START_DEADLINE = str(Reason.START_DEADLINE)

LATE = (
    "; it answered only when its stdin was closed: it does not flush its stdout after each line, "
    "or reads to the end of its input before it answers"
)

SLOW = "if it is only slow to begin, supervision.timeouts.{} allows more"

LOOK_S = 1.0
"""How long the end of a start waits for a look at its program."""


class StartAttempt:
    """How far a start has got; no handshake is without an end, whatever its dialect does."""

    def __init__(self, setting: Setting, life: Life, owner: Worker) -> None:
        self.failure: Ended | None = None
        self.again: str | None = None
        """Why it needs a second process, until that is there."""
        self.was_ready = False
        self.instead = ""
        """What was printed last in the place of an answer, as a clause."""
        self.warning: str | None = None
        """What was set aside or not understood last, and why; after the start, too."""
        self.was_mute = False
        """Whether nothing had been printed when its time was over."""
        timeouts = setting.descriptor.supervision.timeouts
        self._bound_s = timeouts.start_s + timeouts.describe_s
        self._bare_failure = self._passed_bound = ""
        self._setting = setting
        self._life = life
        self._owner = owner
        self._is_over = False
        self._is_second = False
        self._timer: Timer | None = None

    @property
    def is_open(self) -> bool:
        return not self._is_over and self.again is None

    @property
    def is_too_late(self) -> bool:
        """Whether it failed for its time."""
        return self.failure is not None and self.failure.reason == START_DEADLINE

    def begin(self, dialogue: Dialogue) -> None:
        """Bound it from now on, with the process of `dialogue`."""
        self._dialogue = dialogue

        def overdue() -> None:
            awaited = self._dialogue.waits_for
            words = f"was not ready within {self._bound_s:g} s"
            words += f"; it waited for {awaited}" if awaited else ""
            self.fail(Ended(START_DEADLINE, words), "start_s")

        if self._timer is None:
            self._timer = self._setting.host.deadlines.after(self._bound_s, overdue)

    def note_instead(self, item: Stray | Quarantined | ModuleLog | Warned | Violated) -> None:
        """Note what may have been meant as an answer."""
        match item:
            case Stray():
                self.instead = item.in_place_of_answer or self.instead
                self.warning = item.warning or self.warning
            case Quarantined(fault=fault) | Violated(fault=fault):
                self._note(Notice.of(fault))
            case Warned(notice=notice):
                self._note(notice)
            case ModuleLog():
                pass

    def _note(self, notice: Notice) -> None:
        self.instead = notice.in_place_of_answer or self.instead
        self.warning = notice.words

    def succeed(self, why: str) -> None:
        self.end()
        self.was_ready = True
        self._owner.happened(self._life, Input.STARTED, why)

    def end(self) -> None:
        """The module is ready, or not wanted any more; idempotent."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def fail(self, ended: Ended, bound: str = "") -> None:
        """Fail, for this reason, which may be a `bound` that was passed."""
        if not self._is_over:
            self._bare_failure, self._passed_bound = ended.message, bound
            if bound and self.instead:
                ended = replace(ended, message=f"{ended.message}; {self.instead}")
            elif bound:
                done = effort(self._dialogue.mark)
                words = done.words if done.is_busy else f"{done.words}; {SLOW.format(bound)}"
                ended = replace(ended, message=ended.message + words)
            self.failure = ended
            self.end()
            self._owner.happened(self._life, Input.START_FAILED, ended.message, ended)

    def ask_again(self, why: str) -> bool:
        """It needs a second process; False if it does not get one."""
        if self._is_second:
            self.fail(Ended("bad_start", f"{why}, for the second time"))
        elif self.is_open:
            self.again = why
            return True
        return False

    def next_process(self) -> str | None:
        """Begin with the second process, and return why, if there is to be one."""
        if self._is_over or self.again is None:
            return None
        why, self.again = self.again, None
        self._is_second = True
        return why

    @property
    def remark(self) -> str:
        """What was printed in the place of an answer before it was ready, as a clause."""
        return "" if self.was_ready or not self.instead else f"; {self.instead}"

    async def ended(self, exit_: Exit, *, has_heard: bool) -> Ended:
        """Return how a life ended whose last process is gone."""
        ended = Ended(str(exit_.reason), f"{exit_.words}{exit_.remark}", exit_)
        if self.failure is not None:
            words = self._late_answer if self.was_mute and has_heard else self.failure.message
            words += unset_remark(self._setting.unset_variables)
            ended = Ended(self.failure.reason, words, exit_)
        return ended if self.was_ready else replace(ended, obstacle=await self._obstacle())

    @property
    def _late_answer(self) -> str:
        """Why a process failed that answered once its stdin was closed: no loop, no wait."""
        bound = self._passed_bound
        return self._bare_failure + LATE + (f"; {SLOW.format(bound)}" if bound else "")

    async def _obstacle(self) -> str | None:
        host, descriptor = self._setting.host, self._setting.descriptor
        if host.shutting_down:
            return None
        look = partial(obstacle, descriptor, host.environment)
        with trio.move_on_after(LOOK_S):
            doing = f"looking at the program of {descriptor.name}"
            found = await host.custody.blocking.run(doing, look)
            return None if found is None else found.words
        return None
