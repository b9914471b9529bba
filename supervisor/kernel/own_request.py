"""Requests that the daemon serves itself: ops of its own, and `health` and `describe` of modules.

Each is begun at once, so that requests have their effects in the order in which they come; the rest
is a task, whose steps have their turns with those of the party's other tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import structlog
import trio

from protocol.connection import Notice
from protocol.errors import Failure, Reason, Success
from protocol.replies import Operation
from supervisor.kernel.begin_order import BeginOrder, order_of
from supervisor.kernel.operations import ALL_MODULES, SCOPES, WHOLE_MODULE, Operations
from supervisor.kernel.operations.connection import NARROW
from supervisor.kernel.operations.op import Begun, OwnRequest
from supervisor.kernel.parties import Client, Handle, Invoke, Party, or_refused, refuse_if
from supervisor.kernel.prompts import PROMPT, Prompt, Prompts
from supervisor.kernel.request_checks import (
    Doubt,
    misspelt_fields,
    module_refusal,
    op_refusal,
    scope_refusal,
    unknown_module,
)
from supervisor.kernel.taking_effect import Effects
from supervisor.policy.principals import Principal, Scope
from supervisor.runtime.checking.checks import Checks
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.turns import Turn, in_turns

log = structlog.get_logger()


class OwnRequests:
    operations: Operations
    """The ops; they need this object themselves, so this is set later."""

    def __init__(
        self, fleet: Fleet, effects: Effects, checks: Checks, invoke: Invoke, nursery: trio.Nursery
    ) -> None:
        self.prompts = Prompts(fleet, effects.sessions, effects.ui, invoke)
        self._fleet = fleet
        self._recorder = effects.recorder
        self._checks = checks
        self._invoke = invoke
        self._nursery = nursery

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
        session_id = content.get("session_id")
        op = str(asked)
        session_id = session_id if isinstance(session_id, str) else None
        request = OwnRequest(party, client, f"{op:.80}", session_id)
        request.notices = notices
        refusal = op_refusal("the daemon", asked) or self._refusal(party.principal, op)
        if refusal is not None:
            request.finish(refusal)
        elif operation == Operation.HEALTH:
            request.finish(Success({"status": "ok"}))
        elif operation == Operation.DESCRIBE:
            request.finish(Success(self.operations.describe(tool)))
        elif isinstance(found := self.operations.refusal(op, args), Failure):
            request.finish(found)
        elif found is not None:
            doubt = found
            request.begin(lambda: self._look_and_run(doubt, request), self._nursery)
        elif (refusal := self._module_refusal(party.principal, op, args)) is not None:
            request.finish(refusal)
        elif op == "invoke":
            return self._invoke_through(party, content, args, client)
        elif op == PROMPT:
            return self._prompt(party, args, client)
        else:
            self._begin_in_order(request, op, args)
        return None if request.ended else request

    def _invoke_through(
        self, party: Party, content: dict[str, Any], args: dict[str, Any], client: Client
    ) -> Handle | None:
        """Begin an invocation through the daemon: so it serves as a module of another daemon."""
        order = order_of(party, self._checks)
        if "traceparent" in content:
            args = {**args, "traceparent": content["traceparent"]}
        return self._invoke(
            party.principal, args["module"], args, client, order=order, account=party.account
        )

    def _prompt(self, party: Party, args: dict[str, Any], client: Client) -> Handle | None:
        """Begin a prompt in the order of the party's requests."""
        prompt = Prompt(self.prompts, party.principal, args, client)
        prompt.account = party.account

        def begin(_: Failure | None = None) -> None:
            if prompt.ended:
                return
            turn, steps = Turn(), self.prompts.beginning(prompt)
            turn.begin()
            if any(turn.over for _ in steps):
                order.pause()
                self._nursery.start_soon(self._begin_prompt, party, steps, order)

        order = order_of(party, self._checks)
        if not order:
            begin()
        else:
            order.hold(None, None, begin)
        return None if prompt.ended else prompt

    async def _begin_prompt(self, party: Party, rest: Iterator[None], order: BeginOrder) -> None:
        await in_turns(party.label, PROMPT, rest)
        order.go_on()

    def _begin_in_order(self, request: OwnRequest, op: str, args: dict[str, Any]) -> None:
        def begin(_: Failure | None) -> None:
            if not request.ended:
                request.begin(lambda: self._begin_op(op, args, request), self._nursery)

        order = order_of(request.party, self._checks)
        # Requests after a `narrow` have fewer rights at once, though those before it still wait.
        if not order or op == NARROW:
            begin(None)
        else:
            order.hold(None, None, begin)

    def _begin_op(self, op: str, args: dict[str, Any], request: OwnRequest) -> Begun:
        if SCOPES.get(op) is Scope.ADMIN:
            module = args.get("module")
            data = {"op": op} if module is None else {"op": op, "module": module}
            by = request.principal.by
            self._recorder.record("daemon:command", module=module, data=data, by=by)
        return self.operations.begin(op, args, request)

    async def _look_and_run(self, doubt: Doubt, request: OwnRequest) -> Any:
        """Run an op whose args are in doubt, if they prove valid; raises `RefusedError`.

        A request with `1.0` for `1` has no place in the order: it begins later.
        """
        op, args = doubt.what, doubt.args
        refusal = await doubt.settled(self._checks, request.party.label)
        refusal = refusal or self._module_refusal(request.principal, op, args)
        # Of these all that is valid is accepted at once.
        if refusal is None and op in ("invoke", PROMPT):
            refusal = Failure.because(Reason.INVALID_ARGS, "the args are not valid")
        refuse_if(refusal)
        begun = self._begin_op(op, args, request)
        return begun if isinstance(begun, dict) else await begun

    def ask(self, party: Party, tool: str, operation: Operation, client: Client) -> Handle | None:
        """Begin a module's `health` or `describe`."""
        request = OwnRequest(party, client, f"{operation} of {tool:.130}")
        principal = party.principal
        what = f"ask {tool:.130} for its {operation}"
        refusal = scope_refusal(principal, SCOPES[str(operation)], what)
        module = self._fleet.modules.get(tool)
        if refusal is None and (module is None or not principal.sees(tool)):
            refusal = unknown_module(tool, self._fleet, principal)
        if refusal is not None or module is None:
            assert refusal is not None  # noqa: S101 - no module is a refusal
            request.finish(refusal)
            return None
        request.begin(lambda: answer_of(module, operation), self._nursery)
        return None if request.ended else request

    def _refusal(self, principal: Principal, op: str) -> Failure | None:
        if principal.is_full:
            return None
        refusal = scope_refusal(principal, SCOPES.get(op), f"use {op:.80}")
        if refusal is None and op in ALL_MODULES and not principal.covers_all():
            words = f"{principal.name} may not use {op}: it concerns all modules, not only those"
            words += f" that it may use ({', '.join(principal.modules):.1000})"
            refusal = Failure.because(Reason.SCOPE, words)
        return refusal

    def _module_refusal(
        self, principal: Principal, op: str, args: dict[str, Any]
    ) -> Failure | None:
        if op not in WHOLE_MODULE:
            return None
        return module_refusal(principal, self._fleet, args["module"])


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
