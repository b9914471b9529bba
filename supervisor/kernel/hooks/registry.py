"""The mounted hooks: taken from the fleet, recorded as `hook:register`.

A hook that is a gate stands before the modules that it names. To a hook that observes goes each
entry of the journal whose name its globs fit, but nothing about itself, and nothing that was caused
on its behalf (kernel.parties).
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import Any, NamedTuple

import msgspec
import trio

from protocol.descriptor.model import Descriptor, Gate, Hook, Kind
from protocol.journal_event import JournalEvent
from supervisor.kernel.hooks.observer import Observer, Waiting
from supervisor.kernel.parties import Invoke
from supervisor.kernel.taking_effect import Effects
from supervisor.policy.hook_chain import Link
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module


class Standing(NamedTuple):
    """The gates before a module, in the order in which they were mounted."""

    pre: tuple[Link, ...]
    post: tuple[Link, ...]
    error: tuple[Link, ...]


class Gates:
    def __init__(self) -> None:
        self.any = False
        """Whether there is a gate at all; each invocation asks this."""
        self._hooks: dict[str, tuple[Hook, re.Pattern[str]]] = {}
        self._standing: dict[str, Standing | None] = {}

    def mount(self, name: str, hook: Hook) -> None:
        """Put a hook before the modules that it names; a mounted one keeps its place."""
        if hook.gate:
            self._hooks[name] = hook, re.compile("|".join(translate(one) for one in hook.modules))
        else:
            self._hooks.pop(name, None)
        self._changed()

    def unmount(self, name: str) -> None:
        self._hooks.pop(name, None)
        self._changed()

    def forget(self, name: str) -> None:
        """Compute the gates of a module anew: it may be of another kind now."""
        self._standing.pop(name, None)

    def before(self, module: Module) -> Standing | None:
        """Return the gates before a module; None if there are none, as before any hook."""
        name = module.name
        if name not in self._standing:
            self._standing[name] = self._find(module)
        return self._standing[name]

    def hook(self, name: str) -> Hook | None:
        """Return the gate of the hook's current descriptor; None if it was removed."""
        found = self._hooks.get(name)
        return None if found is None else found[0]

    def _changed(self) -> None:
        self.any = bool(self._hooks)
        self._standing.clear()

    def _find(self, module: Module) -> Standing | None:
        if module.descriptor.kind is Kind.HOOK:
            return None
        standing = Standing(*(self._links(gate, module.name) for gate in Gate))
        return standing if any(standing) else None

    def _links(self, gate: Gate, module: str) -> tuple[Link, ...]:
        return tuple(
            Link(name, hook.priority, hook.on_failure)
            for name, (hook, globs) in self._hooks.items()
            if gate in hook.gate and globs.match(module)
        )


NAMES_REMEMBERED = 1024
"""Names of events whose observers are cached; modules may make names up."""

NAME_CHARS = 200
"""A longer name is matched by its beginning."""


class Hooks:
    """The hooks of one daemon.

    While a descriptor's file is bad its last good content holds: the fleet tells of no change then.
    So a closed gate stays closed until its descriptor is removed.
    """

    def __init__(
        self,
        host: Host,
        fleet: Fleet,
        effects: Effects,
        gates: Gates,
        *,
        invoke: Invoke,
        nursery: trio.Nursery,
    ) -> None:
        """Run the task of each hook that observes in `nursery`."""
        self._host = host
        self._fleet = fleet
        self._recorder = effects.recorder
        self._lineage = effects.lineage
        self._gates = gates
        self._invoke = invoke
        self._nursery = nursery
        self._mounted: dict[str, Hook] = {}
        self._observers: dict[str, Observer] = {}
        self._globs: dict[str, re.Pattern[str]] = {}
        self._wanted: dict[str, tuple[Observer, ...]] = {}

    def mount(self, descriptor: Descriptor) -> None:
        """Mount a module that is new, or has another descriptor; most are no hooks."""
        name = descriptor.name
        hook = descriptor.hook if descriptor.kind is Kind.HOOK and descriptor.enabled else None
        if hook is None:
            self.unmount(name)
            return
        before, self._mounted[name] = self._mounted.get(name), hook
        self._gates.mount(name, hook)
        if hook.observe:
            self._observe(descriptor, hook)
        else:
            self._observe_no_more(name)
        if hook != before:
            self._register(name, hook)

    def unmount(self, name: str) -> None:
        """Unmount a module that is gone or no hook any more."""
        self._gates.forget(name)
        if self._mounted.pop(name, None) is not None:
            self._gates.unmount(name)
            self._observe_no_more(name)

    def moved(self, name: str) -> None:
        observer = self._observers.get(name)
        if observer is not None:
            observer.look()

    def end(self) -> None:
        for name in tuple(self._observers):
            self._observe_no_more(name)

    def status(self, module: Module) -> dict[str, Any] | None:
        """Return what `status` shows of a hook, or None for any other module."""
        hook = self._mounted.get(module.name)
        if hook is None:
            return None
        observer = self._observers.get(module.name)
        events = None if observer is None else observer.status()
        return {**msgspec.to_builtins(hook), "events": events}

    def _observe(self, descriptor: Descriptor, hook: Hook) -> None:
        """Tell a hook of events from now on, or by another descriptor than before."""
        name = descriptor.name
        observer = self._observers.get(name)
        if observer is None:
            observer = Observer(
                self._host,
                self._fleet,
                self._recorder,
                self._invoke,
                descriptor=descriptor,
                hook=hook,
            )
            self._observers[name] = observer
            self._nursery.start_soon(observer.run)
        else:
            observer.change(descriptor, hook)
        self._globs[name] = re.compile("|".join(translate(one) for one in hook.observe))
        self._changed()

    def _observe_no_more(self, name: str) -> None:
        observer = self._observers.pop(name, None)
        if observer is not None:
            del self._globs[name]
            self._changed()
            observer.end()

    def _changed(self) -> None:
        self._wanted.clear()
        # Without observers, an entry costs no more than a look at this.
        self._recorder.overhear(self._overhear if self._observers else None)

    def _overhear(self, entry: JournalEvent, body: bytes) -> None:
        event = entry.event
        wanted = self._wanted.get(event)
        if wanted is None:
            wanted = self._who_wants(event)
        if not wanted:
            return
        behind = self._lineage.of(entry.request_id)
        waiting = Waiting(event, body, behind)
        for observer in wanted:
            if observer.name != entry.module and observer.name not in behind:
                observer.put(waiting)

    def _who_wants(self, event: str) -> tuple[Observer, ...]:
        found = tuple(
            observer
            for name, observer in self._observers.items()
            if self._globs[name].match(event[:NAME_CHARS])
        )
        if len(self._wanted) >= NAMES_REMEMBERED:
            self._wanted.clear()
        self._wanted[event] = found
        return found

    def _register(self, name: str, hook: Hook) -> None:
        for glob in hook.observe:
            self._recorder.record(
                "hook:register", module=name, data={"event": glob, "as": "observer"}
            )
        for gate in hook.gate:
            data = {
                "event": str(gate),
                "as": "gate",
                "modules": list(hook.modules),
                "priority": hook.priority,
                "on_failure": str(hook.on_failure),
            }
            self._recorder.record("hook:register", module=name, data=data)
