"""The ops about sessions: `session.new`, `.list`, `.show`, `.fork`, `.end`, `.patch`, `.cancel`.

Ops that change something answer once the change is stored. `session.prompt` stands in `calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from protocol.amcp import EventType
from protocol.errors import Reason
from supervisor.kernel.operations.op import (
    Args,
    Begun,
    ModuleName,
    Natural,
    OwnRequest,
    Word,
    op,
    when_stored,
)
from supervisor.kernel.parties import Provenance, or_refused, refuse_if
from supervisor.kernel.prompts import cast_problem
from supervisor.kernel.sessions.session import Session
from supervisor.policy.principals import Scope
from supervisor.policy.roles import TOOLS, Roles
from supervisor.policy.verdict import Stopped

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

PAGE = 100
MAX_PAGE = 1000


class RolesArgs(Args):
    agent: ModuleName | UnsetType = UNSET
    orchestrator: ModuleName | UnsetType = UNSET
    context: ModuleName | UnsetType = UNSET
    provider: ModuleName | UnsetType = UNSET
    tools: Annotated[tuple[ModuleName, ...], Meta(max_length=TOOLS)] | UnsetType = UNSET


OwnId = Annotated[Word | None, "an id of your own; one is made up if left out"]
Title = Annotated[Word | None, "what people call it"]
RolesToPlay = Annotated[
    RolesArgs | None, "what serves its prompts: an agent, or an orchestrator and what it works with"
]


class NewSession(Args):
    session_id: OwnId = None
    title: Title = None
    cwd: Annotated[Word | None, "the folder that it is about, an absolute path"] = None
    plan: Annotated[Any, 'Plan Schema v1: {"goal": a string, "inputs": an object}'] = None
    state: Annotated[dict[str, Any], "what it begins with"] = msgspec.field(default_factory=dict)
    roles: RolesToPlay = None


@op("session.new", Scope.INVOKE, NewSession)
def new_session(kernel: Kernel, args: NewSession, request: OwnRequest) -> Begun:
    session = kernel.sessions.new(
        request.principal,
        args.session_id,
        title=args.title,
        cwd=args.cwd,
        plan=args.plan,
        state=args.state,
        roles=_playable(kernel, args.roles, request),
    )
    return _created(kernel, session, request)


class SessionListArgs(Args):
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = PAGE
    after: Annotated[Word | None, "`next` of the page before"] = None
    ended: Annotated[bool, "ended ones too"] = False


@op("session.list", Scope.READ, SessionListArgs)
def list_sessions(kernel: Kernel, args: SessionListArgs, request: OwnRequest) -> Begun:
    principal, sessions = request.principal, kernel.sessions
    page, following = sessions.page(principal, args.limit, args.after, ended=args.ended)
    return {
        "sessions": [_summary(kernel, session) for session in page],
        "next": following,
        **sessions.counts(principal),
    }


class OfSession(Args):
    session_id: Annotated[Word, "a session's id"]


@op("session.show", Scope.READ, OfSession)
def show_session(kernel: Kernel, args: OfSession, request: OwnRequest) -> Begun:
    principal = request.principal
    found = or_refused(kernel.sessions.find(args.session_id, principal))
    shown = found.shown() | _queued(kernel, found)
    if not principal.covers_all():
        past = shown["history"]
        shown["history"] = [one for one in past if principal.covers(one["module"], one["op"])]
    return shown


class ForkArgs(OfSession):
    new_id: OwnId = None
    title: Title = None
    roles: RolesToPlay = None


@op("session.fork", Scope.INVOKE, ForkArgs)
def fork_session(kernel: Kernel, args: ForkArgs, request: OwnRequest) -> Begun:
    forked = kernel.sessions.fork(
        request.principal,
        args.session_id,
        args.new_id,
        title=args.title,
        roles=_playable(kernel, args.roles, request),
    )
    return _created(kernel, forked, request)


@op("session.end", Scope.INVOKE, OfSession)
def end_session(kernel: Kernel, args: OfSession, request: OwnRequest) -> Begun:
    session = _live(kernel, args, request)
    stopped = Stopped(Reason.CLIENT, f"the session {session.id!r} was ended")
    waited = kernel.prompts.cancel(session, stopped, running=False)
    session, cancelled = kernel.sessions.end(request.principal, session.id)
    _publish(kernel, EventType.SESSION_DELETED, session, request)
    return when_stored(kernel, _summary(kernel, session) | {"cancelled": waited + cancelled})


class PatchArgs(OfSession):
    patch: Annotated[dict[str, Any], "a JSON Merge Patch (RFC 7396)"]
    if_revision: Annotated[
        Natural | None, "refuse the patch unless the state has this revision"
    ] = None


@op("session.patch", Scope.INVOKE, PatchArgs)
def patch_session(kernel: Kernel, args: PatchArgs, request: OwnRequest) -> Begun:
    session = kernel.sessions.patch_from_client(
        request.principal, args.session_id, args.patch, args.if_revision
    )
    # The revision that this patch led to: others may come while it is being stored.
    revision = session.kept.revision
    return when_stored(kernel, {"session_id": session.id, "revision": revision})


class CancelArgs(OfSession):
    queued: Annotated[bool, "the prompts too that wait for the one that runs"] = True
    force: Annotated[bool, "whatever else is in flight for the session, too"] = False


@op("session.cancel", Scope.INVOKE, CancelArgs)
def cancel_session(kernel: Kernel, args: CancelArgs, request: OwnRequest) -> Begun:
    session = _live(kernel, args, request)
    what = "all that was in flight for" if args.force else "the prompts of"
    stopped = Stopped(Reason.CLIENT, f"{what} the session {session.id!r} was cancelled")
    cancelled = kernel.prompts.cancel(session, stopped, running=not args.force, waiting=args.queued)
    for one in list(session.in_flight.values()) if args.force else ():  # the running one, too
        one.cancel(stopped)
        cancelled += 1
    return {"session_id": session.id, "cancelled": cancelled}


def _live(kernel: Kernel, args: OfSession, request: OwnRequest) -> Session:
    return or_refused(kernel.sessions.find_live(args.session_id, request.principal))


def _playable(kernel: Kernel, said: RolesArgs | None, request: OwnRequest) -> Roles | None:
    """Return the named roles; raises `RefusedError` if they cannot be played."""
    if said is None:
        return None
    roles = msgspec.convert(msgspec.to_builtins(said), Roles)
    refuse_if(roles.problem() or cast_problem(roles, kernel.fleet, request.principal))
    return roles


def _created(kernel: Kernel, session: Session, request: OwnRequest) -> Begun:
    _publish(kernel, EventType.SESSION_CREATED, session, request)
    return when_stored(kernel, _summary(kernel, session))


def _publish(kernel: Kernel, kind: EventType, session: Session, request: OwnRequest) -> None:
    origin = Provenance("", "", None, session.id, None, session.owner, request.principal.by)
    kernel.prompts.publish(kind, {"title": session.kept.title}, origin)


def _queued(kernel: Kernel, session: Session) -> dict[str, int]:
    return {"queued": kernel.prompts.waiting(session.id)}


def _summary(kernel: Kernel, session: Session) -> dict[str, Any]:
    return session.summary() | _queued(kernel, session)
