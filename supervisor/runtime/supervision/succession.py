"""From one descriptor of a module to the next: each has a pool of its own, and one of them serves.

    it serves, both say `overlap`:  the successor starts beside it -> ready: it takes over, and the
                                                                    former is drained
                                                                   -> fails: the former goes on
    else:                           the former ends, its successor starts -> ready
                                      -> fails: the descriptor that was good last is started again

What holds at any time:

- the module's descriptor is that of the pool which serves, so it is what a crash restarts;
- beside that pool there is one more at the most, which comes or goes: a descriptor that is offered
  meanwhile waits, and only the newest one does;
- one that failed is not tried again before it changes, or somebody asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from protocol.descriptor.model import Descriptor, Start
from supervisor.policy.effective import changes
from supervisor.policy.findings import Quarantined, kept
from supervisor.policy.lifecycle import COMES, State

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module
    from supervisor.runtime.supervision.pool import Pool

log = structlog.get_logger()

_UNDECIDED = COMES | {State.STOPPING}


class Succession:
    """The descriptors that one module was offered, and what becomes of them."""

    __slots__ = (
        "_due", "_fallback", "_held_for", "_module", "_next", "_next_cause", "_proven", "former",
        "offered", "refused", "trial",
    )  # fmt: skip

    def __init__(self, module: Module) -> None:
        self.offered = module.descriptor
        """The newest, in use or not."""
        self.refused: Quarantined | None = None
        """That it failed, and why."""
        self.trial: Pool | None = None
        """The pool that is to take over once it is ready."""
        self.former: Pool | None = None
        """The one that goes."""
        self._module = module
        self._due: str | None = None
        """Why the one that is offered is to be tried, until it is."""
        self._held_for: object = None
        """What it is not to be tried before."""
        self._next: Descriptor | None = None
        """What follows once the pool that serves is down, which it was told to be."""
        self._next_cause: str | None = None
        """Why it is started then, if it is."""
        self._proven = False
        """Whether the one in use has been ready."""
        self._fallback: Descriptor | None = None
        """Else the last one that was, if there is one."""

    @property
    def undecided(self) -> bool:
        """Whether it is still to be seen what becomes of the newest one."""
        is_pending = self._due is not None or self._next is not None or self.trial is not None
        return is_pending or (self._fallback is not None and self._module.wanted)

    @property
    def wants(self) -> bool:
        """Whether the module is to be up again once it is down."""
        return self._next_cause is not None

    @property
    def follows(self) -> bool:
        """Whether something follows the pool that serves, once that is down."""
        return self._next is not None

    @property
    def hopeless(self) -> bool:
        """Whether nothing would be lost with the one in use: it fails, and has never been ready."""
        return not self._proven and self._module.state in (State.BACKOFF, State.FAILED)

    def beside(self) -> list[Pool]:
        """Return the pool beside the one that serves, if there is one."""
        return [one for one in (self.trial, self.former) if one is not None]

    def offer(
        self, descriptor: Descriptor, cause: str, *, anew: bool, held_for: object = None
    ) -> None:
        """Have a descriptor take effect, if it can; `anew` if its program is a new one.

        With `held_for`, nothing is begun before that is released.
        """
        module = self._module
        if module.ending:
            return
        self.offered, self.refused, self._due = descriptor, None, None
        self._held_for = held_for
        self._give_up_trial(cause)
        if anew or self._next or changes(module.descriptor, descriptor):
            self._due = cause
            self._begin()
        else:  # it was something else for a moment
            module.label(descriptor)

    def release(self, held_for: object) -> None:
        """Begin with what was held for this, if that is still to be tried."""
        if self._held_for is held_for:
            self._held_for = None
            self._begin()

    def relabel(self, descriptor: Descriptor) -> None:
        """Take the newest one as its file says it now, which means the same."""
        if self.offered is self._module.descriptor:
            self._module.label(descriptor)
        if self.offered is self._next:
            self._next = descriptor
        if self.refused is not None:
            self.refused = msgspec.structs.replace(self.refused, descriptor=descriptor.source)
        self.offered = descriptor

    def start(self, cause: str) -> None:
        """Have what follows started when its time has come."""
        self._next_cause = cause

    def stop(self, cause: str, *, for_good: bool) -> None:
        """Start nothing; what was offered is what the next start starts."""
        if for_good:
            self._next = None
        elif self._due is not None or self.trial is not None:
            self._next = self.offered
        self._due = self._next_cause = None
        self._give_up_trial(cause)

    def told(self, pool: Pool) -> None:
        """Do what follows from a change of a pool."""
        if pool is self.trial:
            self._look_at_trial(pool)
        elif pool is self.former:
            self._look_whether_gone(pool)
        elif pool is not self._module.pool:
            return
        elif self._next is not None:
            self.follow()
        elif pool.serves:
            self._proven, self._fallback = True, None
        elif self._fallback is not None and self._has_failed(pool):
            self._fall_back(self._fallback, pool)

    def follow(self) -> None:
        """Go on to what follows, if something does and the pool before it is down."""
        module, descriptor, cause = self._module, self._next, self._next_cause
        if descriptor is None or module.pool.state is not State.DOWN or module.ending:
            return
        self._next = self._next_cause = None
        if self._proven:
            self._fallback = module.descriptor
        self._proven = descriptor is self._fallback
        if self._proven:
            self._fallback = None
        module.install(module.make_pool(descriptor), descriptor)
        if cause is not None or module.queued:
            module.start(cause or "requests wait for it")

    def _begin(self) -> None:
        if self._due is None or self._held_for is not None or self.beside():
            return
        cause, self._due = self._due, None
        module, pool = self._module, self._module.pool
        both = module.descriptor.supervision.overlap and self.offered.supervision.overlap
        if both and pool.serves and self._next is None:
            self.trial = module.make_pool(self.offered)
            self.trial.start(cause, pool.lasting)
            return
        wanted = module.wanted or self._starts_by_itself()
        self._next, self._next_cause = self.offered, cause if wanted else None
        if pool.state is State.DOWN:
            self.follow()
        else:
            pool.stop(cause)

    def _starts_by_itself(self) -> bool:
        eager = self.offered.supervision.start is Start.EAGER
        return eager and not self._module.stopped_by_command

    # Beside the pool that serves.

    def _look_at_trial(self, trial: Pool) -> None:
        if any(seat.slot.state in _UNDECIDED for seat in trial.seats):
            return
        module, self.trial = self._module, None
        if not trial.serves:
            self._refuse(trial)
            self._retire(trial, "it did not get ready")
            return
        before = module.pool
        self._proven, self._fallback = True, None
        instance = trial.seats[0].slot.instance or module.name
        module.install(trial, self.offered)
        self._retire(before, f"{instance} has taken over")

    def _give_up_trial(self, cause: str) -> None:
        if self.trial is not None:
            trial, self.trial = self.trial, None
            self._retire(trial, cause)

    def _retire(self, pool: Pool, cause: str) -> None:
        self.former = pool
        pool.stop(cause)
        self._look_whether_gone(pool)

    def _look_whether_gone(self, pool: Pool) -> None:
        if pool is self.former and pool.state is State.DOWN:
            self.former = None
            self._begin()
            self._module.changed()

    # After it.

    def _has_failed(self, pool: Pool) -> bool:
        if pool.state is State.DOWN:
            return not (pool.seats.wanted or self._module.stopped_by_command)
        return pool.state in (State.BACKOFF, State.FAILED)

    def _fall_back(self, good: Descriptor, failed: Pool) -> None:
        self._refuse(failed)
        self._next, self._next_cause = good, "its new descriptor failed, and this one was good"
        if failed.state is State.DOWN:
            self.follow()
        else:
            failed.stop("it did not get ready")

    def _refuse(self, failed: Pool) -> None:
        died = failed.last_exit
        why = "it did not get ready" if died is None else f"it {died.words}"
        reason = kept(f"what it describes did not start: {why}")
        self.refused = Quarantined(self.offered.source, reason)
        self._module.tell_refused(self.refused)
