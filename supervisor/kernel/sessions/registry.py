"""The sessions of a daemon: the memory decides, the disk follows.

Each merged patch is one `session:patch` entry of the journal. The whole session is kept as a
document when it begins, when it ends, and whenever enough patches have come since; a small document
after each invocation too. So a restart takes the document, and merges the patches with a higher
revision into it in their order.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from protocol.errors import Code, Failure, Reason
from protocol.merge_patch import copied, encoded_bytes, without_nulls
from protocol.problem import did_you_mean, named, printable
from protocol.response import Response
from supervisor.kernel.documents import KeptDocuments
from supervisor.kernel.parties import Provenance, RefusedError, or_refused, refuse_if
from supervisor.kernel.recorder import CutShort, Recorder, Restored
from supervisor.kernel.sessions.session import (
    PAST,
    KeptPast,
    LiveSessions,
    Parent,
    Past,
    Session,
    SessionDocument,
)
from supervisor.policy.principals import SUPERVISOR, Principal
from supervisor.policy.roles import Roles
from supervisor.policy.session import (
    BOUNDS,
    SessionLimits,
    Status,
    count_problem,
    cwd_problem,
    first_state_problem,
    id_problem,
    patch_members_problem,
    plan_problem,
    revision_problem,
    room_problem,
    state_problem,
    title_problem,
)
from supervisor.policy.shares import Shares
from supervisor.policy.verdict import Stopped

if TYPE_CHECKING:
    from supervisor.kernel.invocation import Invocation
    from supervisor.kernel.prompts import Prompts

KIND = "session"

log = structlog.get_logger()


class _PatchData(msgspec.Struct):
    patch: dict[str, Any]


class _PatchEntry(msgspec.Struct):
    """A `session:patch` of the journal; `ts` is the time of the first merge (Unix time, s)."""

    ts: float
    data: _PatchData


LOOKED_THROUGH = 200
"""Sessions that are searched for the one that was probably meant: the newest."""

NAMED_CHARS = 200
"""Characters of an unknown id that a failure repeats."""


class Sessions:
    """All known sessions, in the order in which they began."""

    def __init__(
        self, recorder: Recorder, wall_clock: Callable[[], float], bounds: SessionLimits = BOUNDS
    ) -> None:
        self._recorder = recorder
        self._wall_clock = wall_clock
        self._bounds = bounds
        self._documents = KeptDocuments(
            recorder, KIND, SessionDocument, named_by="session_id", order="created"
        )
        self._all = {name: Session(one, bounds) for name, one in self._documents.items()}
        self._live = LiveSessions(bounds)
        self._ended = Shares[str](bounds.ended)
        self._ended_bytes = Shares[str](bounds.ended_bytes)
        self.prompts: Prompts | None = None
        """Is told of a session that is about to end for want of room."""
        self._restore(recorder.restored)

    # To look at.

    def find(self, session_id: object, principal: Principal) -> Session | Failure:
        """Return the session of that id, ended or not, or the failure.

        A session that the principal may not see is answered as an unknown one.
        """
        problem = id_problem(session_id, self._bounds)
        if problem is not None:
            return Failure.because(Reason.MALFORMED_REQUEST, problem)
        session = self._all.get(str(session_id))
        if session is None or not principal.owns(session.owner):
            return self._unknown(str(session_id), principal)
        return session

    def find_live(self, session_id: object, principal: Principal) -> Session | Failure:
        session = self.find(session_id, principal)
        if isinstance(session, Failure):
            return session
        if session.kept.ended is not None:
            return self._has_ended(session)
        return self._recorder.unavailable() or session

    def owner_of(self, session_id: str) -> str | None:
        """Return the owner of a session, None if it is not known; may be called in any thread."""
        session = self._all.get(session_id)
        return None if session is None else session.owner

    def page(
        self, principal: Principal, limit: int, after: str | None = None, *, ended: bool = False
    ) -> tuple[list[Session], str | None]:
        """Return the newest ones first, those that began before `after`, and the next `after`."""
        found = reversed(self._all.values())
        if after is not None:
            last = or_refused(self.find(after, principal))
            found = itertools.dropwhile(lambda one: one is not last, found)
            next(found)
        wanted = (
            one for one in found if (ended or one.kept.ended is None) and principal.owns(one.owner)
        )
        page = list(itertools.islice(wanted, limit + 1))
        more = len(page) > limit
        return page[:limit], page[limit - 1].id if more else None

    def counts(self, principal: Principal) -> dict[str, int]:
        """Return how many there are, of those that a principal may see."""
        seen = [one for one in self._all.values() if principal.owns(one.owner)]
        ended = sum(1 for one in seen if one.kept.ended is not None)
        busy = sum(1 for one in seen if one.in_flight)
        return {"live": len(seen) - ended, "busy": busy, "ended": ended}

    # To change; each raises `RefusedError` and has then changed nothing.

    def new(
        self,
        principal: Principal,
        session_id: str | None = None,
        *,
        title: str | None = None,
        cwd: str | None = None,
        plan: dict[str, Any] | None = None,
        state: dict[str, Any] | None = None,
        roles: Roles | None = None,
    ) -> Session:
        """Begin a session; without an id it gets one."""
        if title is not None:
            refuse_if(title_problem(title, self._bounds))
        if cwd is not None:
            refuse_if(cwd_problem(cwd, self._bounds))
        if plan is not None:
            refuse_if(plan_problem(plan, self._bounds))
        refuse_if(first_state_problem(state or {}, self._bounds))
        clean = without_nulls(state or {})
        refuse_if(state_problem(encoded_bytes(clean), self._bounds))
        named = {"title": title, "cwd": cwd}
        data = {"plan": plan, **{key: said for key, said in named.items() if said is not None}}
        if clean:
            data["state"] = clean
        roles = roles or Roles()
        if roles.lead is not None:
            data["roles"] = roles.document()
        own_id = self._free_id(session_id, "session_id")
        kept = self._document(
            own_id, principal, title=title, cwd=cwd, plan=plan, state=clean, roles=roles
        )
        return self._begin("session:start", kept, data, principal)

    def fork(
        self,
        principal: Principal,
        session_id: str,
        new_id: str | None = None,
        *,
        title: str | None = None,
        roles: Roles | None = None,
    ) -> Session:
        """Begin a session with the state and the plan of another, which may have ended.

        It has its roles, too, if no other ones are given.
        """
        origin = or_refused(self.find(session_id, principal))
        if title is not None:
            refuse_if(title_problem(title, self._bounds))
        kept = origin.kept
        parent = Parent(kept.session_id, kept.revision)
        data = {"parent": parent.session_id, "revision": parent.revision, "plan": kept.plan}
        state = copied(kept.state)
        name = kept.title if title is None else title
        own_id = self._free_id(new_id, "new_id")
        forked = self._document(
            own_id,
            principal,
            title=name,
            cwd=kept.cwd,
            plan=kept.plan,
            roles=kept.roles if roles is None else roles,
            parent=parent,
            state=state,
        )
        return self._begin("session:fork", forked, data, principal)

    def end(self, principal: Principal, session_id: str) -> tuple[Session, int]:
        """End a session and cancel its open invocations; returns how many those were."""
        session = or_refused(self.find_live(session_id, principal))
        stopped = Stopped(Reason.CLIENT, f"the session {session.id!r} was ended")
        return session, self._end(session, principal, stopped)

    def _end(self, session: Session, principal: Principal, stopped: Stopped, **more: str) -> int:
        open_now = list(session.in_flight.values())
        for invocation in open_now:
            invocation.cancel(stopped)
        now = self._wall_clock()
        session.kept.ended = session.kept.updated = now
        data = {"revision": session.kept.revision, "cancelled": len(open_now), **more}
        self._recorder.record("session:end", session_id=session.id, data=data, by=principal.by)
        self._save(session)
        self._keep_ended(session)
        return len(open_now)

    def _make_room(self, owner: str | None) -> None:
        """End sessions of the owner who has most, until those of `owner` have room."""
        for shares in (self._live.count, self._live.bytes):
            while shares.left < 0:
                ids = shares.to_lose(owner)
                idle = (one for one in ids if not self._all[one].in_flight)
                session = self._all[next(idle, None) or next(iter(ids))]
                cause = f"others needed room, and {session.owner} had most of it"
                stopped = Stopped(Reason.QUEUE_FULL, f"the session {session.id!r} ended: {cause}")
                if self.prompts is not None:
                    self.prompts.gives_way(session, stopped)
                self._end(session, SUPERVISOR, stopped, cause=cause)

    def give_roles(self, session: Session, roles: Roles) -> None:
        session.kept.roles = roles
        self._save(session)

    def patch_from_client(
        self,
        principal: Principal,
        session_id: str,
        patch: dict[str, Any],
        if_revision: int | None = None,
    ) -> Session:
        """Merge a patch, if the state still has that revision."""
        session = or_refused(self.find_live(session_id, principal))
        refuse_if(revision_problem(session.kept.revision, if_revision))
        refuse_if(self.patch(session, patch, principal))
        return session

    def patch(
        self, session: Session, patch: dict[str, Any], source: Provenance | Principal
    ) -> Failure | None:
        """Merge a patch of a module or of a client into a session, or return why not."""
        if session.kept.ended is not None:
            return self._has_ended(session)
        refusal = patch_members_problem(patch, self._bounds) or session.apply(
            patch, self._wall_clock(), self._live.room(session.owner, self._bounds.patch_bytes)
        )
        if refusal is not None:
            return refusal
        origin = source if isinstance(source, Provenance) else None
        self._recorder.record(
            "session:patch",
            session_id=session.id,
            module=None if origin is None else origin.module,
            request_id=None if origin is None else origin.request_id,
            span_id=None if origin is None else origin.span_id,
            data={"revision": session.kept.revision, "patch": patch},
            by=source.by,
        )
        self._live.weigh(session)
        if session.is_worth_saving():
            self._save(session)
        self._make_room(session.owner)
        return None

    # For the pipeline.

    def began(self, session: Session, request_id: str, invocation: Invocation) -> None:
        session.in_flight[request_id] = invocation

    def answered(self, session: Session, response: Response) -> None:
        """Note how an invocation ended, also one that was refused and never was in flight."""
        session.in_flight.pop(response.request_id, None)
        name, document = session.remember(response, self._wall_clock())
        # One that has ended may be forgotten by now, and is not to come back.
        if self._all.get(session.id) is session:
            self._recorder.keep(PAST, name, document)

    # Start and end of the daemon.

    def _restore(self, restored: Restored) -> None:
        """Add to the documents what came after them; the log names what cannot be read."""
        patches, restored.patches = restored.patches, []
        for session_id, revision, event in patches:
            problem = self._merge_again(session_id, revision, event)
            if problem is not None:
                name = printable(session_id)
                log.error("patch not restored", session=name, revision=revision, words=problem)
        pasts = [one for _, one, _ in restored.take(PAST, KeptPast)]
        for past in sorted(pasts, key=lambda one: one.number):
            known = self._all.get(past.session_id)
            if known is not None:
                known.take_past(past)
        cut_short, restored.cut_short = restored.cut_short, []
        for cut in cut_short:
            self._note_cut_short(cut)
        for session in self._all.values():
            self._live.weigh(session)
        ended = [one for one in self._all.values() if one.kept.ended is not None]
        for session in sorted(ended, key=lambda one: one.kept.ended or 0.0):
            self._keep_ended(session)

    def _merge_again(self, session_id: str, revision: int, event: bytes) -> str | None:
        """Merge a patch that is newer than its session's document, or return why not."""
        try:
            entry = msgspec.json.decode(event, type=_PatchEntry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return str(error)
        session = self._all.get(session_id)
        if session is None or revision != session.kept.revision + 1:
            return "the revision that it changed is not there"
        refusal = session.apply(entry.data.patch, entry.ts)
        return None if refusal is None else refusal.message

    def _note_cut_short(self, cut: CutShort) -> None:
        session = self._all.get(cut.session_id)
        if session is None:
            return
        name, document = session.note(
            Past(
                request_id=cut.request_id,
                module=cut.module,
                op=cut.op,
                ok=False,
                code=Code.UNREACHABLE,
                duration_ms=cut.duration_ms,
                ts=cut.ts,
            ),
            Status.ERROR,
        )
        self._recorder.keep(PAST, name, document)

    def save(self) -> None:
        """Keep what only the memory has, such as histories: the daemon is about to end."""
        for session in self._all.values():
            if session.changed:
                self._save(session)

    def _document(self, session_id: str, principal: Principal, **fields: Any) -> SessionDocument:
        now = self._wall_clock()
        return SessionDocument(
            session_id=session_id, owner=principal.name, created=now, updated=now, **fields
        )

    def _begin(
        self, event: str, kept: SessionDocument, data: dict[str, Any], principal: Principal
    ) -> Session:
        refuse_if(self._recorder.unavailable())
        live, owner = self._live, principal.name
        if live.count.growth(owner, 1) < 1:
            refuse_if(count_problem(live.count.total, self._bounds))
        session = Session(kept, self._bounds)
        size = session.most_bytes
        refuse_if(room_problem(size, live.room(owner, size), self._bounds))
        self._all[kept.session_id] = session
        self._recorder.record(event, session_id=session.id, data=data, by=principal.by)
        self._save(session)
        self._make_room(owner)
        return session

    def _free_id(self, wanted: str | None, field: str) -> str:
        if wanted is None:
            made = (f"s-{secrets.token_hex(4)}" for _ in itertools.count())
            return next(one for one in made if one not in self._all)
        problem = id_problem(wanted, self._bounds, field)
        if problem is not None:
            raise RefusedError.because(Reason.MALFORMED_REQUEST, problem)
        if wanted in self._all:
            words = f"there is a session {wanted!r} already"
            raise RefusedError.because(Reason.SESSION_EXISTS, words, pointer=f"/{field}")
        return wanted

    def _unknown(self, session_id: str, principal: Principal) -> Failure:
        newest = itertools.islice(reversed(self._all.values()), LOOKED_THROUGH)
        own = [one.id for one in newest if principal.owns(one.owner)]
        hint = did_you_mean(session_id, own)
        words = f"there is no session {named(session_id, NAMED_CHARS)}{hint}"
        return Failure.because(Reason.UNKNOWN_SESSION, words, session_id=session_id[:NAMED_CHARS])

    def _has_ended(self, session: Session) -> Failure:
        words = f"the session {session.id!r} has ended; fork it to continue from where it was"
        return Failure.because(Reason.SESSION_ENDED, words, session_id=session.id)

    def _save(self, session: Session) -> None:
        self._live.weigh(session)
        self._documents.put(session.id, session.kept)
        self._remove_pasts(session.was_saved(self._documents.size(session.id)))

    def _remove_pasts(self, names: list[str]) -> None:
        for name in names:
            self._recorder.keep(PAST, name, None)

    def _keep_ended(self, session: Session) -> None:
        owner = session.owner
        self._ended.put(owner, session.id)
        self._ended_bytes.put(owner, session.id, session.saved_bytes)
        for shares in (self._ended, self._ended_bytes):
            while shares.left < 0 and self._ended.total > 1:
                self._forget(self._all.pop(next(iter(shares.to_lose(owner)))))

    def _forget(self, session: Session) -> None:
        self._ended.take(session.owner, session.id)
        self._ended_bytes.take(session.owner, session.id)
        self._remove_pasts(session.take_names())
        self._documents.remove(session.id)
