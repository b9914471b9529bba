"""What a ring above, such as the journal, is told of modules and descriptors."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.connection import Notified, ResourceUpdated
from protocol.descriptor.model import Descriptor
from supervisor.policy.findings import QuarantinedFile
from supervisor.policy.lifecycle import State


class Described(msgspec.Struct, frozen=True):
    """What the newest process of a module says that the module is."""

    instance: str
    description: dict[str, Any]
    changes: int
    """How often it has changed since it was told last; 0 the first time."""
    misfits: tuple[str, ...]
    """Whose description does not fit, in words."""


class Observer:
    """Is told what becomes of the modules; none of its methods may block or raise."""

    def module_state(
        self, module: str, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """A module went from one state to another."""

    def described(self, descriptor: Descriptor, said: Described) -> None:
        """A module has described itself: for the first time, or otherwise than before."""

    def instance_ready(self, module: str) -> None:
        """A process of a module serves from now on."""

    def told(self, module: str, news: ResourceUpdated | Notified) -> None:
        """A module has told something that belongs to no request."""

    def mounted(self, descriptor: Descriptor, *, again: bool = False) -> None:
        """A module is there now; `again` if its descriptor was replaced."""

    def unmounted(self, descriptor: Descriptor) -> None:
        """A module's descriptor is gone."""

    def quarantined(self, found: QuarantinedFile) -> None:
        """A descriptor is not used."""
