"""Prompts: requests to sessions, one at a time in each session.

A prompt is an `execute` of the module that leads the session's roles. Its client gets `ui_event`s
with the names of `protocol.amcp`, and a response whose result has the text:

    prompt.received  prompt.queued  prompt.started  message.start
        message.chunk  agent.thinking  tool.call_start ...    as its module says, and calls tools
    message.complete, or message.error

Subscribers of the session see the same, and `prompt.rejected`, `session.status_changed` and
`agent.idle` as well. A prompt for a busy session waits: the more urgent first, then the earlier.
Nothing here is a task: a prompt is the client of its invocation, and the end of one begins the
next.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from enum import IntEnum, StrEnum
from itertools import islice
from typing import Any

import msgspec

from protocol.amcp import EventType
from protocol.amcp_errors import error_of
from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason, Success
from protocol.events import Log, Progress, UiEvent, built
from protocol.host_events import HostUiEvent
from protocol.problem import printable
from protocol.response import Response
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.parties import Answered, Client, Invoke, Provenance, Withdraw
from supervisor.kernel.request_checks import unknown_module
from supervisor.kernel.sessions.registry import Sessions
from supervisor.kernel.sessions.session import Session
from supervisor.kernel.ui_events import UiEvents
from supervisor.policy.principals import SUPERVISOR, Principal
from supervisor.policy.roles import EXECUTE, Roles, only_agent
from supervisor.policy.verdict import Stopped
from supervisor.runtime.held_bytes import Account
from supervisor.runtime.supervision.call import Congestion
from supervisor.runtime.supervision.fleet import Fleet

PROMPT = "session.prompt"
"""The op; it takes `session_id`, `content`, `priority`, `conflict_strategy` and `timeout_s`."""

QUEUED = 64
"""Prompts of a session that wait for the one that runs; one more is refused."""

CONTENT_CHARS = 4 << 20
"""The bound on a prompt: some million tokens."""

SAID_CHARS = 1 << 20
"""Characters kept of a module's chunks, to be its answer if its result has no text."""

PREVIEW_CHARS = 100
"""Characters of a prompt that subscribers of the session see."""


class Priority(IntEnum):
    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3


class Conflict(StrEnum):
    """What happens to a prompt for a busy session."""

    QUEUE = "queue"
    REJECT = "reject"


