"""The open calls of one request, or of a process on its own account.

They are taken in the read loop, and begun one after the other in a task. So the calls of a request
begin in the order in which they were made, whatever each then waits for, and a flood of them has
its turn beside those of other requests.
"""

from __future__ import annotations

from collections import deque

import structlog
import trio

from protocol.connection import HostCalled
from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Reason
from protocol.events import Progress
from supervisor.kernel.begin_order import BeginOrder
from supervisor.kernel.grants.grants import CAPABILITY_CHARS, Grant
from supervisor.kernel.host_calls.method import (
    HostMethod,
    HostServices,
    PendingHostCall,
    check_params,
)
from supervisor.kernel.host_calls.methods import method_named
from supervisor.kernel.parties import Caller, Provenance, RefusedError
from supervisor.policy.capabilities import (
    LOG,
    Authorization,
    Decision,
    Policy,
    RulePlace,
    covers,
    remedy,
)
from supervisor.policy.principals import Principal, Scope, module_name
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import ARGS
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.supervision.host import ModuleCalls
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.turns import SharedTurn

OPEN_CALLS = 1024
"""Open calls of one request, or of one process without a request; more are refused."""

log = structlog.get_logger()


class Docket:
    def __init__(self, caller: Caller, host: HostServices) -> None:
        self._caller = caller
        self._host = host
        self._open: dict[str, PendingHostCall] = {}
        self._to_begin: deque[PendingHostCall] = deque()
        self._beginning = False
        self._told: set[bool] = set()
        self.order = BeginOrder(SharedTurn(caller.module.name))
        """The order in which invocations of its calls begin."""

    def take(self, asked: HostCalled, process: Incarnation) -> None:
        refusal = self._refusal(asked)
        if refusal is not None:
            reason, words = refusal
            process.refuse(asked, words, reason)
            return
        call = PendingHostCall(self._caller, asked, process, self)
        self._open[call.call_id] = call
        self._caller.module.account.add(ARGS, asked.size_bytes)
        call.limit(self._host.deadlines)
        self._to_begin.append(call)
        if not self._beginning:
            self._beginning = True
            self._host.nursery.start_soon(self._begin_all)

    def closed(self, call: PendingHostCall) -> None:
        """Remove a call that has its answer."""
        del self._open[call.call_id]
        self._caller.attend()
        self._caller.module.account.add(ARGS, -call.asked.size_bytes)

    @property
    def waiting(self) -> bool:
        """Whether the module waits for an answer."""
        return bool(self._open)

    @property
    def questions(self) -> list[str]:
        """The ids of the open questions to people about whether a call is allowed."""
        return [one.question for one in self._open.values() if one.question is not None]

    def end(self, stopped: Stopped) -> None:
        for call in tuple(self._open.values()):
            call.end(stopped)

    def _refusal(self, asked: HostCalled) -> tuple[Reason, str] | None:
        if asked.call.call_id in self._open:
            words = f"a call {asked.call.call_id[:80]!r} of {self._whose} is open already"
            return Reason.MALFORMED_REQUEST, words
        if len(self._open) >= OPEN_CALLS:
            words = f"{self._whose} has {OPEN_CALLS} calls open, which is the most there may be"
            return Reason.LIMIT_REACHED, words
        account = self._caller.module.account
        if account.total and account.total + asked.size_bytes > account.bounds.party:
            words = (
                f"the open calls of the module would take more than {account.bounds.party} bytes"
            )
            return Reason.LIMIT_REACHED, words
        if not account.fits(asked.size_bytes):
            words = (
                f"{account.bounds.all} bytes is all that the daemon may hold, and there is no room"
            )
            return Reason.QUEUE_FULL, words
        return None

    @property
    def _whose(self) -> str:
        return "no request" if self._caller.serving is None else "the request"

    async def _begin_all(self) -> None:
        try:
            while self._to_begin:
                call = self._to_begin.popleft()
                if call.done:
                    # No turn is taken for it: those that end sooner than they are begun, by a
                    # time-out of their own, would pile up without a bound.
                    continue
                try:
                    self._begin(call)
                except Exception as error:  # noqa: BLE001 - `_fail` logs it
                    _fail(call, error)
                await trio.lowlevel.checkpoint()
        finally:
            self._beginning = False

    def _begin(self, call: PendingHostCall) -> None:
        method = method_named(call.asked.call.method)
        check_params(method, call.params)
        capability = method.capability(call, self._host)
        module = call.caller.module
        decision = self._host.grants.decide(module.descriptor, capability)
        if decision.verdict is Authorization.ASK:
            self._host.nursery.start_soon(self._ask, call, method, decision)
        else:
            allowed = decision.verdict is Authorization.ALLOWED
            self._go_on(call, method, Grant(decision, allowed))

    async def _ask(self, call: PendingHostCall, method: HostMethod, decision: Decision) -> None:
        caller = call.caller
        descriptor = caller.module.descriptor
        try:
            with call.scope:
                grant = await self._host.grants.ask(descriptor, decision, caller.origin, call.tell)
                if not call.done:
                    self._go_on(call, method, grant)
        except Exception as error:  # noqa: BLE001 - `_fail` logs it
            _fail(call, error)

    def _go_on(self, call: PendingHostCall, method: HostMethod, grant: Grant) -> None:
        decision = grant.decision
        self._tell(grant)
        if not grant.allowed:
            grants = self._host.grants
            raise RefusedError(denied(grant, grants.operator.policy, call.caller.module.descriptor))
        claimed = call.asked.call.capability
        if claimed is not None and not _agrees(claimed, decision.capability, method):
            words = (
                f"the call says that it needs the capability {claimed[:200]!r},"
                f" and needs {decision.capability[:300]!r}"
            )
            raise RefusedError.because(Reason.MALFORMED_REQUEST, words)
        method.begin(call, self._host)

    def _tell(self, grant: Grant) -> None:
        """Record a decision; whether a request may log is recorded once."""
        if grant.decision.capability == LOG:
            if grant.allowed in self._told:
                return
            self._told.add(grant.allowed)
        self._host.grants.record(grant, self._caller.origin)


