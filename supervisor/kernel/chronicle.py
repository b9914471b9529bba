"""Write into the journal what becomes of the fleet, and tell the hooks: mounts, states."""

from __future__ import annotations

from protocol.descriptor import Descriptor
from supervisor.kernel.hooks.registry import Hooks
from supervisor.kernel.recorder import Recorder
from supervisor.policy.findings import Quarantined
from supervisor.policy.lifecycle import State


class Chronicle:
    """The fleet's observer (runtime.observer)."""

    def __init__(self, recorder: Recorder, hooks: Hooks) -> None:
        """Record what happens; then take in, or let go of, what is a hook."""
        self._recorder = recorder
        self._hooks = hooks

    def module_state(
        self, module: str, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """Record `module:state`."""
        data = {"from": str(before), "to": str(after), "cause": cause}
        if instance is not None:
            data["instance"] = instance
        self._recorder.record("module:state", module=module, data=data)
        self._hooks.moved(module)

    def mounted(self, descriptor: Descriptor, *, again: bool = False) -> None:
        """Record `mount:add`."""
        data = {
            "path": descriptor.source,
            "module": descriptor.name,
            "kind": str(descriptor.kind),
            "version": descriptor.version,
            "replaced": again,
        }
        self._recorder.record("mount:add", module=descriptor.name, data=data)
        self._hooks.mount(descriptor)

    def unmounted(self, descriptor: Descriptor) -> None:
        """Record `mount:remove`."""
        data = {"path": descriptor.source, "module": descriptor.name}
        self._recorder.record("mount:remove", module=descriptor.name, data=data)
        self._hooks.unmount(descriptor.name)

    def quarantined(self, found: Quarantined) -> None:
        """Record `mount:quarantine`."""
        error = {"code": "bad_request", "message": found.reason}
        self._recorder.record("mount:quarantine", data={"path": found.descriptor}, error=error)
