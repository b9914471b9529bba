"""One session: its state with a revision, its open invocations, and its history.

The document of a session has the newest invocations, and may be large. So each that ends in between
is kept as a small document of its own, in one of as many slots as the history has places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from protocol.errors import Failure
from protocol.merge_patch import encoded_bytes, merge_into, merged
from protocol.response import Response
from supervisor.policy.roles import Roles
from supervisor.policy.session import (
    SessionLimits,
    Status,
    patch_size,
    room_problem,
    state_problem,
    status_after,
    status_of,
)
from supervisor.policy.shares import Shares

if TYPE_CHECKING:
    from supervisor.kernel.invocation import Invocation

PAST = "past"


class Past(msgspec.Struct, frozen=True):
    """An invocation that has ended; `ts` is when, in Unix time (s)."""

    request_id: str
    module: str
    op: str
    ok: bool
    code: str | None
    duration_ms: int
    ts: float


class KeptPast(msgspec.Struct, frozen=True):
    """An invocation that no document of its session may have yet; `number` counts from 1."""

    session_id: str
    number: int
    last: Status
    past: Past


SNAPSHOT_BYTES = 64 << 10
"""Patches of so many bytes, or of as many as the state has, make a new document worth its cost: so
the bytes written stay in proportion to the bytes received, and a restart reads no more than twice
that."""

NAME_CHARS = 128
"""Characters kept of the names in a refused request; they may be anything."""


class Parent(msgspec.Struct, frozen=True):
    """The session and the revision that a session was forked from."""

    session_id: str
    revision: int


class SessionDocument(msgspec.Struct, kw_only=True):
    """A session as it is kept on disk; times are Unix time (s)."""

    session_id: str
    owner: str | None = None
    """The name of the principal that began it; None of one that is older than owners."""
    title: str | None = None
    cwd: str | None = None
    """The folder that it is about; nothing is run there because of it."""
    plan: dict[str, Any] | None = None
    roles: Roles = Roles()
    parent: Parent | None = None
    created: float
    updated: float
    ended: float | None = None
    revision: int = 0
    last: Status = Status.IDLE
    """The status in which the last invocation left it."""
    invocations: int = 0
    history: list[Past] = []
    """The newest invocations, the oldest first."""
    state: dict[str, Any] = {}


class Session:
    __slots__ = (
        "_bounds",
        "_most_bytes",
        "_plan_bytes",
        "_slots",
        "_unsaved_bytes",
        "changed",
        "in_flight",
        "kept",
        "saved_bytes",
    )

    def __init__(self, kept: SessionDocument, bounds: SessionLimits) -> None:
        self.kept = kept
        self.in_flight: dict[str, Invocation] = {}
        self.changed = False
        """Whether there is something that neither the last document nor a patch tells."""
        self._bounds = bounds
        self._slots: set[int] = set()
        """Those with the document of an invocation."""
        self._trim_history()
        self._most_bytes = encoded_bytes(kept.state)
        """The size of the state, or more: replaced values are not taken off."""
        self._plan_bytes = encoded_bytes(kept.plan)
        self.saved_bytes = self._most_bytes
        """The size of its last document."""
        self._unsaved_bytes = 0

    @property
    def id(self) -> str:
        return self.kept.session_id

    @property
    def owner(self) -> str | None:
        return self.kept.owner

    @property
    def status(self) -> Status:
        return status_of(
            ended=self.kept.ended is not None, in_flight=len(self.in_flight), last=self.kept.last
        )

    @property
    def most_bytes(self) -> int:
        """The size of its state and its plan as JSON, or more."""
        return self._most_bytes + self._plan_bytes

    def measure(self) -> None:
        """Make `most_bytes` exact."""
        self._most_bytes = encoded_bytes(self.kept.state)

    def apply(self, patch: dict[str, Any], now: float, room: int | None = None) -> Failure | None:
        """Merge a patch into the state; a refused one leaves it as it was.

        The state may grow by `room` bytes, as far as its own bound lets it.
        """
        size = patch_size(patch, self._bounds)
        if isinstance(size, Failure):
            return size
        kept = self.kept
        room = self._bounds.state_bytes if room is None else room
        if self._most_bytes + size > self._bounds.state_bytes or size > room:
            # It may be too much, or values were only replaced: now the cost of measuring is due.
            state = merged(kept.state, patch)
            exact = encoded_bytes(state)
            refusal = state_problem(exact, self._bounds) or room_problem(
                exact - self._most_bytes, room, self._bounds
            )
            if refusal is not None:
                return refusal
            kept.state, self._most_bytes = state, exact
        else:
            merge_into(kept.state, patch)
            self._most_bytes += size
        kept.revision += 1
        kept.updated = now
        self._unsaved_bytes += size
        return None

    def is_worth_saving(self) -> bool:
        """Return whether so much came since the last document that it is time for another."""
        return self._unsaved_bytes > max(SNAPSHOT_BYTES, self.saved_bytes)

    def was_saved(self, size_bytes: int) -> list[str]:
        """Note that its document, of that size, has all there is.

        Returns the names of the documents of invocations, which are not needed any more.
        """
        self._unsaved_bytes = 0
        self.changed = False
        self.saved_bytes = size_bytes
        self._most_bytes = min(self._most_bytes, size_bytes)
        return self.take_names()

    def take_names(self) -> list[str]:
        """Return the names of the documents of invocations, and forget them."""
        names = [self._slot_name(slot) for slot in sorted(self._slots)]
        self._slots.clear()
        return names

    def remember(self, response: Response, now: float) -> tuple[str, bytes]:
        """Note how an invocation ended; returns the name and the content of its document."""
        failure = response.outcome if isinstance(response.outcome, Failure) else None
        return self.note(
            Past(
                request_id=response.request_id,
                module=response.module[:NAME_CHARS],
                op=response.op[:NAME_CHARS],
                ok=failure is None,
                code=None if failure is None else failure.code,
                duration_ms=response.duration_ms,
                ts=now,
            ),
            status_after(response.outcome),
        )

    def note(self, past: Past, last: Status) -> tuple[str, bytes]:
        """Add an entry to the history, as `remember`; `last` is the status after it."""
        self.changed = True
        document = KeptPast(self.id, self.kept.invocations + 1, last, past)
        self.take_past(document)
        name = self._slot_name(document.number % self._bounds.history)
        return name, msgspec.json.encode(document)

    def take_past(self, one: KeptPast) -> None:
        """Add an invocation to the history, in their order; one that is there changes nothing."""
        kept = self.kept
        self._slots.add(one.number % self._bounds.history)
        if one.number > kept.invocations:
            kept.invocations, kept.last = one.number, one.last
            kept.history.append(one.past)
            self._trim_history()

    def _trim_history(self) -> None:
        del self.kept.history[: -self._bounds.history]

    def _slot_name(self, slot: int) -> str:
        return f"{self.id}/{slot}"

    def summary(self) -> dict[str, Any]:
        """Return what a list shows of it."""
        kept = self.kept
        return {
            "session_id": kept.session_id,
            "title": kept.title,
            "cwd": kept.cwd,
            "status": str(self.status),
            "revision": kept.revision,
            "created": kept.created,
            "updated": kept.updated,
            "ended": kept.ended,
            "owner": kept.owner,
            "parent": msgspec.to_builtins(kept.parent),
            "roles": kept.roles.document(),
            "in_flight": len(self.in_flight),
            "invocations": kept.invocations,
        }

    def shown(self) -> dict[str, Any]:
        """Return all of it; the state is the live object, to be encoded at once."""
        return {
            **self.summary(),
            "plan": self.kept.plan,
            "state": self.kept.state,
            "history": [msgspec.to_builtins(one) for one in self.kept.history],
        }


class LiveSessions:
    """The live sessions, by number and by the bytes of their states and plans, in shares by owner.

    A session's own figure may be too large, since replaced values are not taken off. So where the
    sum comes near the bound, those that were patched since are measured; that is one per patch at
    most.
    """

    def __init__(self, bounds: SessionLimits) -> None:
        self.count = Shares[str](bounds.live)
        self.bytes = Shares[str](bounds.live_bytes)
        self._bounds = bounds
        self._inexact: dict[str, Session] = {}

    def weigh(self, session: Session) -> None:
        """Note the new size of a session; the ones that changed last are lost last."""
        owner = session.owner
        self.count.take(owner, session.id)
        self.bytes.take(owner, session.id)
        if session.kept.ended is not None:
            self._inexact.pop(session.id, None)
            return
        self.count.put(owner, session.id)
        self.bytes.put(owner, session.id, session.most_bytes)
        self._inexact[session.id] = session

    def room(self, owner: str | None, most: int) -> int:
        """Return by how many bytes an owner's sessions may grow; exact near the bound."""
        if self.bytes.left < self._bounds.patch_bytes:
            inexact, self._inexact = self._inexact, {}
            for session in inexact.values():
                session.measure()
                self.bytes.put(session.owner, session.id, session.most_bytes)
        return self.bytes.growth(owner, most)
