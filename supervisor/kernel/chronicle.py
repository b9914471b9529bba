"""Record what happens to the fleet in the journal, and tell the hooks: mounts, states."""

from __future__ import annotations

from protocol.connection import Notified, ResourceUpdated
from protocol.descriptor.model import Descriptor
from supervisor.kernel.catalogue import Catalogue
from supervisor.kernel.descriptions import RememberedDescriptions, ops_of
from supervisor.kernel.hooks.registry import Hooks
from supervisor.kernel.recorder import Recorder
from supervisor.kernel.resource_updates import ResourceUpdates
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.host import DescriptionChange, Observer

MISFITS_TOLD = 8
"""In one entry; `status` has all."""


class Chronicle(Observer):
    def __init__(
        self,
        recorder: Recorder,
        hooks: Hooks,
        descriptions: RememberedDescriptions,
        catalogue: Catalogue,
        updates: ResourceUpdates,
    ) -> None:
        self._recorder = recorder
        self._hooks = hooks
        self._descriptions = descriptions
        self._catalogue = catalogue
        self._updates = updates

    def module_state(
        self, module: str, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        data = {"from": str(before), "to": str(after), "cause": cause}
        if instance is not None:
            data["instance"] = instance
        self._recorder.record("module:state", module=module, data=data)
        self._hooks.moved(module)

    def described(self, descriptor: Descriptor, said: DescriptionChange) -> None:
        """Remember a module's description, and record `module:description` when it has changed."""
        before = self._descriptions.find(descriptor)
        self._descriptions.add(descriptor, said.description)
        after = self._descriptions.find(descriptor)
        if before is None or after is None or before.description != after.description:
            self._catalogue.changed()
        if said.changes:
            data = {
                "instance": said.instance,
                "changes": said.changes,
                "ops": len(ops_of(said.description)),
                "misfits": said.misfits[:MISFITS_TOLD],
            }
            self._recorder.record("module:description", module=descriptor.name, data=data)

    def instance_ready(self, module: str) -> None:
        self._updates.began(module)

    def told(self, module: str, news: ResourceUpdated | Notified) -> None:
        """Tell the followers of the resource, or of the catalogue."""
        if isinstance(news, ResourceUpdated):
            self._updates.updated(module, news.uri)
        else:
            self._catalogue.notified(module, news)

    def mounted(self, descriptor: Descriptor, *, again: bool = False) -> None:
        data = {
            "path": descriptor.source,
            "module": descriptor.name,
            "kind": str(descriptor.kind),
            "version": descriptor.version,
            "replaced": again,
        }
        self._recorder.record("mount:add", module=descriptor.name, data=data)
        self._hooks.mount(descriptor)
        self._catalogue.changed()

    def unmounted(self, descriptor: Descriptor) -> None:
        data = {"path": descriptor.source, "module": descriptor.name}
        self._recorder.record("mount:remove", module=descriptor.name, data=data)
        self._hooks.unmount(descriptor.name)
        self._catalogue.changed()

    def quarantined(self, found: QuarantinedFile) -> None:
        error = {"code": "bad_request", "message": found.reason}
        self._recorder.record("mount:quarantine", data={"path": found.descriptor}, error=error)
