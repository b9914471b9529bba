"""The roles of a session: the modules that serve its prompts.

Either an agent does, or an orchestrator, which works with a context, a provider and tools. Both
serve the op `execute`, with the text as `prompt`; an orchestrator also gets the session's
`context`, `provider` and `tools`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason

EXECUTE = "execute"

TOOLS = 100
"""The most tools that may be named."""

_OF_ORCHESTRATOR = ("context", "provider", "tools")


class Roles(msgspec.Struct, frozen=True, omit_defaults=True):
    """The modules that serve a session's prompts, by role; `Roles()` names none."""

    agent: str | None = None
    orchestrator: str | None = None
    context: str | None = None
    provider: str | None = None
    tools: tuple[str, ...] = ()

    @property
    def lead(self) -> str | None:
        return self.agent or self.orchestrator

    def cast(self) -> Iterator[tuple[str, Kind, str]]:
        """Yield each named role: its place in the document, the required kind, the module."""
        for kind in (Kind.AGENT, Kind.ORCHESTRATOR, Kind.CONTEXT, Kind.PROVIDER):
            name = getattr(self, kind)
            if name is not None:
                yield f"/roles/{kind}", kind, name
        for number, name in enumerate(self.tools):
            yield f"/roles/tools/{number}", Kind.TOOL, name

    def document(self) -> dict[str, Any]:
        named: dict[str, Any] = msgspec.to_builtins(self)
        return {**named, "tools": list(self.tools)} if self.tools else named

    def args(self, prompt: str) -> dict[str, Any]:
        own = self.document()
        return {"prompt": prompt, **{key: own[key] for key in _OF_ORCHESTRATOR if key in own}}

    def problem(self) -> Failure | None:
        """Say which roles do not go together, or None."""
        if self.agent is not None and self.orchestrator is not None:
            words = "a session has an agent or an orchestrator, not both"
            return Failure.because(Reason.INVALID_ARGS, words, pointer="/roles/orchestrator")
        given = [one for one in _OF_ORCHESTRATOR if getattr(self, one)]
        if given and self.orchestrator is None:
            words = f"{' and '.join(given)} are what an orchestrator works with: name it, too"
            return Failure.because(Reason.INVALID_ARGS, words, pointer=f"/roles/{given[0]}")
        return None


def only_agent(session_id: str, agents: list[str], orchestrators: list[str]) -> str | Failure:
    """Return the only agent there is, for a session that names none; else what to do."""
    if len(agents) == 1:
        return agents[0]
    if agents:
        found = f"there are several agents, {_listed(agents)}"
    elif orchestrators:
        found = f"there is no agent; there are the orchestrators {_listed(orchestrators)}"
    else:
        found = "there is no module of the kind agent or orchestrator"
    words = (
        f"the session {session_id!r} names no module to serve its prompts, and {found};"
        " name one when it begins, or fork it with one"
    )
    return Failure.because(Reason.NO_AGENT, words, agents=agents[:TOOLS])


def _listed(names: list[str]) -> str:
    more = len(names) - 10
    shown = ", ".join(names[:10])
    return f"{shown} and {more} more" if more > 0 else shown