def _fail(call: PendingHostCall, error: Exception) -> None:
    """Answer a call with the failure of an exception that is being handled."""
    # No context manager: it would leave a cycle (docs/limits.md, Memory).
    if isinstance(error, RefusedError):
        call.refuse(error.failure)
        return
    # A mistake of ours in one method is that call's failure; the daemon serves the others.
    log.error("a host call failed", method=call.asked.call.method[:80], exc_info=error)
    words = f"the call failed in the daemon: {type(error).__name__}; its log says where"
    call.refuse(Failure.because(Reason.REPORTED, words))


def denied(grant: Grant, policy: Policy, descriptor: Descriptor) -> Failure:
    """Return the failure that names the rule, and what to write where to grant the call."""
    capability = grant.decision.capability[:CAPABILITY_CHARS]
    why = grant.words
    if policy.source is None and grant.decision.rule.source is RulePlace.MODE:
        why = "no policy grants it"
    hint = remedy(policy, grant.decision, descriptor.source)
    words = f"{grant.decision.module} may not {capability}: {why}: {hint}"
    return Failure.because(Reason.CAPABILITY, words, capability=capability, rule=grant.words)


def _agrees(claimed: str, capability: str, method: HostMethod) -> bool:
    # The Pi schema: "must match core-derived requirement". It may be less exact than ours is.
    return covers(claimed, capability) or claimed in method.names


class ModuleItself:
    """A module as a caller (kernel.parties.Caller), if a process of it calls for no request.

    The same rules and bounds hold for these calls. They have no session and no parent, no client is
    told of them, and they end with the process.
    """

    serving = None
    session_id = None
    ancestors = ()

    def __init__(self, module: Module) -> None:
        self.module = module
        self.principal = Principal(module_name(module.name), "module", frozenset({Scope.INVOKE}))
        self.origin = Provenance(
            module.name, "", None, owner=self.principal.name, by=self.principal.by
        )

    def attend(self) -> None: ...

    def tell_first(self, event: Progress) -> None: ...


class CallsOfModules(ModuleCalls):
    """The calls of all processes for no request."""

    def __init__(self, host: HostServices) -> None:
        self._host = host
        self._dockets: dict[str, Docket] = {}

    def take(self, module: Module, asked: HostCalled, process: Incarnation) -> None:
        docket = self._dockets.get(process.instance)
        if docket is None:
            docket = Docket(ModuleItself(module), self._host)
            self._dockets[process.instance] = docket
        docket.take(asked, process)

    def end(self, instance: str) -> None:
        docket = self._dockets.pop(instance, None)
        if docket is not None:
            words = f"{instance}, on whose behalf it was made, has ended"
            docket.end(Stopped(Reason.PARENT_ENDED, words))
