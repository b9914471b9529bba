"""From one descriptor of a module to the next: for a while it has workers of both, and one serves.

    it serves, both say `overlap`:  the successor starts beside it -> ready: it takes over, and the
                                                                    former is drained
                                                                   -> fails: the former goes on
    else:                           the former ends, its successor starts -> ready
                                      -> fails: the descriptor that was good last is started again

What holds at any time:

- the module's descriptor is that of the workers which serve, so it is what a crash restarts;
- beside them there are those of one more at the most, which come or go: a descriptor that is
  offered meanwhile waits, and only the newest one does;
- one that failed is not tried again before it changes, or somebody asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from protocol.descriptor.model import Descriptor, Start
from supervisor.policy.findings import QuarantinedFile, kept
from supervisor.policy.lifecycle import COMES, SERVES, State
from supervisor.policy.reload_plan import changes
from supervisor.runtime.supervision.life import LifeEnd
from supervisor.runtime.supervision.pool import is_wanted, lasting, newest_exit
from supervisor.runtime.supervision.worker import Worker

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module

log = structlog.get_logger()

_UNDECIDED = COMES | {State.STOPPING}
_FAILING = (State.BACKOFF, State.FAILED)


class Succession:
    """The descriptors that one module was offered, and what becomes of them."""

    __slots__ = (
        "_due", "_fallback", "_held_for", "_is_trial", "_module", "_next", "_next_cause", "_proven",
        "beside", "offered", "refused",
    )  # fmt: skip

    def __init__(self, module: Module) -> None:
        self.offered = module.descriptor
        """The newest descriptor, in use or not."""
        self.refused: QuarantinedFile | None = None
        """Why the newest one failed, if it did."""
        self.beside: list[Worker] = []
        """The workers of another descriptor than the one in effect."""
        self._is_trial = False
        """Whether the workers beside take over once they are ready; else they go."""
        self._module = module
        self._due: str | None = None
        """Why the offered one is to be tried, until it is."""
        self._held_for: object = None
        """It is not tried before this is released."""
        self._next: Descriptor | None = None
        """The descriptor that follows once the workers in effect, told to stop, are down."""
        self._next_cause: str | None = None
        """Why that is started then, if it is."""
        self._proven = False
        """Whether the one in use has been ready."""
        self._fallback: Descriptor | None = None
        """Else the last descriptor that has been ready, if there is one."""

    @property
    def undecided(self) -> bool:
        """Whether the outcome of the newest descriptor is still open."""
        is_pending = self._due is not None or self._next is not None or self._is_trial
        return is_pending or (self._fallback is not None and self._module.wanted)

    @property
    def wants(self) -> bool:
        """Whether the module is to be up again once it is down."""
        return self._next_cause is not None

    @property
    def follows(self) -> bool:
        """Whether something follows the workers that serve, once they are down."""
        return self._next is not None

    @property
    def hopeless(self) -> bool:
        """Whether nothing would be lost with the one in use: it fails, and has never been ready."""
        module = self._module
        return not self._proven and (module.state in _FAILING or not module.descriptor.enabled)

    def offer(
        self, descriptor: Descriptor, cause: str, *, anew: bool, held_for: object = None
    ) -> None:
        """Put a descriptor into effect, if it gets ready; `anew` if its program is a new one.

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
        """Try the descriptor that was held for this, if it is still to be tried."""
        if self._held_for is held_for:
            self._held_for = None
            self._begin()

    def relabel(self, descriptor: Descriptor) -> None:
        """Take the newest descriptor as its file says it now, which means the same."""
        if self.offered is self._module.descriptor:
            self._module.label(descriptor)
        if self.offered is self._next:
            self._next = descriptor
        if self.refused is not None:
            self.refused = msgspec.structs.replace(self.refused, descriptor=descriptor.source)
        self.offered = descriptor

    def start(self, cause: str) -> None:
        """Start what follows when its time has come."""
        self._next_cause = cause

    def stop(self, cause: str, *, for_good: bool) -> None:
        """Start nothing; the next start starts what was offered."""
        if for_good:
            self._next = None
        elif self._due is not None or self._is_trial:
            self._next = self.offered
        self._due = self._next_cause = None
        self._give_up_trial(cause)

    def look(self) -> None:
        """React to a change of the module's state."""
        module = self._module
        if self._next is not None:
            self.follow()
        elif module.state in SERVES:
            self._proven, self._fallback = True, None
        elif self._fallback is not None and self._has_failed():
            self._fall_back(self._fallback)

    def look_beside(self) -> None:
        """React to a change of a worker that is beside those in effect."""
        if not self._is_trial:
            self._forget_gone()
        elif not any(one.state in _UNDECIDED for one in self.beside):
            self._end_trial()

    def follow(self) -> None:
        """Install the next descriptor, if there is one and the workers before it are down."""
        module, descriptor, cause = self._module, self._next, self._next_cause
        if descriptor is None or module.state is not State.DOWN or module.ending:
            return
        self._next = self._next_cause = None
        if self._proven:
            self._fallback = module.descriptor if descriptor.enabled else None
        self._proven = descriptor is self._fallback
        if self._proven:
            self._fallback = None
        module.install([module.make_worker(module.make_setting(descriptor))], descriptor)
        if cause is not None or module.queued:
            module.start(cause or "requests wait for it")

    def _begin(self) -> None:
        if self._due is None or self._held_for is not None or self.beside:
            return
        cause, self._due = self._due, None
        module = self._module
        both = module.descriptor.supervision.overlap and self.offered.supervision.overlap
        enabled = self.offered.enabled
        if enabled is not module.descriptor.enabled:
            module.stopped_by_command = not enabled
        if enabled and both and module.state in SERVES and self._next is None:
            self._begin_trial(cause)
            return
        wanted = enabled and (module.wanted or self._starts_by_itself())
        self._next, self._next_cause = self.offered, cause if wanted else None
        if module.state is State.DOWN:
            self.follow()
        else:
            module.stop_workers(cause)

    def _starts_by_itself(self) -> bool:
        eager = self.offered.supervision.start is Start.EAGER
        return eager and not self._module.stopped_by_command

    # Beside those that serve.

    def _begin_trial(self, cause: str) -> None:
        module = self._module
        self._is_trial = True
        self.beside = [module.make_worker(module.make_setting(self.offered))]
        self.beside[0].start(cause)
        module.fill(self.beside, cause, at_least=lasting(module.workers))

    def _end_trial(self) -> None:
        module, self._is_trial = self._module, False
        if not any(one.serves for one in self.beside):
            self._refuse(newest_exit(self.beside))
            self._retire("it did not get ready")
            return
        self._proven, self._fallback = True, None
        instance = self.beside[0].instance or module.name
        self.beside = module.install(self.beside, self.offered)
        self._retire(f"{instance} has taken over")

    def _give_up_trial(self, cause: str) -> None:
        if self._is_trial:
            self._is_trial = False
            self._retire(cause)

    def _retire(self, cause: str) -> None:
        for worker in self.beside:
            worker.want_down()  # of none, before one is gone: no successor is to come
        for worker in tuple(self.beside):
            worker.stop(cause)
        self._forget_gone()

    def _forget_gone(self) -> None:
        if self.beside and all(one.is_gone for one in self.beside):
            self.beside = []
            self._begin()
            self._module.fleet.module_changed(self._module)

    # After it.

    def _has_failed(self) -> bool:
        module = self._module
        if module.state is State.DOWN:
            return not (is_wanted(module.workers) or module.stopped_by_command)
        return module.state in _FAILING

    def _fall_back(self, good: Descriptor) -> None:
        module = self._module
        self._refuse(module.exit)
        self._next, self._next_cause = good, "its new descriptor failed, and this one was good"
        if module.state is State.DOWN:
            self.follow()
        else:
            module.stop_workers("it did not get ready")

    def _refuse(self, died: LifeEnd | None) -> None:
        why = "it did not get ready" if died is None else f"it {died.words}"
        reason = kept(f"the module that it describes did not start: {why}")
        self.refused = refused = QuarantinedFile(self.offered.source, reason)
        module = self._module
        log.warning("descriptor refused", module=module.name, **msgspec.structs.asdict(refused))
        module.log.host_line(None, refused.reason)
        module.host.observer.quarantined(refused)
