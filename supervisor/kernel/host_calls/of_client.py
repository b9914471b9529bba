"""Methods by which an MCP server asks its client: for folders, a person's answer, a model's.

The params of `model.sample` are those of MCP's `sampling/createMessage`, text only. Where the
client has no model of its own, a module that is a provider answers. Its op `complete` gets
`messages`, each `{role, content}`, and those of `_OPTIONS` that its schema names; it answers with
`content` (or `text`), and optionally with `model` and `stop_reason`. The operator chooses the
provider: of several, the one that the policy grants the module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio

from protocol.descriptor.model import Kind
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.problem import described, quoted
from protocol.response import Response
from supervisor.kernel.hooks.approvals import Question, Resolution
from supervisor.kernel.host_calls.invoking import begin_child
from supervisor.kernel.host_calls.method import HostMethod, HostServices, PendingHostCall, invalid
from supervisor.kernel.parties import Client, RefusedError
from supervisor.policy.capabilities import ROOTS, SAMPLE, USER_ASK, Authorization, sample_capability
from supervisor.policy.form import form_problem
from supervisor.runtime.supervision.module import Module


def client_of(call: PendingHostCall) -> Client | None:
    """Return the client behind a call; None if the module calls on its own account."""
    serving = call.caller.serving
    return None if serving is None else serving.first.client


def askable(call: PendingHostCall, method: str) -> Client | None:
    """Return the client behind a call, if it may be asked by that method."""
    client = client_of(call)
    return client if client is not None and client.may_be_asked(method) else None


async def ask_client(call: PendingHostCall, client: Client, method: str) -> None:
    answered, answers = trio.open_memory_channel[Outcome](1)
    with call.scope:
        withdraw = client.ask(call.call_id, method, call.params, answered.send_nowait)
        try:
            outcome = await answers.receive()
        finally:
            withdraw()
        _pass_on_answer(call, outcome)


def _pass_on_answer(call: PendingHostCall, outcome: Outcome) -> None:
    if isinstance(outcome, Failure):
        call.refuse(outcome)
        return
    result: Any = outcome.result
    if isinstance(result, dict):
        call.answer(result)
    else:
        words = f"the client answered with {described(result)}, it must be an object"
        call.refuse(Failure.because(Reason.INVALID_EVENT, words))


class RootsList(HostMethod):
    """`roots.list`: the folders that the descriptor gives it, as `file:` URIs."""

    names = (ROOTS,)

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        """Answer with the folders; if the descriptor has none, the client answers."""
        descriptor = call.caller.module.descriptor
        # No link is followed: that would ask the disk, and the server does so itself.
        paths = [
            Path(os.path.normpath(Path(descriptor.folder, one)))
            for one in descriptor.transport.mcp.roots
        ]
        client = None if paths else askable(call, ROOTS)
        if client is not None:
            host.nursery.start_soon(ask_client, call, client, ROOTS)
            return
        call.answer({"roots": [{"uri": one.as_uri(), "name": one.name} for one in paths]})


class UserAsk(HostMethod):
    """`user.ask`: a question to a person, which may come with a form to fill in."""

    names = (USER_ASK,)
    params = MappingProxyType({"message": str, "form": dict})
    required = ("message",)

    def capability(self, call: PendingHostCall, host: HostServices) -> str:
        del host
        params = call.params
        problem = form_problem(params["form"]) if "form" in params else None
        if problem is not None:
            raise RefusedError(invalid(problem))
        return USER_ASK

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        """Ask the question; the answer may take as long as the request has."""
        host.nursery.start_soon(self._ask, call, host)

    async def _ask(self, call: PendingHostCall, host: HostServices) -> None:
        with call.scope:
            origin = call.caller.origin
            question = Question(
                origin=origin,
                prompt=call.params["message"],
                asked_by=f"module {origin.module}",
                form=call.params.get("form"),
                call_id=call.call_id,
            )
            call.answer(_decided(await host.approvals.ask(question, call.tell)))


def _decided(decision: Resolution) -> dict[str, Any]:
    if decision.by != "client":
        return {"action": "cancel"}
    if not decision.allowed:
        return {"action": "decline"}
    return {"action": "accept", "content": decision.content or {}}


OP = "complete"
"""The op of a provider."""

_OPTIONS = {"maxTokens": "max_tokens", "temperature": "temperature", "stopSequences": "stop"}
"""Params that a provider gets beside the messages, if its schema has them, by their names in MCP.
"""

_ROLES = ("user", "assistant")

SHOWN = 8
"""Providers that the failure names where there are several."""


class ModelSample(HostMethod):
    """`model.sample`: a module lets a model answer."""

    names = (SAMPLE,)
    params = MappingProxyType(
        {
            "messages": list,
            "systemPrompt": str,
            "maxTokens": int,
            "temperature": float,
            "stopSequences": list,
            "modelPreferences": dict,
            "includeContext": str,
            "metadata": dict,
        }
    )
    required = ("messages",)

    def capability(self, call: PendingHostCall, host: HostServices) -> str:
        """Return `model.sample:MODULE`, with the provider that is to answer.

        `model.sample` alone is for an answer by the client's own model, which comes first.
        """
        if askable(call, SAMPLE) is not None:
            decision = host.grants.decide(call.caller.module.descriptor, SAMPLE)
            if decision.verdict is Authorization.ALLOWED:
                return SAMPLE
        _messages(call.params)
        call.chosen = _choose(call, host)
        return sample_capability(call.chosen)

    def begin(self, call: PendingHostCall, host: HostServices) -> None:
        client = None if call.chosen else askable(call, SAMPLE)
        if client is not None:
            host.nursery.start_soon(ask_client, call, client, SAMPLE)
            return
        provider = host.fleet.modules.get(call.chosen)
        wanted = {} if provider is None else _properties(provider)
        params = call.params
        args = {"messages": _messages(params)}
        args |= {
            name: params[key] for key, name in _OPTIONS.items() if key in params and name in wanted
        }
        begin_child(
            call,
            host,
            call.chosen,
            {"op": OP, "args": args},
            lambda one: _answer_with_text(call, one),
        )


def _choose(call: PendingHostCall, host: HostServices) -> str:
    """Return the name of the provider; raises `RefusedError` if there is none, or several."""
    caller = call.caller
    able = [
        one.name
        for one in host.fleet.modules.values()
        if one is not caller.module
        and one.descriptor.kind is Kind.PROVIDER
        and one.descriptor.enabled
        and "messages" in _properties(one)
        and caller.principal.covers(one.name, OP)
    ]
    if not able:
        words = (
            f"nothing can answer {SAMPLE}: that takes a module of the kind provider whose op"
            f' {OP} has an arg "messages" in its inputs, and there is none, or none that the'
            " caller may use"
        )
        client = client_of(call)
        if client is not None:
            client.was_needed(SAMPLE)
        raise RefusedError.because(Reason.UNKNOWN_MODULE, words)
    by_verdict: dict[Authorization, list[str]] = {}
    for one in able:
        decision = host.grants.decide(caller.module.descriptor, sample_capability(one))
        by_verdict.setdefault(decision.verdict, []).append(one)
    # A provider that a person has to be asked about only where none is allowed.
    found = by_verdict.get(Authorization.ALLOWED) or by_verdict.get(Authorization.ASK)
    if found is None:
        return able[0]  # which is denied, with the rule
    if len(found) > 1:
        shown = ", ".join(map(quoted, found[:SHOWN]))
        example = f"allow = [{quoted(sample_capability(found[0]))}]"
        words = (
            f"several modules could answer {SAMPLE} ({shown}): let the policy grant"
            f" {caller.module.name} one of them only, such as `{example}`"
        )
        raise RefusedError.because(Reason.CAPABILITY, words, capability=SAMPLE)
    return found[0]


def _properties(module: Module) -> Mapping[str, Any]:
    """Return the args of a module's op `complete`, by name, as far as they are known."""
    said = module.descriptions.current or {}
    inputs = module.descriptor.inputs or said.get("inputs")
    schema = inputs.get(OP) if isinstance(inputs, Mapping) else None
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _messages(params: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the messages as a provider takes them; raises `RefusedError`."""
    found = (
        [{"role": "system", "content": params["systemPrompt"]}] if "systemPrompt" in params else []
    )
    for index, one in enumerate(params["messages"]):
        role = one.get("role") if isinstance(one, dict) else None
        text = _text(one.get("content")) if isinstance(one, dict) else None
        if role not in _ROLES or text is None:
            words = f'"messages" has {described(one)} at {index}, no text of user or assistant'
            raise RefusedError(invalid(words))
        found.append({"role": role, "content": text})
    return found


def _text(content: object) -> str | None:
    """Return the text of a content: a string, a block of text, or a list of blocks."""
    match content:
        case str():
            return content
        case {"type": "text", "text": str(text)}:
            return text
        case [*blocks]:
            texts = [_text(one) for one in blocks if isinstance(one, dict)]
            known = [one for one in texts if one is not None]
            return "\n".join(known) if len(known) == len(blocks) else None
    return None


def _answer_with_text(call: PendingHostCall, response: Response) -> None:
    outcome = response.outcome
    result = outcome.result if isinstance(outcome, Success) else None
    said = result if isinstance(result, dict) else {}
    text = _text(said.get("content", said.get("text")))
    if text is None:
        words = f'{call.chosen}.{OP} answered without a text in "content": {described(result)}'
        call.refuse(Failure.because(Reason.INVALID_EVENT, words))
        return
    model, why = said.get("model"), said.get("stop_reason")
    answer = {
        "role": "assistant",
        "content": {"type": "text", "text": text},
        "model": model if isinstance(model, str) else call.chosen,
    }
    call.answer({**answer, "stopReason": why} if isinstance(why, str) else answer)