class Prompt(Client):
    """One prompt: the handle of its client, and the client of its invocation."""

    __slots__ = (
        "_invocation",
        "_prompts",
        "_said",
        "_said_chars",
        "able",
        "account",
        "client",
        "conflict",
        "content",
        "ended",
        "lane",
        "lead",
        "message_id",
        "principal",
        "priority",
        "session_id",
        "timeout_s",
    )

    def __init__(
        self, prompts: Prompts, principal: Principal, args: dict[str, Any], client: Client
    ) -> None:
        """Take the args of `session.prompt`; `begin` follows."""
        self.client = client
        self.principal = principal
        self.session_id: str = args["session_id"]
        self.content: str = args["content"]
        self.priority = Priority[args.get("priority", "normal").upper()]
        self.conflict = Conflict(args.get("conflict_strategy", "queue"))
        self.timeout_s: float | None = args.get("timeout_s")
        self.account: Account | None = None
        self.message_id = f"m-{secrets.token_hex(6)}"
        self.ended = False
        self.lane: Lane | None = None
        """The lane where it waits or runs."""
        self.able = Able()
        """The modules that could take it, if its session names none."""
        self.lead = ""
        """The module that it is for, once that is known."""
        self._prompts = prompts
        self._invocation: Invocation | None = None
        self._said: list[str] = []
        self._said_chars = 0

    # For its client (kernel.parties.Handle).

    def cancel(self, stopped: Stopped) -> None:
        """End it, whether it runs or waits; idempotent."""
        if self._invocation is not None:
            self._invocation.cancel(stopped)
        elif not self.ended:
            self.settle(Response(Failure.because(stopped.reason, stopped.message)))

    def resume(self) -> None:
        if self._invocation is not None:
            self._invocation.resume()

    # For its invocation (kernel.parties.Client).

    def event(self, event: Progress, line: bytes | None) -> None:
        """Pass an event on; a module's `log` becomes an `agent.thinking`."""
        if type(event) is Log:
            payload = {"thought": f"{event.message}\n", "level": event.level}
            thought = UiEvent(version="0", event=EventType.AGENT_THINKING, payload=payload)
            self._prompts.ui.tell(thought, self._origin)
            self.client.event(thought, None)
            return
        if isinstance(event, UiEvent) and event.event == EventType.MESSAGE_CHUNK:
            self._keep(event)
        self.client.event(event, line)

    def finished(self, response: Response) -> None:
        self.settle(response)

    def congested(self) -> Congestion:
        return self.client.congested()

    def may_be_asked(self, method: str) -> bool:
        return self.client.may_be_asked(method)

    def ask(
        self,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Answered,
    ) -> Withdraw:
        return self.client.ask(key, method, params, answered)

    # For its lane.

    def run(self, lead: str, roles: Roles) -> None:
        self.lead = lead
        self.tell(EventType.PROMPT_STARTED, message_id=self.message_id)
        self._prompts.tell_status(self)
        self.tell(EventType.MESSAGE_START, message_id=self.message_id)
        content: dict[str, Any] = {
            "op": EXECUTE,
            "args": roles.args(self.content),
            "session_id": self.session_id,
        }
        if self.timeout_s is not None:
            content["timeout_s"] = self.timeout_s
        invocation = self._prompts.invoke(self.principal, lead, content, self, account=self.account)
        self._invocation = None if self.ended else invocation

    def tell(self, kind: EventType, **payload: Any) -> None:
        """Send an event to its client and to the subscribers of the session."""
        self.client.event(self._prompts.publish(kind, payload, self._origin), None)

    def settle(self, response: Response) -> None:
        """Answer it; then the next one has its turn."""
        if self.ended:
            return
        self.ended = True
        outcome = response.outcome
        if isinstance(outcome, Failure):
            error = error_of(outcome).body()
            told = EventType.MESSAGE_ERROR, {"message_id": self.message_id, **error}
        else:
            answer = self._answer(outcome)
            outcome = Success(answer, outcome.summary)
            whole = {"message_id": self.message_id, "content": answer["content"], "done": True}
            told = EventType.MESSAGE_COMPLETE, whole
        lane = self.lane
        if lane is not None:
            self.tell(told[0], **told[1])
        response = msgspec.structs.replace(
            response,
            outcome=outcome,
            module=response.module or self.lead,
            op=response.op or EXECUTE,
            session_id=self.session_id,
        )
        self._invocation = None  # they held each other
        if lane is not None:
            self._prompts.left(self, lane)
        self.client.finished(response)
        if lane is not None:
            self._prompts.advance(lane)

    @property
    def _origin(self) -> Provenance:
        return self._prompts.origin(self, self._invocation)

    def _keep(self, event: UiEvent) -> None:
        content = built(event.payload).get("content")
        if isinstance(content, str) and self._said_chars < SAID_CHARS:
            self._said.append(content[: SAID_CHARS - self._said_chars])
            self._said_chars += len(content)

    def _answer(self, outcome: Success) -> dict[str, Any]:
        result = outcome.result
        text = _text(result)
        content = "".join(self._said) if text is None else text
        return {"message_id": self.message_id, "content": content, "result": result}


def _text(result: Any) -> str | None:
    """Return the text of a module's result, if it has one: a string, or its `content` or `text`."""
    if isinstance(result, str):
        return result
    if not isinstance(result, dict):
        return None
    content = result.get("content")
    if isinstance(content, list):  # MCP's content blocks
        texts = [one.get("text") for one in content if isinstance(one, dict)]
        return "".join(one for one in texts if isinstance(one, str))
    found = (one for one in (content, result.get("text")) if isinstance(one, str))
    return next(found, None)


class Lane:
    """The prompts of one session: one that runs, and those that wait."""

    __slots__ = ("advancing", "running", "session", "waiting")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.running: Prompt | None = None
        self.waiting: list[Prompt] = []
        self.advancing = False

    def line_up(self, prompt: Prompt) -> int:
        """Queue a prompt behind all that are as urgent; returns its place, from 1."""
        urgent = [one.priority >= prompt.priority for one in self.waiting]
        place = urgent.index(False) if False in urgent else len(urgent)
        self.waiting.insert(place, prompt)
        return place + 1


