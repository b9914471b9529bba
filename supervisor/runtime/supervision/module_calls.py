"""Who serves the calls to the host that a module makes on its own account: of no request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from protocol.connection import HostCalled
from supervisor.runtime.process.dialogue import Dialogue

if TYPE_CHECKING:
    from supervisor.runtime.supervision.module import Module


class ModuleCalls(Protocol):
    """Takes such calls; none of its methods may block or raise."""

    def take(self, module: Module, asked: HostCalled, dialogue: Dialogue) -> None:
        """Accept a call, or refuse it at once; it is answered through `dialogue`."""

    def end(self, instance: str) -> None:
        """End all calls of a process: it is gone."""


class Unserved:
    """Nobody: a fleet of one invocation, or of a test."""

    def take(self, module: Module, asked: HostCalled, dialogue: Dialogue) -> None:
        """Refuse it."""
        del module
        dialogue.refuse(asked, "nobody serves calls of no request here")

    def end(self, instance: str) -> None:
        """Do nothing: there are none."""
