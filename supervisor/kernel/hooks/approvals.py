"""The questions that wait for a person: asked by gates and by the policy, answered by any client.

`ask` waits for the answer, for the time-out, or to be cancelled: a question ends with the request
it is about. Each is in the journal twice, as `approval:request` and as `approval:decision`; in
between it is a document, so that the next daemon decides it if this one is killed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import trio

from protocol.errors import Reason
from protocol.hook_result import ApprovalDefault
from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.parties import Provenance, RefusedError, refuse_if
from supervisor.kernel.recorder import Recorder
from supervisor.kernel.request_checks import scope_refusal
from supervisor.kernel.store.settings import NAME_CHARS, OPEN_QUESTION, DocumentKey, OpenQuestion
from supervisor.policy.approval import allows, options_of
from supervisor.policy.form import filled
from supervisor.policy.principals import Principal, Scope

OPEN = 256
"""How many questions may wait; one more is denied."""

PROMPT_CHARS = 2000

REQUEST, DECISION = "approval.request", "approval.decision"
"""The events that tell the client of the request about a question."""

FOLLOWED = 1000
"""Changes that wait for a follower that reads slowly; it is told how many more there were."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question: the text, who asks (`hook NAME`, `policy`), and about which request."""

    prompt: str
    asked_by: str
    origin: Provenance
    """The request; its owner is the question's."""
    options: tuple[str, ...] = ()
    """The options in words; `allow` and `deny` are always understood too."""
    timeout_s: float = 300.0
    default: ApprovalDefault = ApprovalDefault.DENY
    """The decision when nobody answers in time."""
    form: dict[str, Any] | None = None
    """The form to fill in to allow it (`policy.form`)."""
    call_id: str | None = None
    """The module's own id of the question."""


class Resolution(msgspec.Struct, frozen=True):
    """The decision of a question; `by` is `client`, `timeout`, `withdrawn` or `too_many`."""

    allowed: bool
    answer: str
    by: str
    content: dict[str, Any] | None = None
    """The filled-in form. Only the module that asked gets it; no journal has it."""


POLICY = "policy"
"""The asker of the operator's questions, whose answers may be remembered (`grants.grants`)."""

WITHDRAWN = Resolution(allowed=False, answer="deny", by="withdrawn")


class _OpenQuestion:
    def __init__(self, id_: str, question: Question) -> None:
        self.id = id_
        self.question = question
        self.asked_at = trio.current_time()
        self.decision: Resolution | None = None
        self.decided_by: msgspec.Raw | None = None
        self.answered = trio.Event()

    def document(self) -> dict[str, Any]:
        """Return the question as clients see it; `left_s` is until the default applies."""
        question, origin = self.question, self.question.origin
        left_s = question.timeout_s - (trio.current_time() - self.asked_at)
        return {
            "id": self.id,
            "prompt": question.prompt[:PROMPT_CHARS],
            "options": list(options_of(question.options)),
            "asked_by": question.asked_by,
            "module": origin.module,
            "op": origin.op[:NAME_CHARS],
            "request_id": origin.request_id,
            "session_id": origin.session_id,
            "timeout_s": question.timeout_s,
            "left_s": round(max(0.0, left_s), 3),
            "default": str(question.default),
            **({} if question.form is None else {"form": question.form}),
            **({} if question.call_id is None else {"call_id": question.call_id}),
        }


class QuestionUpdate(msgspec.Struct, frozen=True):
    """A question that was asked, or decided (`decision`), for a follower; `lost` came before it."""

    question: dict[str, Any]
    decision: Resolution | None = None
    lost: int = 0


class Following:
    """The changes that one follower has not taken yet."""

    def __init__(self, principal: Principal) -> None:
        self.lost = 0
        self.principal = principal
        self.send, self._receive = trio.open_memory_channel[QuestionUpdate](FOLLOWED)

    def put(self, change: QuestionUpdate) -> None:
        """Add a change, or count it where there is no room."""
        try:
            self.send.send_nowait(change)
        except trio.WouldBlock:
            self.lost += 1

    async def next(self) -> QuestionUpdate:
        change = await self._receive.receive()
        lost, self.lost = self.lost, 0
        return msgspec.structs.replace(change, lost=lost) if lost else change


