"""Ask people what the policy leaves to them: `prompt` comes to an approval, asked by `policy`."""

from __future__ import annotations

from collections.abc import Callable

from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.grants.grants import Answer, GrantQuestion
from supervisor.kernel.hooks import approvals
from supervisor.policy.approval import ALLOW, DENY, is_lasting

OPTIONS = (ALLOW, f"{ALLOW} always", DENY, f"{DENY} always")
"""Those that say `always` are remembered, for the program as it is now."""

_WHY = {
    "timeout": "nobody answered in time",
    "too_many": "too many questions wait already",
    "withdrawn": "the question was withdrawn",
}


class ApprovalAsker:
    """The asker of a daemon whose questions any client can answer (kernel.grants.Asker)."""

    def __init__(self, open_questions: approvals.Approvals) -> None:
        self._approvals = open_questions

    async def ask(self, question: GrantQuestion, tell: Callable[[ApprovalUiEvent], None]) -> Answer:
        """Return the answer; without one it is no."""
        asked = approvals.Question.about(
            question.origin,
            prompt=f"May {question.module} use {question.capability}?",
            asked_by=approvals.POLICY,
            options=OPTIONS,
        )
        decision = await self._approvals.ask(asked, tell)
        words = _WHY.get(decision.by, f"a person answered {decision.answer}")
        remember = decision.by == "client" and is_lasting(decision.answer)
        return Answer(decision.allowed, words, remember)
