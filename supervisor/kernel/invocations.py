"""The invoke pipeline: look up, validate, queue, dispatch, collect, respond.

`Invocations.submit` takes a request from any face and calls back: events as they come, then one
response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import trio

from protocol.connection import Request
from protocol.descriptor import HOOK_OP, Kind
from protocol.errors import Failure
from protocol.replies import Operation
from protocol.response import Response
from supervisor.kernel.begin_order import BeginOrder
from supervisor.kernel.effects import Effects
from supervisor.kernel.grants.grants import Grants
from supervisor.kernel.hooks.approvals import Approvals
from supervisor.kernel.hooks.asking import Guarding
from supervisor.kernel.hooks.gates import Gates
from supervisor.kernel.hooks.guard import Guards
from supervisor.kernel.host_calls.docket import Docket
from supervisor.kernel.host_calls.method import Host as HostOfCalls
from supervisor.kernel.invocation import Invocation, Setting
from supervisor.kernel.invoke_record import record_refusal
from supervisor.kernel.parties import Client
from supervisor.kernel.request_checks import doubt_about, request_refusal, unknown_module
from supervisor.kernel.sessions.session import Session
from supervisor.kernel.wait_graph import Parents
from supervisor.runtime.fleet import Fleet
from supervisor.runtime.host import Host
from supervisor.runtime.module import Module


class Deciding(msgspec.Struct, frozen=True):
    """Who decides: gates and people about invocations, the operator about calls to the host."""

    gates: Gates
    approvals: Approvals
    grants: Grants


_INVOKE = Operation.INVOKE
"""A member of an enum is slow to look up, and this is looked up for each request."""


class Invocations:
    """The way in for all invocations."""

    def __init__(
        self, host: Host, fleet: Fleet, effects: Effects, deciding: Deciding, nursery: trio.Nursery
    ) -> None:
        """Serve the invocations of one daemon.

        `nursery` is for the asking of gates, and for what modules call the host for.
        """
        guarding = Guarding(host, deciding.gates, deciding.approvals, nursery, self.submit)
        self.guards = Guards(guarding, effects.lineage)
        self.lineage = effects.lineage
        self._host = host
        self._fleet = fleet
        self._effects = effects
        self._gates = deciding.gates
        self._parents = Parents()
        calls = HostOfCalls(
            submit=self.submit,
            effects=effects,
            grants=deciding.grants,
            checks=host.checks,
            deadlines=host.deadlines,
            nursery=nursery,
            open_bytes=Counter(),
        )
        self._setting = Setting(
            host=host,
            effects=effects,
            calls=partial(Docket, host=calls),
            parents=self._parents,
            now=trio.lowlevel.current_clock().current_time,
        )
        self._unrecorded = msgspec.structs.replace(self._setting, recorded=False)

    def submit(
        self,
        tool: str,
        content: Mapping[str, Any],
        client: Client,
        *,
        parent: Invocation | None = None,
        order: BeginOrder | None = None,
    ) -> Invocation | None:
        """Accept an invocation, or answer at once why not; `content` is the frame's `input`.

        Fields: `op`, `args` (an object, {} if absent), `session_id`, and `timeout_s`, which takes
        the place of the module's `invoke_s`. `parent` is the invocation on whose behalf it is
        made, and with whose end it ends. It begins in the order of those with the same `order`.
        None is returned if there is nothing left to cancel.
        """
        op = content.get("op")
        session_id = content.get("session_id")
        request = Request(
            self._host.next_request_id(),
            _INVOKE,
            op if isinstance(op, str) else "",
            args if isinstance(args := content.get("args", {}), dict) else {},
            session_id if isinstance(session_id, str) else None,
        )
        if parent is not None:
            self.lineage.begin(request.request_id, self._behind(parent))
        module = self._fleet.modules.get(tool)
        if module is None:
            refusal: Failure | None = self.unknown_module(tool)
        else:
            refusal = request_refusal(tool, module, content)
        session: Session | None = None
        if session_id is not None:  # mostly it is; `isinstance` of a msgspec type is slow to say no
            found = self._session(session_id)
            if isinstance(found, Failure):
                refusal = refusal or found
            else:
                session = found
        if refusal is None and parent is not None and module is not None and not module.has_room:
            refusal = self._parents.reentrant(request.request_id, parent, module)
        if refusal is not None or module is None:
            assert refusal is not None  # noqa: S101 - no module is a refusal
            self._refuse(refusal, request, tool, client, session, parent=parent)
            return None
        timeouts = module.descriptor.supervision.timeouts
        invocation = Invocation(request, module, client, session, self._setting, parent=parent)
        invocation.begin(content.get("timeout_s") or timeouts.invoke_s, timeouts.silence_s)
        doubt = doubt_about(module, request.op, request.args)
        if doubt is None and (order is None or order.is_clear(tool)):
            self._enter(invocation)
        else:
            order = order or BeginOrder(self._host.checks, module.name)
            invocation.hold(order, doubt, self._enter)
        return invocation

    def _enter(self, invocation: Invocation) -> None:
        invocation.enter(self.guards.guard(invocation) if self._gates.any else None)

    def deliver(
        self, module: Module, args: dict[str, Any], client: Client, behind: frozenset[str]
    ) -> None:
        """Give an event to a hook that observes; `behind` are the hooks that it is made for.

        The journal says nothing of it: else a hook for `module:*` would be told of itself.
        """
        request_id = self._host.next_request_id()
        request = Request(request_id, Operation.INVOKE, HOOK_OP, args)
        refusal = request_refusal(module.name, module, {"op": HOOK_OP, "args": args})
        if refusal is not None:
            client.finished(Response(refusal, request_id, module.name, HOOK_OP, 0))
            return
        self.lineage.begin(request_id, behind)
        timeouts = module.descriptor.supervision.timeouts
        invocation = Invocation(request, module, client, None, self._unrecorded)
        invocation.begin(timeouts.invoke_s, timeouts.silence_s)
        doubt = doubt_about(module, HOOK_OP, args)
        if doubt is None:
            invocation.enter()
        else:
            order = BeginOrder(self._host.checks, module.name)
            invocation.hold(order, doubt, Invocation.enter)

    def unknown_module(self, tool: str) -> Failure:
        """Say that there is no such module, and which name or descriptor was probably meant."""
        return unknown_module(tool, self._fleet)

    def _behind(self, parent: Invocation) -> frozenset[str]:
        behind = self.lineage.of(parent.request_id)
        if parent.module.descriptor.kind is Kind.HOOK:
            return behind | {parent.module.name}
        return behind

    def _session(self, session_id: object) -> Session | Failure | None:
        if not self._effects.with_sessions:
            return None
        return self._effects.sessions.find_live(session_id)

    def _refuse(
        self,
        failure: Failure,
        request: Request,
        tool: str,
        client: Client,
        session: Session | None,
        *,
        parent: Invocation | None,
    ) -> None:
        response = Response(failure, request.request_id, tool, request.op, 0, request.session_id)
        record_refusal(self._effects.recorder, response, None if parent is None else parent.span_id)
        if parent is not None:
            self.lineage.end(request.request_id)
        if session is not None:
            self._effects.sessions.answered(session, response)
        client.finished(response)