class Approvals:
    """The open questions of one daemon."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: dict[str, _OpenQuestion] = {}
        self._followers: list[Following] = []
        self._stopping = False

    async def ask(
        self, question: Question, tell: Callable[[ApprovalUiEvent], None] = lambda _: None
    ) -> Resolution:
        """Ask, and wait for the decision; `tell` takes events for the client of the request.

        If this is cancelled, the question is withdrawn.
        """
        if self._stopping:
            return WITHDRAWN
        if len(self._open) >= OPEN:
            return Resolution(allowed=False, answer="deny", by="too_many")
        one = _OpenQuestion(self._new_id(), question)
        self._open[one.id] = one
        document = one.document()
        key = self._keep(one.id, question)
        self._record("approval:request", question, None, document, by=question.origin.by)
        self._publish(question, QuestionUpdate(document))
        tell(_event(REQUEST, one.id, document))
        try:
            with trio.move_on_after(question.timeout_s):
                await one.answered.wait()
            if one.decision is None:
                allowed = question.default is ApprovalDefault.ALLOW
                one.decision = Resolution(allowed, str(question.default), "timeout")
            return one.decision
        finally:
            del self._open[one.id]
            decision = one.decision or WITHDRAWN
            said = {"id": one.id, "answer": decision.answer, "by": decision.by}
            status = "allowed" if decision.allowed else "denied"
            by = one.decided_by or question.origin.by
            self._record("approval:decision", question, status, said, by=by, in_place_of=key)
            self._publish(question, QuestionUpdate(document, decision))
            tell(_event(DECISION, one.id, {**said, "allowed": decision.allowed}))

    def decide(
        self, id_: str, answer: str, principal: Principal, content: dict[str, Any] | None = None
    ) -> Resolution:
        """Answer a question; raises `RefusedError` if it does not wait, or for another answer.

        `content` is its filled-in form, if it has one and the answer allows. A question of the
        policy is for the operator: the principal of the request may not allow himself what it
        needs. A gate's question is about the request alone.
        """
        one = self._open.get(id_)
        if one is None or one.decision is not None or not _may_see(principal, one.question):
            words = (
                f"no question {id_!r:.80} waits; it may have been answered, its time may be over,"
                " or its request has ended"
            )
            raise RefusedError.because(Reason.UNKNOWN_APPROVAL, words)
        options = options_of(one.question.options)
        allowed = allows(answer, options)
        if allowed is None:
            words = f"{answer!r:.80} is not an answer to {id_}; there are {', '.join(options)}"
            raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="/answer")
        if one.question.asked_by == POLICY:
            refuse_if(scope_refusal(principal, Scope.ADMIN, f"answer {answer!r:.80} to {id_}"))
        found = _filled(one.question.form, content, allowed=allowed)
        if isinstance(found, str):
            raise RefusedError.because(Reason.INVALID_ARGS, f"{id_}: {found}", pointer="/content")
        one.decided_by = principal.by
        one.decision = Resolution(allowed, answer, "client", found)
        one.answered.set()
        return one.decision

    def stop(self) -> None:
        """Withdraw all questions, and all later ones: the daemon is stopping."""
        self._stopping = True
        for one in self._open.values():
            one.decision = one.decision or WITHDRAWN
            one.answered.set()

    def waiting(self, principal: Principal) -> list[dict[str, Any]]:
        """Return the open questions that a principal may see, the oldest first."""
        return [
            one.document()
            for one in self._open.values()
            if one.decision is None and _may_see(principal, one.question)
        ]

    def follow(self, principal: Principal) -> tuple[Following, Callable[[], None]]:
        """Begin to follow; returns the follower and the function that ends it."""
        following = Following(principal)
        self._followers.append(following)
        return following, lambda: self._followers.remove(following)

    def status(self, principal: Principal) -> dict[str, int]:
        return {"waiting": len(self.waiting(principal)), "followers": len(self._followers)}

    def _new_id(self) -> str:
        # Not a number: an answer to a question of a former daemon must not be one to another.
        while (id_ := f"ap-{secrets.token_hex(3)}") in self._open:
            pass
        return id_

    def _publish(self, question: Question, change: QuestionUpdate) -> None:
        for one in self._followers:
            if _may_see(one.principal, question):
                one.put(change)

    def _keep(self, id_: str, question: Question) -> DocumentKey:
        key = (OPEN_QUESTION, self._recorder.new_span())
        origin = question.origin
        session_id = origin.session_id and origin.session_id[:NAME_CHARS]
        kept = OpenQuestion(
            id_, origin.module, origin.request_id, session_id, origin.span_id, origin.by
        )
        self._recorder.span_began(key, kept)
        return key

    def _record(
        self,
        event: str,
        question: Question,
        status: str | None,
        data: dict[str, Any],
        *,
        by: msgspec.Raw | None,
        in_place_of: DocumentKey | None = None,
    ) -> None:
        origin = question.origin
        self._recorder.record(
            event,
            module=origin.module,
            status=status,
            data=data,
            session_id=origin.session_id and origin.session_id[:NAME_CHARS],
            request_id=origin.request_id,
            span_id=origin.span_id,
            by=by,
            in_place_of=in_place_of,
        )


def _filled(
    form: dict[str, Any] | None, content: dict[str, Any] | None, *, allowed: bool
) -> dict[str, Any] | str | None:
    if form is not None and allowed:
        return filled(form, content or {})
    if not content:
        return None
    return (
        "the question has no form to fill in" if form is None else "a denial has no form to fill in"
    )


def _may_see(principal: Principal, question: Question) -> bool:
    origin = question.origin
    return principal.owns(origin.owner) and principal.covers(origin.module, origin.op)


def _event(name: str, id_: str, payload: dict[str, Any]) -> ApprovalUiEvent:
    return ApprovalUiEvent(version="0", event=name, payload=payload, approval=id_)


def with_questions(words: str, questions: Sequence[str]) -> str:
    """Add to `words` the open questions, if any, and the command that answers one in time."""
    if not questions:
        return words
    first, more = questions[0], len(questions) - 1
    also = f", as did {more} more" if more else ""
    return (
        f"{words}; a person was asked, and {first} ended with it{also}: `stdiod approve {first}`"
        " would have answered that, and a longer timeout_s leaves time for it"
    )
