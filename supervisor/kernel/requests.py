"""The one way in: a request of any kind, from any face or from within, for a principal.

    begin    a request as it came: an invocation, a look at a module, an op of the daemon's own
    invoke   an invocation, as `begin` has it, and as gates, hooks and host calls do

Requests that the daemon serves itself (ops of its own, and `health` and `describe` of modules) are
begun at once, so that they have their effects in the order in which they come; the rest is a task,
whose steps have their turns with those of the party's other tasks.

Each calls its client back: events as they come, then one response, perhaps at once. Rights are
checked here, before anything is looked up: an unauthorised caller gets the error of an unknown
module, and so does a principal that may not see the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from protocol.connection import Notice, Request
from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason, Success
from protocol.problem import did_you_mean, named
from protocol.replies import Operation
from protocol.response import Response
from protocol.version import VERSION
from supervisor.kernel.begin_order import OWN_OPS, BeginOrder, BeginTasks
from supervisor.kernel.guarded_call import Parents
from supervisor.kernel.host_calls.docket import CallsOfModules, Docket
from supervisor.kernel.host_calls.method import HostServices as HostOfCalls
from supervisor.kernel.host_calls.over_socket import ModuleRequests
from supervisor.kernel.invocation import Invocation, InvocationServices
from supervisor.kernel.invoke_record import record_response
from supervisor.kernel.operations import OPS, inputs
from supervisor.kernel.operations.daemon import NARROW
from supervisor.kernel.operations.op import (
    Args,
    Begun,
    OfModule,
    Op,
    OwnRequest,
    seen_module,
)
from supervisor.kernel.parties import NOBODY, Client, Handle, Party, or_refused, refuse_if
from supervisor.kernel.request_checks import (
    INPUT_FIELDS,
    Unlisted,
    misspelt_fields,
    module_refusal,
    obstacle,
    op_refusal,
    scope_refusal,
    unknown_module,
)
from supervisor.kernel.sessions.session import Session
from supervisor.kernel.spans import Spans
from supervisor.kernel.store.settings import IN_FLIGHT, Span
from supervisor.policy.principals import Principal, Scope
from supervisor.runtime.held_bytes import Account
from supervisor.runtime.supervision.call import NOBODY as NOBODY_YET
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.turns import SharedTurn

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

_INVOKE = Operation.INVOKE
"""A member of an enum is slow to look up, and this is looked up for each request."""


class Requests:
    def __init__(self, kernel: Kernel) -> None:
        self.lineage = kernel.effects.lineage
        self._host = host = kernel.host
        self._fleet = kernel.fleet
        self._effects = effects = kernel.effects
        self._gates = kernel.gates
        self._nursery = nursery = kernel.nursery
        self.begin_tasks = BeginTasks(nursery)
        self._own = OwnRequests(kernel)
        self._parents = Parents()
        calls = HostOfCalls(
            invoke=self.invoke,
            effects=effects,
            grants=kernel.grants,
            approvals=kernel.approvals,
            deadlines=host.deadlines,
            fleet=self._fleet,
            nursery=nursery,
        )
        host.calls = CallsOfModules(calls)
        self._of_modules = ModuleRequests(calls)
        self._setting = InvocationServices(
            host=host,
            effects=effects,
            nursery=nursery,
            invoke=self.invoke,
            gates=self._gates,
            approvals=kernel.approvals,
            calls=partial(Docket, host=calls),
            parents=self._parents,
            account=Account(host.ledger, "the daemon"),
            now=trio.lowlevel.current_clock().current_time,
            refused=Counter(),
        )

    def begin(
        self,
        party: Party,
        tool: str | None,
        operation: str | None,
        content: dict[str, Any],
        client: Client,
    ) -> Handle | None:
        """Begin a request; `tool`, `operation` and `content` are the frame's (docs/protocol.md).

        None is returned if it has ended with that: the client has its response.
        """
        if party.module is not None and operation != NARROW:
            return self._of_modules.begin(party, tool, operation, content, client)
        if tool in party.names:
            return self._own.begin(party, str(tool), operation, content, client)
        if tool is None or operation is None:
            words = (
                'a request needs "tool" and "operation": {"requestId","tool","operation","input"}'
            )
        elif operation == _INVOKE:
            return self.invoke(
                party.principal, tool, content, client, order=party.order, account=party.account
            )
        elif operation in (Operation.HEALTH, Operation.DESCRIBE):
            return self._own.ask(party, tool, Operation(operation), client)
        else:
            words = f"{named(operation, 80)} is not one of health, describe, invoke"
        client.finished(Response(Failure.because(Reason.MALFORMED_REQUEST, words)))
        return None

    def invoke(
        self,
        principal: Principal,
        tool: str,
        content: Mapping[str, Any],
        client: Client,
        *,
        parent: Invocation | None = None,
        behind: frozenset[str] = NOBODY,
        recorded: bool = True,
        order: BeginOrder | None = None,
        account: Account | None = None,
    ) -> Invocation | None:
        """Accept an invocation, or refuse it at once; `content` is the frame's `input`.

        Fields: `op`, `args` (an object, {} if absent), `session_id`, `timeout_s`, which replaces
        the module's `invoke_s` and counts from now, and `traceparent`. `parent` is the invocation
        on whose behalf it is made, and with whose end it ends. Without a parent, `behind` are the
        hooks that it is made for; a caller that names hooks removes them in the end (`lineage`).
        Unless it is `recorded`, the journal says nothing of it: it gives an event to a hook that
        observes, and else a hook for `module:*` would be told of itself. It begins in `order`, and
        its bytes count for `account`, or for that of its parent. None is returned if there is
        nothing left to cancel.
        """
        host, effects = self._host, self._effects
        module = self._fleet.modules.get(tool)
        op, session_id = content.get("op"), content.get("session_id")
        request = Request(
            host.next_request_id(),
            _INVOKE,
            op if isinstance(op, str) else "",
            args if isinstance(args := content.get("args", {}), dict) else {},
            session_id if isinstance(session_id, str) else None,
        )
        if parent is not None or behind:
            self.lineage.begin(request.request_id, behind or self._behind(parent))
        if parent is not None or session_id is not None or module is None or not principal.is_full:
            found, session = self._look(request, module or tool, principal, content, parent)
        else:
            found, session = obstacle(module, content), None
        notices = () if content.keys() <= INPUT_FIELDS else misspelt_fields(content)
        # `type() is`: `isinstance` of a msgspec type is slow to say no, and mostly there is none.
        if type(found) is Failure or module is None:
            assert type(found) is Failure  # noqa: S101 - no module is a refusal
            response = Response(
                found, request.request_id, tool, request.op, 0, request.session_id, notices
            )
            if recorded:
                self._record_refusal(response, principal, parent)
            self._refuse(response, found, session, client)
            return None
        if account is None:
            account = self._setting.account if parent is None else parent.account
        invocation = Invocation(
            request,
            NOBODY_YET,
            module=module,
            client=client,
            principal=principal,
            account=account,
            setting=self._setting,
            session=session,
            parent=parent,
            traceparent=content.get("traceparent") if parent is None else parent.traceparent,
            span=Span(
                key=(IN_FLIGHT, effects.recorder.span_of(request.request_id)),
                began=host.wall_clock(),
                module=module.name,
                op=request.op,
                request_id=request.request_id,
                session_id=request.session_id,
                parent=None if parent is None else parent.span_id,
                by=principal.by,
            ),
            accepted_at=self._setting.now(),
            recorded=recorded,
            notices=notices,
        )
        invocation.begin(content.get("timeout_s"))
        if found is not None or (order and not order.is_clear(tool)):
            order = BeginOrder(SharedTurn(tool)) if order is None else order
            invocation.guard().wait_turn(order, self.begin_tasks, found)
        elif self._gates.any:
            invocation.enter()
        else:
            invocation.entered = True
            module.submit(invocation)
        return None if invocation.ended else invocation

    def tell_spans(self, spans: Spans) -> None:
        """Report each invocation that is accepted from now on to `spans` when it has ended."""
        self._setting.spans = spans

    @property
    def refused(self) -> Counter[str]:
        """The count of invocations that never reached a module since the start, by reason."""
        return self._setting.refused

    @property
    def guarded_calls(self) -> int:
        """The count of accepted invocations that were not plain."""
        return self._setting.guarded_calls

    def stop(self) -> None:
        """End the calls that wait for a gate or a person: the daemon is stopping."""
        for one in tuple(self._setting.guarded):
            one.stop()

    async def wait_none_guarded(self) -> None:
        """Return when each request that waited has begun, and each guarded call has its outcome."""
        while self.begin_tasks.count or self._setting.guarded:
            await self.begin_tasks.wait_none()
            if self._setting.guarded:
                await self._setting.none_guarded.park()

    def _look(
        self,
        request: Request,
        module: Module | str,
        principal: Principal,
        content: Mapping[str, Any],
        parent: Invocation | None,
    ) -> tuple[Failure | Unlisted | None, Session | None]:
        """Return why an invocation is refused or has to wait, and its session.

        `module` is only a name if there is no such module.
        """
        if not principal.is_full:
            tool = module if isinstance(module, str) else module.name
            refusal = self._not_allowed(principal, tool, request.op)
            if refusal is not None:
                return refusal, None
        found: Failure | Unlisted | None
        if isinstance(module, str):
            found = unknown_module(module, self._fleet, principal)
        else:
            found = obstacle(module, content)
        session_id = content.get("session_id")
        session: Session | None = None
        if session_id is not None and self._effects.with_sessions:
            # A module acts in a request's session with the rights of the request's principal.
            whose = principal if parent is None else parent.first.principal
            live = self._effects.sessions.find_live(session_id, whose)
            if isinstance(live, Session):
                session = live
            elif not isinstance(found, Failure):
                found = live
        if parent is None or isinstance(found, Failure) or isinstance(module, str):
            return found, session
        if not module.has_room:
            found = self._parents.reentrant(request.request_id, parent, module) or found
        return found, session

    def _not_allowed(self, principal: Principal, tool: str, op: str) -> Failure | None:
        refusal = scope_refusal(principal, OPS["invoke"].scope, f"invoke {tool:.130}.{op:.80}")
        return refusal or module_refusal(principal, self._fleet, tool, op)

    def _refuse(
        self, response: Response, why: Failure, session: Session | None, client: Client
    ) -> None:
        self._setting.refused[why.details["reason"]] += 1
        self.lineage.end(response.request_id)
        if session is not None:
            self._effects.sessions.answered(session, response)
        client.finished(response)

    def _record_refusal(
        self, response: Response, principal: Principal, parent: Invocation | None
    ) -> None:
        recorder = self._effects.recorder
        parent_span = None if parent is None else parent.span_id
        record_response(
            recorder,
            response,
            recorder.new_span(),
            parent=parent_span,
            by=principal.by,
            was_in_flight=False,
        )

    def _behind(self, parent: Invocation | None) -> frozenset[str]:
        if parent is None:
            return NOBODY
        behind = self.lineage.of(parent.request_id)
        if parent.module.descriptor.kind is Kind.HOOK:
            return behind | {parent.module.name}
        return behind


LOOKS = Scope.READ
"""The scope for `health` and `describe`, of the daemon and of modules."""


class OwnRequests:
    """The daemon as a module: its health, its description, and its ops."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def begin(
        self,
        party: Party,
        tool: str,
        operation: str | None,
        content: dict[str, Any],
        client: Client,
    ) -> Handle | None:
        """Begin a request for `tool`, the daemon's name for this party; as `Requests.begin`."""
        asked: object = operation
        args: Any = content
        notices: tuple[Notice, ...] = ()
        if asked == Operation.INVOKE:
            asked, args = content.get("op"), content.get("args", {})
            notices = misspelt_fields(content)
        name = str(asked)
        op = OPS.get(name)
        request = OwnRequest(party, client, f"{name:.80}", content)
        request.notices = notices
        refusal = op_refusal("the daemon", asked) or self._refusal(party, name, op)
        if refusal is not None:
            request.finish(refusal)
        elif operation == Operation.HEALTH:
            request.finish(Success({"status": "ok"}))
        elif operation == Operation.DESCRIBE:
            request.finish(Success(description(tool)))
        elif op is None:
            request.finish(unknown_op(name))
        elif isinstance(checked := self._check(party.principal, op, args), Failure):
            request.finish(checked)
        elif op.hands_over:
            handle: Handle | None = op.serve(self._kernel, checked, request)
            return handle
        else:
            self._begin_in_order(request, op, checked)
        return None if request.ended else request

    def _begin_in_order(self, request: OwnRequest, op: Op, args: Args) -> None:
        def serve() -> Begun:
            if op.scope is Scope.ADMIN and not op.for_logins:  # each client of a gateway has one
                module = getattr(args, "module", None)
                data = {"op": op.name} if module is None else {"op": op.name, "module": module}
                by = request.principal.by
                self._kernel.recorder.record("daemon:command", module=module, data=data, by=by)
            begun: Begun = op.serve(self._kernel, args, request)
            return begun

        order = request.party.order
        # Requests after a `narrow` have fewer rights at once, though those before it still wait.
        if not order or op.name == NARROW:
            request.begin(serve, self._kernel.nursery)
        else:
            tasks = self._kernel.requests.begin_tasks
            order.place(OWN_OPS, request, lambda _: request.begin(serve, tasks.nursery), tasks)

    def ask(self, party: Party, tool: str, operation: Operation, client: Client) -> Handle | None:
        """Begin a module's `health` or `describe`."""
        request = OwnRequest(party, client, f"{operation} of {tool:.130}")

        def begin() -> Begun:
            what = f"ask {tool:.130} for its {operation}"
            refuse_if(scope_refusal(party.principal, LOOKS, what))
            return answer_of(seen_module(self._kernel, tool, party.principal), operation)

        request.begin(begin, self._kernel.nursery)
        return None if request.ended else request

    def _refusal(self, party: Party, name: str, op: Op | None) -> Failure | None:
        principal = party.principal
        if op is not None and op.for_logins and not party.may_log_in:
            words = f"{principal.name} may not use {name}: that takes a connection of the control"
            words += " socket with all rights, which asks as nobody else"
            return Failure.because(Reason.SCOPE, words)
        if principal.is_full:
            return None
        if op is None:
            needed = LOOKS if name in (Operation.HEALTH, Operation.DESCRIBE) else None
        else:
            needed = op.scope
        refusal = scope_refusal(principal, needed, f"use {name:.80}")
        if refusal is None and op is not None and op.all_modules and not principal.covers_all():
            words = f"{principal.name} may not use {name}: it concerns all modules, not only those"
            words += f" that it may use ({', '.join(principal.modules):.1000})"
            refusal = Failure.because(Reason.SCOPE, words)
        return refusal

    def _check(self, principal: Principal, op: Op, said: Any) -> Args | Failure:
        args = op.check(said)
        if isinstance(args, OfModule) and op.whole_module:
            return module_refusal(principal, self._kernel.fleet, args.module) or args
        return args


def unknown_op(name: str) -> Failure:
    hint = did_you_mean(name, OPS) or f"; it has {', '.join(OPS)}"
    words = f"the daemon has no op {named(name, 80)}{hint}"
    return Failure.because(Reason.UNKNOWN_OP, words, ops=list(OPS))


def description(name: str) -> dict[str, Any]:
    """Return the daemon's answer to `describe`."""
    return {
        "name": name,
        "version": VERSION,
        "kind": "tool",
        "capabilities": [],
        "inputs": inputs(),
        "outputs": {},
        "features": ["cancel"],
    }


async def answer_of(module: Module, operation: Operation) -> dict[str, Any]:
    """Return a module's answer to `health` or `describe`; raises `RefusedError`.

    In a description, `inputs` and `outputs` of its descriptor replace its own: its ops and args are
    held to those.
    """
    answer: dict[str, Any] = or_refused(await module.ask(operation)).result
    if operation is Operation.HEALTH:
        return answer
    declared = {"inputs": module.descriptor.inputs, "outputs": module.descriptor.outputs}
    return answer | {key: value for key, value in declared.items() if value}
