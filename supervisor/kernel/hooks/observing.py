"""All hooks that observe: each entry of the journal goes to those whose globs its name fits.

A hook is told nothing about itself, and nothing that was caused on its behalf (kernel.parties).
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import Any

import trio

from protocol.descriptor.model import HOOK_OP, Descriptor, Hook
from supervisor.kernel.hooks.observer import Observer, Waiting
from supervisor.kernel.parties import Invoke, OutcomeOnly
from supervisor.kernel.recorder import Overheard
from supervisor.kernel.taking_effect import Effects
from supervisor.policy.lifecycle import SERVES
from supervisor.policy.principals import SUPERVISOR
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module

NAMES_REMEMBERED = 1024
"""Names of events whose observers are cached; modules may make names up."""

NAME_CHARS = 200
"""A longer name is matched by its beginning."""


class Observing:
    def __init__(
        self,
        host: Host,
        fleet: Fleet,
        effects: Effects,
        invoke: Invoke,
        nursery: trio.Nursery,
    ) -> None:
        """Run each observer's task in `nursery`."""
        self._host = host
        self._fleet = fleet
        self._recorder = effects.recorder
        self._lineage = effects.lineage
        self._invoke = invoke
        self._nursery = nursery
        self._observers: dict[str, Observer] = {}
        self._globs: dict[str, re.Pattern[str]] = {}
        self._wanted: dict[str, tuple[Observer, ...]] = {}

    def mount(self, descriptor: Descriptor, hook: Hook) -> None:
        """Tell a hook of events from now on, or by another descriptor than before."""
        name = descriptor.name
        observer = self._observers.get(name)
        if observer is None:
            observer = Observer(
                lambda: self._module(name),
                self._deliver,
                self._recorder,
                self._host.deadlines,
                ledger=self._host.ledger,
                descriptor=descriptor,
                hook=hook,
            )
            self._observers[name] = observer
            self._nursery.start_soon(observer.run)
        else:
            observer.change(descriptor, hook)
        self._globs[name] = re.compile("|".join(translate(one) for one in hook.observe))
        self._changed()

    def unmount(self, name: str) -> None:
        observer = self._observers.pop(name, None)
        if observer is not None:
            del self._globs[name]
            self._changed()
            observer.end()

    def look(self, name: str) -> None:
        observer = self._observers.get(name)
        if observer is not None:
            observer.look()

    def end(self) -> None:
        for name in tuple(self._observers):
            self.unmount(name)

    def status(self, name: str) -> dict[str, Any] | None:
        """Return what `status` shows of an observer, or None if the hook does not observe."""
        observer = self._observers.get(name)
        return None if observer is None else observer.status()

    def _changed(self) -> None:
        self._wanted.clear()
        # Without observers, an entry costs no more than a look at this.
        self._recorder.overhear(self._overhear if self._observers else None)

    def _overhear(self, entry: Overheard) -> None:
        event = entry.event
        wanted = self._wanted.get(event)
        if wanted is None:
            wanted = self._who_wants(event)
        if not wanted:
            return
        behind = self._lineage.of(entry.request_id)
        waiting = Waiting(event, entry.body, behind)
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

    def _module(self, name: str) -> Module | None:
        module = self._fleet.modules.get(name)
        if module is not None and self._host.shutting_down and module.state not in SERVES:
            return None  # it will not serve again
        return module

    def _deliver(
        self, name: str, args: dict[str, Any], client: OutcomeOnly, behind: frozenset[str]
    ) -> None:
        content = {"op": HOOK_OP, "args": args}
        self._invoke(SUPERVISOR, name, content, client, behind=behind | {name}, recorded=False)
