"""Record what happens to the fleet in the journal, and tell the hooks: mounts, states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.connection import Notified, ResourceUpdated
from protocol.descriptor.model import Descriptor
from supervisor.kernel.descriptions import ops_of
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.host import DescriptionChange, Observer

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

MISFITS_TOLD = 8
"""In one entry; `status` has all."""


class Chronicle(Observer):
    def __init__(self, kernel: Kernel) -> None:
        """Tell the services of `kernel`, which are there before its first module."""
        self._kernel = kernel

    def module_state(
        self, module: str, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        data = {"from": str(before), "to": str(after), "cause": cause}
        if instance is not None:
            data["instance"] = instance
        self._kernel.recorder.record("module:state", module=module, data=data)
        self._kernel.hooks.moved(module)

    def described(self, descriptor: Descriptor, said: DescriptionChange) -> None:
        """Remember a module's description, and record `module:description` when it has changed."""
        descriptions = self._kernel.effects.descriptions
        before = descriptions.find(descriptor)
        descriptions.add(descriptor, said.description)
        after = descriptions.find(descriptor)
        if before is None or after is None or before.description != after.description:
            self._kernel.catalogue.changed()
        if said.changes:
            data = {
                "instance": said.instance,
                "changes": said.changes,
                "ops": len(ops_of(said.description)),
                "misfits": said.misfits[:MISFITS_TOLD],
            }
            self._kernel.recorder.record("module:description", module=descriptor.name, data=data)

    def instance_ready(self, module: str) -> None:
        self._kernel.updates.began(module)

    def told(self, module: str, news: ResourceUpdated | Notified) -> None:
        """Tell the followers of the resource, or of the catalogue."""
        if isinstance(news, ResourceUpdated):
            self._kernel.updates.updated(module, news.uri)
        else:
            self._kernel.catalogue.notified(module, news)

    def mounted(self, descriptor: Descriptor, *, again: bool = False) -> None:
        data = {
            "path": descriptor.source,
            "module": descriptor.name,
            "kind": str(descriptor.kind),
            "version": descriptor.version,
            "replaced": again,
        }
        self._kernel.recorder.record("mount:add", module=descriptor.name, data=data)
        self._kernel.hooks.mount(descriptor)
        self._kernel.catalogue.changed()

    def unmounted(self, descriptor: Descriptor) -> None:
        data = {"path": descriptor.source, "module": descriptor.name}
        self._kernel.recorder.record("mount:remove", module=descriptor.name, data=data)
        self._kernel.hooks.unmount(descriptor.name)
        self._kernel.catalogue.changed()

    def quarantined(self, found: QuarantinedFile) -> None:
        error = {"code": "bad_request", "message": found.reason}
        self._kernel.recorder.record(
            "mount:quarantine", data={"path": found.descriptor}, error=error
        )
