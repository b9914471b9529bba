"""Who is told what becomes of modules and descriptors, such as the journal a ring above."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from protocol.connection import Notified, ResourceUpdated
from protocol.descriptor.model import Descriptor
from supervisor.policy.findings import Quarantined
from supervisor.policy.lifecycle import State


class Described(msgspec.Struct, frozen=True):
    """What the newest process of a module says that the module is."""

    instance: str
    description: dict[str, Any]
    changes: int
    """How often it has changed since it was told last; 0 the first time."""
    misfits: tuple[str, ...]
    """Whose description does not fit, in words."""


class Observer(Protocol):
    """Takes what happens; none of its methods may block or raise."""

    def module_state(
        self, module: str, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """Take note that a module went from one state to another."""

    def described(self, descriptor: Descriptor, said: Described) -> None:
        """Take note of what a module says that it is: the first time, and when that has changed."""

    def instance_ready(self, module: str) -> None:
        """Take note that a process of a module serves from now on."""

    def told(self, module: str, news: ResourceUpdated | Notified) -> None:
        """Take note of what a module tells that is of no request."""

    def mounted(self, descriptor: Descriptor, *, again: bool = False) -> None:
        """Take note of a module that is there now; `again` if its descriptor was replaced."""

    def unmounted(self, descriptor: Descriptor) -> None:
        """Take note of a module whose descriptor is gone."""

    def quarantined(self, found: Quarantined) -> None:
        """Take note of a descriptor that is not used."""


class Unobserved:
    """Nobody: a fleet of one invocation, or of a test."""

    def module_state(
        self, module: str, instance: str | None, before: State, after: State, cause: str
    ) -> None:
        """Tell nobody."""

    def described(self, descriptor: Descriptor, said: Described) -> None:
        """Tell nobody."""

    def instance_ready(self, module: str) -> None:
        """Tell nobody."""

    def told(self, module: str, news: ResourceUpdated | Notified) -> None:
        """Tell nobody."""

    def mounted(self, descriptor: Descriptor, *, again: bool = False) -> None:
        """Tell nobody."""

    def unmounted(self, descriptor: Descriptor) -> None:
        """Tell nobody."""

    def quarantined(self, found: Quarantined) -> None:
        """Tell nobody."""
