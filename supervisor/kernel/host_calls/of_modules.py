"""The calls that a module makes on its own account: one of its processes makes them for no request.

The same rules and bounds hold for them. They have no session and no parent, no client is told of
them, and they end with the process.
"""

from __future__ import annotations

from protocol.connection import HostCalled
from protocol.errors import Reason
from protocol.events import Progress
from supervisor.kernel.host_calls.docket import Docket
from supervisor.kernel.host_calls.method import Host
from supervisor.kernel.parties import Origin
from supervisor.policy.principals import Principal, Scope, module_name
from supervisor.policy.verdict import Stopped
from supervisor.runtime.process.dialogue import Dialogue
from supervisor.runtime.supervision.host import ModuleCalls
from supervisor.runtime.supervision.module import Module


class ModuleItself:
    """A module as a caller (kernel.parties.Caller)."""

    serving = None
    session_id = None
    ancestors = ()

    def __init__(self, module: Module) -> None:
        self.module = module
        self.principal = Principal(module_name(module.name), "module", frozenset({Scope.INVOKE}))
        self.origin = Origin(module.name, "", None, owner=self.principal.name, by=self.principal.by)

    def attend(self) -> None: ...

    def tell_first(self, event: Progress) -> None: ...


class CallsOfModules(ModuleCalls):
    """The calls of all processes for no request."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._dockets: dict[str, Docket] = {}

    def take(self, module: Module, asked: HostCalled, dialogue: Dialogue) -> None:
        docket = self._dockets.get(dialogue.instance)
        if docket is None:
            docket = Docket(ModuleItself(module), self._host)
            self._dockets[dialogue.instance] = docket
        docket.take(asked, dialogue)

    def end(self, instance: str) -> None:
        docket = self._dockets.pop(instance, None)
        if docket is not None:
            words = f"{instance}, on whose behalf it was made, has ended"
            docket.end(Stopped(Reason.PARENT_ENDED, words))
