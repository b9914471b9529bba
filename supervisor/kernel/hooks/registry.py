"""The mounted hooks: taken from the fleet, recorded as `hook:register`."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.descriptor.model import Descriptor, Hook, Kind
from supervisor.kernel.hooks.gates import Gates
from supervisor.kernel.hooks.observing import Observing
from supervisor.kernel.recorder import Recorder
from supervisor.runtime.supervision.module import Module


class Hooks:
    """The hooks of one daemon.

    While a descriptor's file is bad its last good content holds: the fleet tells of no change then.
    So a closed gate stays closed until its descriptor is removed.
    """

    def __init__(self, recorder: Recorder, observing: Observing, gates: Gates) -> None:
        self._recorder = recorder
        self._observing = observing
        self._gates = gates
        self._mounted: dict[str, Hook] = {}

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
            self._observing.mount(descriptor, hook)
        else:
            self._observing.unmount(name)
        if hook != before:
            self._register(name, hook)

    def unmount(self, name: str) -> None:
        """Unmount a module that is gone or no hook any more."""
        self._gates.forget(name)
        if self._mounted.pop(name, None) is not None:
            self._gates.unmount(name)
            self._observing.unmount(name)

    def moved(self, name: str) -> None:
        if name in self._mounted:
            self._observing.look(name)

    def end(self) -> None:
        self._observing.end()

    def status(self, module: Module) -> dict[str, Any] | None:
        """Return what `status` shows of a hook, or None for any other module."""
        hook = self._mounted.get(module.name)
        if hook is None:
            return None
        return {**msgspec.to_builtins(hook), "events": self._observing.status(module.name)}

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
