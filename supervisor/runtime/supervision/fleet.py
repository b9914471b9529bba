"""All modules of a daemon: started in the order of their dependencies, stopped in reverse."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import structlog
import trio

from protocol.descriptor.model import Descriptor, Start
from protocol.errors import Failure
from supervisor.policy.findings import Found, Quarantined
from supervisor.policy.lifecycle import HAS_PROCESS, SERVES, State
from supervisor.policy.reload_plan import Changed, Plan
from supervisor.runtime.supervision.changes import Changes, Noted
from supervisor.runtime.supervision.dependence import Dependence, outlook, starts_on_demand
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.refusal import unavailable

log = structlog.get_logger()

Verdict = TypeVar("Verdict")


class Fleet:
    """The modules by name, and the quarantined descriptors."""

    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        """Run all lives in `nursery`."""
        self.modules: dict[str, Module] = {}
        self._quarantined: tuple[Quarantined, ...] = ()
        self.quarantine_reasons: dict[str, str] = {}
        """Why a file is quarantined for what it says, by its path."""
        self.leaving: dict[str, Module] = {}
        """Removed modules whose processes are not gone yet."""
        self._generations: dict[str, Iterator[int]] = {}
        self._host = host
        self._nursery = nursery
        self._changes = Changes()
        self._dependence: Dependence | None = None
        self._waking = False
        self._to_wake: dict[str, None] = {}

    def admit(self, found: Found) -> None:
        """Take the modules of a scan in; start those that are eager."""
        self._quarantine(found.quarantined)
        for descriptor in found.descriptors:
            self._add(descriptor)
            self._host.observer.mounted(descriptor)
        needed = {name for one in found.descriptors for name in one.supervision.depends_on}
        # Where starts have to wait for their turn, those that others wait for come first.
        for module in sorted(self.eager(), key=lambda one: one.name not in needed):
            module.start("the daemon started")
        self._wake_dependants(self.modules)

    def apply(self, plan: Plan) -> None:
        """Do what a plan says; the processes follow in their own time, each within its bounds."""
        self._quarantine(plan.quarantined)
        self._tell_of(plan)
        for descriptor in plan.removed:
            self.leaving[descriptor.name] = self.modules.pop(descriptor.name)
        for descriptor in plan.unchanged:
            self.modules[descriptor.name].succession.relabel(descriptor)
        self._dependence = None
        back = {one.name for one in plan.added if one.name in self.leaving}
        for descriptor in plan.added:
            self._add(descriptor)
        for descriptor in plan.removed:
            self._nursery.start_soon(self._see_off, self.leaving[descriptor.name])
        concerned = {one.descriptor.name for one in plan.changed}
        concerned |= {one.name for one in plan.added}
        for one in plan.changed:
            self._offer(one, concerned)
        for descriptor in plan.added:
            module = self.modules[descriptor.name]
            if descriptor.name in back:
                module.come_back(descriptor)
            elif descriptor.supervision.start is Start.EAGER:
                module.start("its descriptor was added")
        # Who was removed, or came back, is waited for too.
        self._changed(*self.modules, *self.leaving)

    def notify(self) -> None:
        """Have those who wait look again."""
        self._changes.tell_all()

    async def wait_until(self, verdict: Callable[[], Verdict | None]) -> Verdict:
        """Wait until `verdict` returns something, asking after each change of a state."""
        while True:
            found = verdict()
            if found is not None:
                return found
            await self._changes.wait()

    @contextlib.contextmanager
    def changes(self) -> Iterator[Noted]:
        """Note within the block who has changed, and those that depend on them."""
        with self._changes.noting() as noted:
            yield noted

    async def stop(self) -> None:
        """Stop all modules for good, each after those that depend on it."""
        self._host.shutting_down = True
        async with trio.open_nursery() as nursery:
            for module in self.all():
                first = self.dependants(module.name)
                if module.is_down and not first:
                    # Nothing to wait for: of ten thousand lazy modules, few have a process.
                    module.stopped_by_command = True
                else:
                    nursery.start_soon(self._stop_in_turn, module, first)

    def abandon(self) -> None:
        """Answer all requests that wait: whatever the daemon ends by, nobody will serve them."""
        self._host.shutting_down = True
        for module in self.all():
            module.refuse_waiting(unavailable(module))

    def hurry(self) -> None:
        """Kill whatever still runs."""
        for module in self.all():
            if module.is_down:
                continue
            module.stop("the daemon is in a hurry")
            module.hurry()

    def all(self) -> list[Module]:
        """Return all modules that may have a process, those that were removed included."""
        return [*self.modules.values(), *self.leaving.values()]

    # What a module tells (module.Peers).

    def module_changed(self, module: Module) -> None:
        """Wake those who wait for it, or depend on it."""
        self._changed(module.name)

    def descriptor_changed(self, module: Module) -> None:
        """Look anew who depends on whom."""
        del module
        self._dependence = None

    def dependants(self, name: str) -> list[Module]:
        """Return the modules that name this one in `depends_on`."""
        return [one for one in self._depends().on(name) if self._has(one)]

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The descriptors that are not used, by what their files say or by how they started."""
        refused = [one.succession.refused for one in self.modules.values()]
        known = {one.descriptor for one in self._quarantined}
        more = [one for one in refused if one is not None and one.descriptor not in known]
        return (*self._quarantined, *more)

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
        return outlook(self.modules, module, final=final)

    def _add(self, descriptor: Descriptor) -> None:
        name = descriptor.name
        module = self.leaving.pop(name, None)
        if module is None:
            # A number that was given is not given again, so an id names one process for good.
            generations = self._generations.setdefault(name, itertools.count(1))
            module = Module(
                descriptor,
                self._host,
                self._nursery,
                self,
                generations,
            )
        self.modules[name] = module
        self._dependence = None

    def _has(self, module: Module) -> bool:
        name = module.name
        return self.modules.get(name) is module or self.leaving.get(name) is module

    def _depends(self) -> Dependence:
        if self._dependence is None:
            self._dependence = Dependence(self.all())
        return self._dependence

    def _tell_of(self, plan: Plan) -> None:
        observer = self._host.observer
        for descriptor in plan.removed:
            observer.unmounted(descriptor)
        for descriptor in plan.unchanged:
            if self.modules[descriptor.name].descriptor.source != descriptor.source:
                observer.mounted(descriptor, again=True)
        for descriptor in plan.added:
            observer.mounted(descriptor)

    def _quarantine(self, quarantined: tuple[Quarantined, ...]) -> None:
        known = set(self._quarantined)
        for one in quarantined:
            if one not in known:
                log.warning("descriptor quarantined", descriptor=one.descriptor, reason=one.reason)
                self._host.observer.quarantined(one)
        self._quarantined = quarantined
        self.quarantine_reasons = {one.descriptor: one.reason for one in quarantined}

    async def _see_off(self, module: Module) -> None:
        """Stop a removed module after those removed with it that depend on it; then forget it."""
        name = module.name
        while up := [one for one in self._leaving_dependants(name) if not one.is_down]:
            await self._changes.wait_of(up[0].name)
        if self.leaving.get(name) is not module:
            return  # it came back meanwhile
        module.remove("its descriptor was removed")
        while not module.is_down and self.leaving.get(name) is module:
            await self._changes.wait_of(name)
        if self.leaving.get(name) is module:
            del self.leaving[name]
            self._changes.tell([name])

    def _leaving_dependants(self, name: str) -> list[Module]:
        return [one for one in self.dependants(name) if self.leaving.get(one.name) is one]

    def _offer(self, changed: Changed, concerned: set[str]) -> None:
        descriptor = changed.descriptor
        succession = self.modules[descriptor.name].succession
        needed = [one for one in descriptor.supervision.depends_on if one in concerned]
        words = "its descriptor changed" if changed.changes else "its program changed"
        first = changed if needed else None
        succession.offer(descriptor, words, anew=changed.is_anew, held_for=first)
        if needed:
            self._nursery.start_soon(self._release_in_turn, changed, needed)

    async def _release_in_turn(self, changed: Changed, needed: list[str]) -> None:
        """Have a module begin once what it depends on, if that is new too, serves or cannot."""
        module = self.modules[changed.descriptor.name]
        first = [self.modules[name] for name in needed]
        await self.wait_until(lambda: all(map(self._is_settled, first)) or None)
        if not self._host.shutting_down:
            module.succession.release(changed)

    def _is_settled(self, module: Module) -> bool:
        if module.succession.undecided:
            return False
        return module.state in SERVES or self.verdict(module) is not None

    async def _stop_in_turn(self, module: Module, dependants: list[Module]) -> None:
        for one in dependants:
            await self._until_down(one)
        module.stop("the daemon is stopping")
        await self._until_down(module)

    async def _until_down(self, module: Module) -> None:
        while not module.is_down:
            await self._changes.wait_of(module.name)

    def _changed(self, *names: str) -> None:
        concerned = self._depends().concerned(names)
        self._wake_dependants(concerned)
        self._changes.tell(concerned)

    def _wake_dependants(self, names: Iterable[str]) -> None:
        # A start wakes others, and they others: in turns, since a chain may be long.
        self._to_wake.update(dict.fromkeys(names))
        if self._waking:
            return
        self._waking = True
        try:
            while self._to_wake:
                waking = tuple(self._to_wake)
                self._to_wake.clear()
                for name in waking:
                    self._wake(name)
        finally:
            self._waking = False

    def _wake(self, name: str) -> None:
        module = self.modules.get(name)
        if module is None:
            return  # it is leaving
        needed = module.descriptor.supervision.depends_on
        if not needed and not module.missing:
            return
        module.missing = tuple(one for one in needed if not self._serves(one))
        if module.state in HAS_PROCESS:
            return
        wanted = module.wanted and module.state is State.DOWN
        if wanted and not module.missing:
            got_ready = f"{', '.join(needed)} got ready"
            module.start(got_ready if needed else "it no longer depends on anything")
        elif wanted:
            self._want(module.waits_for, module.name)
        # Only now: what it waits for may have been down because nobody had wanted it yet.
        if module.queued and module.waits_for and (stuck := self.verdict(module)) is not None:
            module.refuse_waiting(stuck)

    def _want(self, names: Iterable[str], dependant: str) -> None:
        for name in names:
            needed = self.modules.get(name)
            if needed is None:
                continue  # removed; it may come back
            if not needed.wanted and starts_on_demand(needed):
                needed.start(f"{dependant} depends on it")

    def _serves(self, name: str) -> bool:
        module = self.modules.get(name)
        return module is not None and module.state in SERVES
