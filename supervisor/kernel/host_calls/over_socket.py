"""What a process of a module may ask over a socket of the daemon: what the module is granted.

A module calls its host by lines on stdout (`docket`). If one of its processes connects to the
control socket instead, it may invoke what its descriptor and the policy grant it
(`module.invoke:MODULE.OP`), as the principal `module:NAME`, and look at itself (`narrow`); nothing
else. Where the policy says to ask, a person is asked first.
"""

from __future__ import annotations

from typing import Any

import trio

from protocol.errors import Failure, Reason
from protocol.host_events import ApprovalUiEvent
from protocol.replies import Operation
from protocol.response import Response
from supervisor.kernel.grants.grants import Grant
from supervisor.kernel.host_calls.docket import ModuleItself, denied
from supervisor.kernel.host_calls.method import HostServices
from supervisor.kernel.parties import Client, Handle, Party
from supervisor.kernel.request_checks import op_refusal
from supervisor.policy.capabilities import Authorization, Decision, invoke_capability
from supervisor.policy.verdict import Stopped


class ModuleRequests:
    def __init__(self, host: HostServices) -> None:
        self._host = host

    def begin(
        self,
        party: Party,
        tool: str | None,
        operation: str | None,
        content: dict[str, Any],
        client: Client,
    ) -> Handle | None:
        """Begin a request of a module's process, as `Requests.begin`."""
        op = content.get("op")
        refusal = None
        module = self._host.fleet.modules.get(party.module or "")
        if module is None or operation != Operation.INVOKE or tool is None or tool in party.names:
            words = f"{party.principal.name} may only invoke over this socket what its descriptor"
            words += " and the policy grant it, and this comes from a process of a module"
            words += ' (socket_for_modules = "user" in the configuration allows everything)'
            refusal = Failure.because(Reason.CAPABILITY, words)
        else:
            refusal = op_refusal(f"{tool:.130}", op)
        if refusal is not None or module is None or tool is None:
            assert refusal is not None  # noqa: S101 - no module is a refusal
            client.finished(Response(refusal))
            return None
        caller = ModuleItself(module)
        capability = invoke_capability(tool, str(op))
        decision = self._host.grants.decide(module.descriptor, capability)
        asked = _ModuleInvocation(self._host, caller, party, (tool, content), client)
        if decision.verdict is Authorization.ASK:
            self._host.nursery.start_soon(asked.ask, decision)
        else:
            asked.go_on(Grant(decision, decision.verdict is Authorization.ALLOWED))
        return None if asked.ended else asked


class _ModuleInvocation(Handle):
    """An invocation by a module's process, before and after it is granted."""

    def __init__(
        self,
        host: HostServices,
        caller: ModuleItself,
        party: Party,
        asked: tuple[str, dict[str, Any]],
        client: Client,
    ) -> None:
        self.client = client
        self._host = host
        self._caller = caller
        self._party = party
        self._tool, self._content = asked
        self._scope = trio.CancelScope()
        self._refused = False
        self._invocation: Handle | None = None
        self._begun = False

    @property
    def ended(self) -> bool:
        if self._begun:
            return self._invocation is None or self._invocation.ended
        return self._refused

    async def ask(self, decision: Decision) -> None:
        """Ask a person, and go on as the answer is."""
        with self._scope:
            grant = await self._host.grants.ask(
                self._caller.module.descriptor, decision, self._caller.origin, self._tell
            )
            if not self._refused:
                self.go_on(grant)

    def go_on(self, grant: Grant) -> None:
        grants, caller, party = self._host.grants, self._caller, self._party
        grants.record(grant, caller.origin)
        if not grant.allowed:
            self._refuse(denied(grant, grants.operator.policy, caller.module.descriptor))
            return
        self._begun = True
        self._invocation = self._host.invoke(
            caller.principal,
            self._tool,
            self._content,
            self.client,
            order=party.order,
            account=party.account,
        )

    def cancel(self, stopped: Stopped) -> None:
        if self._begun:
            if self._invocation is not None:
                self._invocation.cancel(stopped)
        else:
            self._refuse(Failure.because(stopped.reason, stopped.message))
            self._scope.cancel()

    def resume(self) -> None:
        if self._invocation is not None:
            self._invocation.resume()

    def _refuse(self, failure: Failure) -> None:
        if not self._refused:
            self._refused = True
            self.client.finished(Response(failure))

    def _tell(self, event: ApprovalUiEvent) -> None:
        if not self._refused:
            self.client.event(event, None)
