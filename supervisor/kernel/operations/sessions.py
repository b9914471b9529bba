"""The ops about sessions: `session.new`, `.list`, `.show`, `.fork`, `.end`, `.patch`.

Those that change something answer once the change is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

from supervisor.kernel.operations.op import Asked, Op, Parts, args_schema
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.sessions.session import Session

PAGE = 100
MAX_PAGE = 1000

_SESSION = {"type": "string", "description": "a session's id"}
_OWN_ID = {"type": "string", "description": "an id of your own; one is made up if left out"}
_TITLE = {"type": "string", "description": "what people call it"}


class SessionOps:
    """Ops about sessions."""

    INPUTS: ClassVar[Mapping[str, Any]] = {
        "session.new": args_schema(
            session_id=_OWN_ID,
            title=_TITLE,
            plan={"description": 'Plan Schema v1: {"goal": a string, "inputs": an object}'},
            state={"type": "object", "description": "what it begins with", "default": {}},
        ),
        "session.list": args_schema(
            limit={"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": PAGE},
            after={"type": "string", "description": "`next` of the page before"},
            ended={"type": "boolean", "default": False, "description": "ended ones too"},
        ),
        "session.show": args_schema(("session_id",), session_id=_SESSION),
        "session.fork": args_schema(
            ("session_id",), session_id=_SESSION, new_id=_OWN_ID, title=_TITLE
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
    }

    def __init__(self, parts: Parts) -> None:
        """Prepare to serve."""
        self._sessions = parts.effects.sessions
        self._durability = parts.effects.durability

    def ops(self) -> Mapping[str, Op]:
        """Return the ops."""
        return {
            "session.new": self._new,
            "session.list": self._list,
            "session.show": self._show,
            "session.fork": self._fork,
            "session.end": self._end,
            "session.patch": self._patch,
        }

    def _new(self, args: dict[str, Any], asked: Asked) -> Awaitable[Any]:
        return self._stored(self._sessions.new(asked.principal, **args))

    def _list(self, args: dict[str, Any], asked: Asked) -> dict[str, Any]:
        principal = asked.principal
        limit, ended = int(args.get("limit", PAGE)), args.get("ended", False)
        page, following = self._sessions.page(principal, limit, args.get("after"), ended=ended)
        return {
            "sessions": [session.summary() for session in page],
            "next": following,
            **self._sessions.counts(principal),
        }

    def _show(self, args: dict[str, Any], asked: Asked) -> dict[str, Any]:
        found = self._sessions.find(args["session_id"], asked.principal)
        if not isinstance(found, Session):
            raise RefusedError(found)
        shown, principal = found.shown(), asked.principal
        if not principal.covers_all():
            past = shown["history"]
            shown["history"] = [one for one in past if principal.covers(one["module"], one["op"])]
        return shown

    def _fork(self, args: dict[str, Any], asked: Asked) -> Awaitable[Any]:
        forked = self._sessions.fork(
            asked.principal, args["session_id"], args.get("new_id"), title=args.get("title")
        )
        return self._stored(forked)

    def _end(self, args: dict[str, Any], asked: Asked) -> Awaitable[Any]:
        session, cancelled = self._sessions.end(asked.principal, args["session_id"])
        return self._stored(session, cancelled=cancelled)

    def _patch(self, args: dict[str, Any], asked: Asked) -> Awaitable[Any]:
        expected = args.get("if_revision")
        session = self._sessions.patch_from_client(
            asked.principal,
            args["session_id"],
            args["patch"],
            None if expected is None else int(expected),
        )
        # The revision that this patch led to: others may come while it is being stored.
        return self._confirmed({"session_id": session.id, "revision": session.kept.revision})

    def _stored(self, session: Session, **more: Any) -> Awaitable[Any]:
        return self._confirmed({**session.summary(), **more})

    async def _confirmed(self, result: dict[str, Any]) -> dict[str, Any]:
        await self._durability.confirmed()
        return result
