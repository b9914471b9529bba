"""Methods by which an MCP server asks its client: for its folders, and for a person's answer."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

from supervisor.kernel.hooks.approvals import Decision, Question
from supervisor.kernel.host_calls.asking_clients import ask_client, askable
from supervisor.kernel.host_calls.method import Host, Method, invalid
from supervisor.kernel.host_calls.open_call import OpenCall
from supervisor.kernel.parties import RefusedError
from supervisor.policy.capabilities import ROOTS, USER_ASK
from supervisor.policy.form import form_problem


class RootsList(Method):
    """`roots.list`: the folders that the descriptor gives it, as `file:` URIs."""

    names = (ROOTS,)

    def begin(self, call: OpenCall, host: Host) -> None:
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


class UserAsk(Method):
    """`user.ask`: a question to a person, which may come with a form to fill in."""

    names = (USER_ASK,)
    params = MappingProxyType({"message": str, "form": dict})
    required = ("message",)

    def capability(self, call: OpenCall, host: Host) -> str:
        del host
        params = call.params
        problem = form_problem(params["form"]) if "form" in params else None
        if problem is not None:
            raise RefusedError(invalid(problem))
        return USER_ASK

    def begin(self, call: OpenCall, host: Host) -> None:
        """Ask the question; the answer may take as long as the request has."""
        host.nursery.start_soon(self._ask, call, host)

    async def _ask(self, call: OpenCall, host: Host) -> None:
        with call.scope:
            origin = call.caller.origin
            question = Question.about(
                origin,
                prompt=call.params["message"],
                asked_by=f"module {origin.module}",
                form=call.params.get("form"),
                call_id=call.call_id,
            )
            call.answer(_answer(await host.approvals.ask(question, call.tell)))


def _answer(decision: Decision) -> dict[str, Any]:
    if decision.by != "client":
        return {"action": "cancel"}
    if not decision.allowed:
        return {"action": "decline"}
    return {"action": "accept", "content": decision.content or {}}
