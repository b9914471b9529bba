"""The ops about sessions: `session.new`, `.list`, `.show`, `.fork`, `.end`, `.patch`, `.cancel`.

`session.prompt` is served from `kernel.prompts`, as an invocation is. Ops that change something
answer once the change is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

import msgspec

from protocol.amcp import EventType
from protocol.errors import Reason
from supervisor.kernel.operations.op import MODULE, WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import Provenance, or_refused, refuse_if
from supervisor.kernel.prompts import cast_problem
from supervisor.kernel.sessions.session import Session
from supervisor.policy.roles import TOOLS, Roles
from supervisor.policy.verdict import Stopped

PAGE = 100
MAX_PAGE = 1000

_SESSION = {**WORD, "description": "a session's id"}
_OWN_ID = {**WORD, "description": "an id of your own; one is made up if left out"}
_TITLE = {**WORD, "description": "what people call it"}
_CWD = {**WORD, "description": "the folder that it is about, an absolute path"}
_ROLES = {
    "type": "object",
    "properties": {
        "agent": MODULE,
        "orchestrator": MODULE,
        "context": MODULE,
        "provider": MODULE,
        "tools": {"type": "array", "items": MODULE, "maxItems": TOOLS},
    },
    "additionalProperties": False,
    "description": "what serves its prompts: an agent, or an orchestrator and what it works with",
}


class SessionOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "session.new": args_schema(
            session_id=_OWN_ID,
            title=_TITLE,
            cwd=_CWD,
            plan={"description": 'Plan Schema v1: {"goal": a string, "inputs": an object}'},
            state={"type": "object", "description": "what it begins with", "default": {}},
            roles=_ROLES,
        ),
        "session.list": args_schema(
            limit={"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": PAGE},
            after={**WORD, "description": "`next` of the page before"},
            ended={"type": "boolean", "default": False, "description": "ended ones too"},
        ),
        "session.show": args_schema(("session_id",), session_id=_SESSION),
        "session.fork": args_schema(
            ("session_id",), session_id=_SESSION, new_id=_OWN_ID, title=_TITLE, roles=_ROLES
        ),
        "session.end": args_schema(("session_id",), session_id=_SESSION),
        "session.patch": args_schema(
            ("session_id", "patch"),
            session_id=_SESSION,
            patch={"type": "object", "description": "a JSON Merge Patch (RFC 7396)"},
            if_revision={
                "type": "integer",
                "minimum": 0,
                "description": "refuse the patch unless the state has this revision",
            },
        ),
        "session.cancel": args_schema(
            ("session_id",),
            session_id=_SESSION,
            queued={
                "type": "boolean",
                "default": True,
                "description": "the prompts too that wait for the one that runs",
            },
            force={
                "type": "boolean",
                "default": False,
                "description": "whatever else is in flight for the session, too",
            },
        ),
    }

    def ops(self) -> Mapping[str, Op]:
        return {
            "session.new": self._new,
            "session.list": self._list,
            "session.show": self._show,
            "session.fork": self._fork,
            "session.end": self._end,
            "session.patch": self._patch,
            "session.cancel": self._cancel,
        }

    def _new(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        args["roles"] = self._roles(args, asked)
        return self._begun(self._parts.effects.sessions.new(asked.principal, **args), asked)

    def _list(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        principal, sessions = asked.principal, self._parts.effects.sessions
        limit, ended = int(args.get("limit", PAGE)), args.get("ended", False)
        page, following = sessions.page(principal, limit, args.get("after"), ended=ended)
        return {
            "sessions": [self._summary(session) for session in page],
            "next": following,
            **sessions.counts(principal),
        }

    def _show(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        found = or_refused(self._parts.effects.sessions.find(args["session_id"], asked.principal))
        shown, principal = found.shown() | self._queued(found), asked.principal
        if not principal.covers_all():
            past = shown["history"]
            shown["history"] = [one for one in past if principal.covers(one["module"], one["op"])]
        return shown

    def _fork(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        forked = self._parts.effects.sessions.fork(
            asked.principal,
            args["session_id"],
            args.get("new_id"),
            title=args.get("title"),
            roles=self._roles(args, asked),
        )
        return self._begun(forked, asked)

    def _end(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        session = self._live(args["session_id"], asked)
        stopped = Stopped(Reason.CLIENT, f"the session {session.id!r} was ended")
        waited = self._parts.prompts.cancel(session, stopped, running=False)
        session, cancelled = self._parts.effects.sessions.end(asked.principal, session.id)
        self._tell(EventType.SESSION_DELETED, session, asked)
        return self._stored(session, cancelled=waited + cancelled)

    def _patch(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        expected = args.get("if_revision")
        session = self._parts.effects.sessions.patch_from_client(
            asked.principal,
            args["session_id"],
            args["patch"],
            None if expected is None else int(expected),
        )
        # The revision that this patch led to: others may come while it is being stored.
        return self._when_stored({"session_id": session.id, "revision": session.kept.revision})

    def _cancel(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        session = self._live(args["session_id"], asked)
        force = args.get("force", False)
        what = "all that was in flight for" if force else "the prompts of"
        stopped = Stopped(Reason.CLIENT, f"{what} the session {session.id!r} was cancelled")
        queued = args.get("queued", True)
        cancelled = self._parts.prompts.cancel(session, stopped, running=not force, waiting=queued)
        for one in list(session.in_flight.values()) if force else ():  # the running one, too
            one.cancel(stopped)
            cancelled += 1
        return {"session_id": session.id, "cancelled": cancelled}

    def _live(self, session_id: str, asked: OwnRequest) -> Session:
        return or_refused(self._parts.effects.sessions.find_live(session_id, asked.principal))

    def _roles(self, args: dict[str, Any], asked: OwnRequest) -> Roles | None:
        """Return the named roles; raises `RefusedError` if they cannot be played."""
        if "roles" not in args:
            return None
        roles = msgspec.convert(args["roles"], Roles)
        refuse_if(roles.problem() or cast_problem(roles, self._parts.fleet, asked.principal))
        return roles

    def _begun(self, session: Session, asked: OwnRequest) -> Awaitable[Any]:
        self._tell(EventType.SESSION_CREATED, session, asked)
        return self._stored(session)

    def _tell(self, kind: EventType, session: Session, asked: OwnRequest) -> None:
        owner, by = session.owner, asked.principal.by
        origin = Provenance("", "", None, session.id, None, owner, by)
        self._parts.prompts.publish(kind, {"title": session.kept.title}, origin)

    def _queued(self, session: Session) -> dict[str, int]:
        return {"queued": self._parts.prompts.waiting(session.id)}

    def _summary(self, session: Session) -> dict[str, Any]:
        return session.summary() | self._queued(session)

    def _stored(self, session: Session, **more: Any) -> Awaitable[Any]:
        return self._when_stored({**self._summary(session), **more})