class Prompts:
    def __init__(self, fleet: Fleet, sessions: Sessions, ui: UiEvents, invoke: Invoke) -> None:
        self.ui = ui
        self.invoke = invoke
        self._fleet = fleet
        self._sessions = sessions
        self._lanes: dict[str, Lane] = {}
        """The lanes of the sessions that have a prompt."""
        sessions.prompts = self

    def waiting(self, session_id: str) -> int:
        lane = self._lanes.get(session_id)
        return 0 if lane is None else len(lane.waiting)

    def beginning(self, prompt: Prompt) -> Iterator[None]:
        """Run a prompt, queue it or refuse it: with the last step, if it has not ended."""
        session = self._sessions.find_live(prompt.session_id, prompt.principal)
        if not isinstance(session, Failure) and session.kept.roles.lead is None:
            for _ in prompt.able.looking(self._fleet, prompt.principal):
                yield
                if prompt.ended:
                    return
        self._begin(prompt)

    def _begin(self, prompt: Prompt) -> None:
        session = self._sessions.find_live(prompt.session_id, prompt.principal)
        cast = session if isinstance(session, Failure) else self._cast(session, prompt)
        if isinstance(cast, Failure) or isinstance(session, Failure):
            assert isinstance(cast, Failure)  # noqa: S101 - no session is a refusal
            prompt.settle(Response(cast))
            return
        prompt.lead = cast[0]
        lane = self._lanes.get(session.id)
        refusal = None if lane is None else self._no_room(lane, prompt)
        if refusal is not None:
            payload = {"reason": refusal.message, "conflict_strategy": str(prompt.conflict)}
            told = {"message_id": prompt.message_id, **payload}
            self.publish(EventType.PROMPT_REJECTED, told, self.origin(prompt, None, session))
            prompt.settle(Response(refusal))
            return
        if lane is None:
            lane = self._lanes[session.id] = Lane(session)
        prompt.lane = lane
        dots = "..." if len(prompt.content) > PREVIEW_CHARS else ""
        prompt.tell(
            EventType.PROMPT_RECEIVED,
            message_id=prompt.message_id,
            content_preview=prompt.content[:PREVIEW_CHARS] + dots,
            content_length=len(prompt.content),
            priority=prompt.priority.name.lower(),
        )
        if lane.running is None and not lane.waiting:
            self._run(lane, prompt)
        else:
            position = lane.line_up(prompt)
            prompt.tell(EventType.PROMPT_QUEUED, message_id=prompt.message_id, position=position)

    def cancel(
        self, session: Session, stopped: Stopped, *, running: bool = True, waiting: bool = True
    ) -> int:
        """End the prompts of a session, first those that wait; returns how many there were."""
        lane = self._lanes.get(session.id)
        if lane is None:
            return 0
        found = lane.waiting[::-1] if waiting else []
        if running and lane.running is not None:
            found.append(lane.running)
        for one in found:
            one.cancel(stopped)
        return len(found)

    def gives_way(self, session: Session, stopped: Stopped) -> None:
        """End what waits in a session that is about to end, and tell its subscribers."""
        self.cancel(session, stopped, running=False)
        origin = Provenance("", "", None, session.id, None, session.owner, SUPERVISOR.by)
        self.publish(EventType.SESSION_DELETED, {"title": session.kept.title}, origin)

    # For a prompt.

    def publish(self, kind: EventType, payload: dict[str, Any], origin: Provenance) -> HostUiEvent:
        """Send an event to the subscribers of the session; returns the event."""
        event = HostUiEvent(version="0", event=kind, payload=payload)
        self.ui.tell(event, origin)
        return event

    def tell_status(self, prompt: Prompt) -> None:
        """Send subscribers the status of the prompt's session."""
        lane = prompt.lane
        assert lane is not None  # noqa: S101 - it runs, or did a moment ago
        status = "busy" if lane.running is not None else str(lane.session.status)
        payload = {"status": status}
        self.publish(EventType.SESSION_STATUS_CHANGED, payload, self.origin(prompt, None))

    def origin(
        self, prompt: Prompt, invocation: Invocation | None, session: Session | None = None
    ) -> Provenance:
        if session is None and prompt.lane is not None:
            session = prompt.lane.session
        return Provenance(
            prompt.lead,
            EXECUTE,
            None if invocation is None else invocation.request_id,
            prompt.session_id,
            None if invocation is None else invocation.span_id,
            None if session is None else session.owner,
            prompt.principal.by,
        )

    def left(self, prompt: Prompt, lane: Lane) -> None:
        """Note that a prompt neither runs nor waits any more."""
        if lane.running is prompt:
            lane.running = None
            self.tell_status(prompt)
        elif prompt in lane.waiting:
            lane.waiting.remove(prompt)

    def advance(self, lane: Lane) -> None:
        """Run the next prompt, if none runs."""
        if lane.advancing:
            return  # one that ended at once: the loop goes on
        lane.advancing = True
        while lane.running is None and lane.waiting:
            self._run(lane, lane.waiting.pop(0))
        lane.advancing = False
        if lane.running is None and self._lanes.get(lane.session.id) is lane:
            del self._lanes[lane.session.id]
            idle = Provenance("", "", None, lane.session.id, None, lane.session.owner)
            self.publish(EventType.AGENT_IDLE, {}, idle)

    def _run(self, lane: Lane, prompt: Prompt) -> None:
        lane.running = prompt
        # Anew: its module may have gone while it waited.
        cast = self._cast(lane.session, prompt)
        if isinstance(cast, Failure):
            prompt.settle(Response(cast))
        else:
            prompt.run(*cast)

    def _cast(self, session: Session, prompt: Prompt) -> tuple[str, Roles] | Failure:
        roles = session.kept.roles
        found = cast_of(session.id, roles, prompt.able, self._fleet, prompt.principal)
        if not isinstance(found, Failure) and roles.lead is None:
            # So that the session stays with its module, whichever modules come later.
            self._sessions.give_roles(session, found[1])
        return found

    def _no_room(self, lane: Lane, prompt: Prompt) -> Failure | None:
        session_id = lane.session.id
        if prompt.conflict is Conflict.REJECT:
            words = f"the session {session_id!r} is busy with another prompt"
            return Failure.because(Reason.SESSION_BUSY, words, session_id=session_id)
        if len(lane.waiting) < QUEUED:
            return None
        words = f"{QUEUED} prompts wait in the session {session_id!r} already"
        return Failure.because(Reason.QUEUE_FULL, words, session_id=session_id)


