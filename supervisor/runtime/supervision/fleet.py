"""All modules of a daemon: started in the order of their dependencies, stopped in reverse."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import structlog
import trio

from protocol.descriptor.model import Descriptor, Start
from protocol.errors import Failure, Reason
from supervisor.policy.causes import got_ready, is_needed
from supervisor.policy.findings import Found, QuarantinedFile
from supervisor.policy.lifecycle import HAS_PROCESS, SERVES, State
from supervisor.policy.reload_plan import Changed, ReloadPlan
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.refusal import unavailable
from supervisor.runtime.turns import THE_DAEMON, in_turns

log = structlog.get_logger()

T = TypeVar("T")

CHANGES_KEPT = 10_000
"""So many changes are kept; a reader that has missed some has to look at all modules."""


class Changes:
    """Wakes the tasks that wait for a module to change, and no others.

    To tell of a change costs the same however many note it.
    """

    def __init__(self) -> None:
        self.count = 0
        """How many there were."""
        self._any = trio.lowlevel.ParkingLot()
        self._of: dict[str, trio.lowlevel.ParkingLot] = {}
        self._told: deque[str] = deque(maxlen=CHANGES_KEPT)

    def tell(self, names: Iterable[str]) -> None:
        """Wake those who wait for a change of one of these, or of any."""
        for name in names:
            self.count += 1
            self._told.append(name)
            waiting = self._of.pop(name, None)
            if waiting is not None:
                waiting.unpark_all()
        self.tell_all()

    def tell_all(self) -> None:
        self._any.unpark_all()

    async def wait(self) -> None:
        await self._any.park()

    async def wait_of(self, name: str) -> None:
        await self._of.setdefault(name, trio.lowlevel.ParkingLot()).park()

    def since(self, count: int) -> list[str] | None:
        """Return the modules that changed since the count was this; None if that is not known."""
        number = self.count - count
        if number > len(self._told):
            return None
        return list(dict.fromkeys(itertools.islice(reversed(self._told), number)))[::-1]


class Noted:
    """Those that have changed since they were last taken."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._at = changes.count

    async def take(self) -> list[str] | None:
        """Wait until some have changed, and return them; None if they were too many."""
        changes = self._changes
        while changes.count == self._at:
            await changes.wait()
        names, self._at = changes.since(self._at), changes.count
        return names


