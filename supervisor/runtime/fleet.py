"""All modules of a daemon: started in the order of their dependencies, stopped in reverse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog
import trio

from protocol.descriptor import Descriptor, Start
from protocol.errors import Failure, Reason
from supervisor.policy.lifecycle import HAS_PROCESS, SERVES, State
from supervisor.runtime.directory import Found, Quarantined
from supervisor.runtime.host import Host
from supervisor.runtime.module import Module

log = structlog.get_logger()

Verdict = TypeVar("Verdict")


class Fleet:
    """The modules by name, and the quarantined descriptors."""

    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        """Run all lives in `nursery`."""
        self.modules: dict[str, Module] = {}
        self.quarantined: tuple[Quarantined, ...] = ()
        self._host = host
        self._nursery = nursery
        self._change = trio.Event()
        self._waking = False
        self._wake_again = False

    def admit(self, found: Found) -> None:
        """Take the modules of a scan in; start those that are eager."""
        self.quarantined = found.quarantined
        for one in found.quarantined:
            log.warning("descriptor quarantined", descriptor=one.descriptor, reason=one.reason)
        for descriptor in found.descriptors:
            self._add(descriptor)
        for module in self.modules.values():
            if module.descriptor.supervision.start is Start.EAGER:
                module.start("the daemon started")
        self._wake_dependants()

    async def wait_until(self, verdict: Callable[[], Verdict | None]) -> Verdict:
        """Wait until `verdict` returns something, asking after each change of a state."""
        while True:
            found = verdict()
            if found is not None:
                return found
            await self._change.wait()

    async def stop(self) -> None:
        """Stop all modules for good, each after those that depend on it."""
        self._host.shutting_down = True
        async with trio.open_nursery() as nursery:
            for module in self.modules.values():
                nursery.start_soon(self._stop_in_turn, module)

    def hurry(self) -> None:
        """Kill whatever still runs."""
        for module in self.modules.values():
            module.stop("the daemon is in a hurry")
            module.slot.hurry()

    def dependants(self, name: str) -> list[Module]:
        """Return the modules that name this one in `depends_on`."""
        return [
            module
            for module in self.modules.values()
            if name in module.descriptor.supervision.depends_on
        ]

    def eager(self) -> list[Module]:
        """Return the modules that start with the daemon."""
        return [
            module
            for module in self.modules.values()
            if module.descriptor.supervision.start is Start.EAGER
        ]

    def verdict(self, module: Module, *, final: bool = False) -> Failure | None:
        """Return why a module will not be ready soon, or None if it is, or may be.

        With `final`, a module in `backoff` still may be.
        """
        if _is_stuck(module, final=final):
            return module.unavailable()
        # Without recursion: a chain of dependencies may be long.
        left, seen = [module], {module.name}
        while left:
            waiting = left.pop()
            if waiting.state is not State.DOWN:
                continue
            for name in waiting.waits_for:
                needed = self.modules[name]
                if _is_stuck(needed, final=final) and not _starts_on_demand(needed):
                    words = f"{module.name} waits for {name}: {needed.unavailable().message}"
                    return Failure.because(Reason.NOT_READY, words, waits_for=name)
                if name not in seen:
                    seen.add(name)
                    left.append(needed)
        return None

    def _add(self, descriptor: Descriptor) -> None:
        module = Module(descriptor, self._host, self._nursery, self._changed, self.verdict)
        module.waits_for = descriptor.supervision.depends_on
        self.modules[descriptor.name] = module

    async def _stop_in_turn(self, module: Module) -> None:
        dependants = self.dependants(module.name)
        await self.wait_until(lambda: all(_is_down(one) for one in dependants) or None)
        module.stop("the daemon is stopping")
        await self.wait_until(lambda: _is_down(module) or None)

    def _changed(self) -> None:
        self._wake_dependants()
        self._change.set()
        self._change = trio.Event()

    def _wake_dependants(self) -> None:
        # A start wakes others, and they others: in turns, since a chain may be long.
        self._wake_again = True
        if self._waking:
            return
        self._waking = True
        try:
            while self._wake_again:
                self._wake_again = False
                self._wake_each()
        finally:
            self._waking = False

    def _wake_each(self) -> None:
        for module in self.modules.values():
            needed = module.descriptor.supervision.depends_on
            if not needed or module.state in HAS_PROCESS:
                continue
            module.waits_for = tuple(name for name in needed if not self._serves(name))
            wanted = module.slot.wanted and module.state is State.DOWN
            if wanted and not module.waits_for:
                module.start(f"{', '.join(needed)} got ready")
            elif wanted:
                self._want(module.waits_for, module.name)
            # Only now: what it waits for may have been down because nobody had wanted it yet.
            if module.queued and module.waits_for and (stuck := self.verdict(module)) is not None:
                module.refuse_waiting(stuck)

    def _want(self, names: Iterable[str], dependant: str) -> None:
        for name in names:
            needed = self.modules[name]
            if not needed.slot.wanted and _starts_on_demand(needed):
                needed.start(f"{dependant} depends on it")

    def _serves(self, name: str) -> bool:
        return self.modules[name].state in SERVES


def _is_stuck(module: Module, *, final: bool) -> bool:
    match module.state:
        case State.FAILED:
            return True
        case State.BACKOFF:
            return not final
        case State.DOWN:
            return not module.slot.wanted
        case _:
            return False


def _starts_on_demand(module: Module) -> bool:
    # What an operator stopped stays stopped, what failed has its own retry, and what ended for good
    # (temporary, transient) is not to be started again and again.
    return (
        module.state is State.DOWN
        and not module.stopped_by_command
        and module.slot.last_exit is None
    )


def _is_down(module: Module) -> bool:
    return module.state not in HAS_PROCESS and not module.slot.wanted