LOOKED_AT = 100
"""Modules of a kind that are looked at for a suggestion."""


class Able(msgspec.Struct):
    """The modules that could take the prompts of a session that names nobody, by name."""

    agents: list[str] = []
    orchestrators: list[str] = []
    """Only if there are no agents."""

    def looking(self, fleet: Fleet, principal: Principal) -> Iterator[None]:
        """Look for them, one module with each step: each is matched against all globs."""
        # Whom it may ask, it also sees.
        for name in _named(Kind.AGENT, fleet):
            if principal.covers(name, EXECUTE):
                self.agents.append(name)
            yield
        for name in () if self.agents else _named(Kind.ORCHESTRATOR, fleet):
            if principal.sees(name):
                self.orchestrators.append(name)
            yield


def cast_problem(roles: Roles, fleet: Fleet, principal: Principal) -> Failure | None:
    """Return why a role cannot be played by the module that is named for it, or None."""
    for pointer, kind, name in roles.cast():
        module = fleet.modules.get(name)
        role = pointer.split("/")[2]
        if module is None or not principal.sees(name):
            missing = unknown_module(name, fleet, principal)
            words = f"the session's {role}: {missing.message}"
            return Failure.because(Reason.UNKNOWN_MODULE, words, module=name[:128], role=role)
        found = module.descriptor.kind
        if found is not kind:
            words = f"the session's {role}: {printable(name, 128)} is of the kind {found}"
            able = filter(principal.sees, _named(kind, fleet)[:LOOKED_AT])
            words += f"; modules of the kind {kind}: {', '.join(islice(able, 10)) or 'none'}"
            return Failure.because(Reason.INVALID_ARGS, words, pointer=pointer)
    return None


def cast_of(
    session_id: str, roles: Roles, able: Able, fleet: Fleet, principal: Principal
) -> tuple[str, Roles] | Failure:
    """Return the module for a session's prompts and its roles; the only agent if none is named."""
    lead = roles.lead
    if lead is None:
        # Not a module that has gone since.
        agents = [name for name in able.agents if _is_of(Kind.AGENT, name, fleet)]
        orchestrators = [
            name for name in able.orchestrators if _is_of(Kind.ORCHESTRATOR, name, fleet)
        ]
        found = only_agent(session_id, agents, orchestrators)
        if isinstance(found, Failure):
            return found
        return found, Roles(agent=found)
    return cast_problem(roles, fleet, principal) or (lead, roles)


def _is_of(kind: Kind, name: str, fleet: Fleet) -> bool:
    module = fleet.modules.get(name)
    return module is not None and module.descriptor.kind is kind


def _named(kind: Kind, fleet: Fleet) -> list[str]:
    found = (one.descriptor for one in fleet.modules.values() if one.descriptor.kind is kind)
    return sorted(one.name for one in found if one.enabled)