class Fleet:
    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        """All lives run in `nursery`."""
        self.modules: dict[str, Module] = {}
        self._quarantined: tuple[QuarantinedFile, ...] = ()
        self.quarantine_reasons: dict[str, str] = {}
        """Why a file is quarantined for what it says, by its path."""
        self.leaving: dict[str, Module] = {}
        """Removed modules whose processes are not gone yet."""
        self._generations: dict[str, Iterator[int]] = {}
        self._host = host
        self._nursery = nursery
        self._changes = Changes()
        self._dependants: dict[str, list[Module]] | None = None
        """The modules that name a module in `depends_on`; None if that may have changed."""
        self._waking = False
        self._to_wake: dict[str, None] = {}

    def admit(self, found: Found) -> None:
        """Take the modules of a scan in; start those that are eager."""
        deque(self._quarantining(found.quarantined))
        for descriptor in found.descriptors:
            self._add(descriptor)
            self._host.observer.mounted(descriptor)
        needed = {name for one in found.descriptors for name in one.supervision.depends_on}
        # Where starts have to wait for their turn, those that others wait for come first.
        for module in sorted(self.eager(), key=lambda one: one.name not in needed):
            module.start("the daemon started")
        self._wake_dependants(self.modules)

    async def apply(self, plan: ReloadPlan) -> None:
        """Do what a plan says; the processes follow in their own time, each within its bounds.

        Of thousands of modules it takes some turns of the loop; not cancelled. What is left when
        the daemon begins to stop is not done.
        """
        await in_turns(THE_DAEMON, "a reload", self._applying(plan))

    def _applying(self, plan: ReloadPlan) -> Iterator[None]:
        """Do it, a little with each step. What others see in between is consistent.

        A module is there or not, and goes on by its former descriptor until it is offered the new
        one. None is started before all are there, nor released before all were offered theirs.
        """
        yield from self._quarantining(plan.quarantined)
        back: set[str] = set()
        yield from self._exchanging(plan, back)
        for descriptor in plan.removed:
            self._nursery.start_soon(self._see_off, self.leaving[descriptor.name])
            yield
        yield from self._offering(plan)
        for descriptor in plan.added:
            module = self.modules[descriptor.name]
            if self._host.shutting_down:
                return
            if descriptor.name in back:
                module.come_back(descriptor)
            elif descriptor.supervision.start is Start.EAGER:
                module.start("its descriptor was added")
            yield
        # Those that were removed, or came back, are waited for too.
        self._changed(*self.modules, *self.leaving)

    def _exchanging(self, plan: ReloadPlan, back: set[str]) -> Iterator[None]:
        """Remove and add modules; those among the added that were still leaving go into `back`."""
        for descriptor in plan.removed:
            self._host.observer.unmounted(descriptor)
            self.leaving[descriptor.name] = self.modules.pop(descriptor.name)
            self._dependants = None
            yield
        for descriptor in plan.unchanged:
            module = self.modules[descriptor.name]
            if module.descriptor.source != descriptor.source:
                self._host.observer.mounted(descriptor, again=True)
            module.succession.relabel(descriptor)
            yield
        for descriptor in plan.added:
            self._host.observer.mounted(descriptor)
            if descriptor.name in self.leaving:
                back.add(descriptor.name)
            self._add(descriptor)
            yield

    def _offering(self, plan: ReloadPlan) -> Iterator[None]:
        concerned = {one.descriptor.name for one in plan.changed}
        concerned |= {one.name for one in plan.added}
        held: list[tuple[Changed, list[str]]] = []
        for one in plan.changed:
            if self._host.shutting_down:
                return
            needed = [name for name in one.descriptor.supervision.depends_on if name in concerned]
            self._offer(one, held=bool(needed))
            if needed:
                held.append((one, needed))
            yield
        for one, needed in held:
            self._nursery.start_soon(self._release_in_turn, one, needed)

    def notify(self) -> None:
        self._changes.tell_all()

    async def wait_until(self, verdict: Callable[[], T | None], of: Module | None = None) -> T:
        """Wait until `verdict` returns something, asking after each change of a state.

        With `of`, it is about that module, and asked after changes that matter to that.
        """
        while True:
            found = verdict()
            if found is not None:
                return found
            await (self._changes.wait() if of is None else self._changes.wait_of(of.name))

    def changes(self) -> Noted:
        """Note from now on which modules change, and those that depend on them."""
        return Noted(self._changes)

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

    async def abandon(self) -> None:
        """Answer all requests that wait: the daemon ends, and none of them will be served.

        In turns, since there may be many, and not cancelled; late ones are answered, too.
        """
        self._host.shutting_down = True
        await in_turns(THE_DAEMON, "refusing what waits", self._abandoning())
        deque(self._abandoning(), 0)

    def _abandoning(self) -> Iterator[None]:
        for module in self.all():
            waiting = module.queue.take_all()
            if waiting:
                failure = unavailable(module)  # the same for all of them
                for call in waiting:
                    call.settle(failure)
                    yield

    def hurry(self) -> None:
        for module in self.all():
            if module.is_down:
                continue
            module.stop("the daemon is in a hurry")
            module.hurry()

    def all(self) -> list[Module]:
        """Return all modules that may have a process, removed ones included."""
        return [*self.modules.values(), *self.leaving.values()]

    # What a module tells, and asks.

    def module_changed(self, module: Module) -> None:
        self._changed(module.name)

    def dependence_changed(self) -> None:
        self._dependants = None

    def dependants(self, name: str) -> list[Module]:
        """Return the modules that name this one in `depends_on`."""
        return [one for one in self._depends().get(name, ()) if self._has(one)]

    @property
    def quarantined(self) -> tuple[QuarantinedFile, ...]:
        """The descriptors that are not used, by what their files say or by how they started."""
        refused = [one.succession.refused for one in self.modules.values()]
        known = {one.descriptor for one in self._quarantined}
        more = [one for one in refused if one is not None and one.descriptor not in known]
        return (*self._quarantined, *more)

    def eager(self) -> list[Module]:
        return [
            module
            for module in self.modules.values()
            if module.descriptor.enabled and module.descriptor.supervision.start is Start.EAGER
        ]

    def verdict(self, module: Module, *, final: bool = False) -> Failure | None:
        """Return why a module will not be ready soon, or None if it is, or may be.

        With `final`, a module in `backoff` still may be.
        """
        if _is_stuck(module, final=final):
            return unavailable(module)
        # Without recursion: a chain of dependencies may be long.
        left, seen = [module], {module.name}
        while left:
            waiting = left.pop()
            if waiting.state is not State.DOWN:
                continue
            for name in waiting.waits_for:
                needed = self.modules.get(name)
                if needed is None:
                    words = f"{module.name} waits for {name}, and there is no such module"
                    return Failure.because(Reason.NOT_READY, words, waits_for=name)
                if _is_stuck(needed, final=final) and not needed.starts_on_demand:
                    words = f"{module.name} waits for {name}: {unavailable(needed).message}"
                    return Failure.because(Reason.NOT_READY, words, waits_for=name)
                if name not in seen:
                    seen.add(name)
                    left.append(needed)
        return None

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
        self._dependants = None

    def _has(self, module: Module) -> bool:
        name = module.name
        return self.modules.get(name) is module or self.leaving.get(name) is module

    def _depends(self) -> dict[str, list[Module]]:
        if self._dependants is None:
            self._dependants = {}
            for module in self.all():
                for name in module.descriptor.supervision.depends_on:
                    self._dependants.setdefault(name, []).append(module)
        return self._dependants

    def _quarantining(self, quarantined: tuple[QuarantinedFile, ...]) -> Iterator[None]:
        """Take over what is quarantined, and tell of what is new, a step for each."""
        known = set(self._quarantined)
        self._quarantined = quarantined
        self.quarantine_reasons = {one.descriptor: one.reason for one in quarantined}
        for one in quarantined:
            if one not in known:
                log.warning("descriptor quarantined", descriptor=one.descriptor, reason=one.reason)
                self._host.observer.quarantined(one)
                yield

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
            module.log.end()
            self._changes.tell([name])

    def _leaving_dependants(self, name: str) -> list[Module]:
        return [one for one in self.dependants(name) if self.leaving.get(one.name) is one]

    def _offer(self, changed: Changed, *, held: bool) -> None:
        descriptor = changed.descriptor
        succession = self.modules[descriptor.name].succession
        words = "its descriptor changed" if changed.changes else "its program changed"
        first = changed if held else None
        succession.offer(descriptor, words, anew=changed.is_anew, held_for=first)

    async def _release_in_turn(self, changed: Changed, needed: list[str]) -> None:
        """Let a module begin once what it depends on, if that is new too, serves or cannot."""
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
        """Wake what waits for these modules, or for any that depends on them, by others too."""
        concerned = dict.fromkeys(names)
        left = list(concerned)
        for name in left:  # it grows
            for module in self._depends().get(name, ()):
                if module.name not in concerned:
                    concerned[module.name] = None
                    left.append(module.name)
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
            module.start(got_ready(needed) if needed else "it no longer depends on anything")
        elif wanted:
            self._want(module.waits_for, module.name)
        # Only now: what it waits for may have been down because it had not been wanted yet.
        if module.queued and module.waits_for and (stuck := self.verdict(module)) is not None:
            module.refuse_waiting(stuck)

    def _want(self, names: Iterable[str], dependant: str) -> None:
        for name in names:
            needed = self.modules.get(name)
            if needed is None:
                continue  # removed; it may come back
            if not needed.wanted and needed.starts_on_demand:
                needed.start(is_needed(dependant))

    def _serves(self, name: str) -> bool:
        module = self.modules.get(name)
        return module is not None and module.state in SERVES


def _is_stuck(module: Module, *, final: bool) -> bool:
    match module.state:
        case State.FAILED:
            return True
        case State.BACKOFF:
            return not final
        case State.DOWN:
            return not module.wanted
        case _:
            return False
