"""The ops about questions that wait for a person: `approvals`, `approve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from protocol.events import Log
from supervisor.kernel.hooks.approvals import Change
from supervisor.kernel.operations.op import Op, OpGroup, OwnRequest, args_schema
from supervisor.policy.approval import ALLOW, OPTION_CHARS

ID_CHARS = 40
"""More than any id has."""


class ApprovalOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "approvals": args_schema(follow={"type": "boolean", "default": False}),
        "approve": args_schema(
            ("id",),
            id={"type": "string", "maxLength": ID_CHARS},
            answer={
                "type": "string",
                "maxLength": OPTION_CHARS,
                "default": ALLOW,
                "description": "allow, deny, or one of the question's options",
            },
            content={
                "type": "object",
                "description": "what the question's form is filled in with",
            },
        ),
    }

    def ops(self) -> Mapping[str, Op]:
        return {"approvals": self._list, "approve": self._approve}

    async def _list(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        if not args.get("follow"):
            return {"approvals": self._parts.approvals.waiting(asked.principal)}
        following, unfollow = self._parts.approvals.follow(asked.principal)
        try:
            # Both at once: later questions come as changes.
            for question in self._parts.approvals.waiting(asked.principal):
                await asked.emit(_event(Change(question)))
            while True:  # until it is cancelled
                change = await following.next()
                if change.lost:
                    words = f"{change.lost} changes were left out: the reader was too slow"
                    await asked.emit(Log(version="0", level="warn", message=words))
                await asked.emit(_event(change))
        finally:
            unfollow()

    def _approve(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        answer, content = args.get("answer", ALLOW), args.get("content")
        decision = self._parts.approvals.decide(args["id"], answer, asked.principal, content)
        return {"id": args["id"], "answer": decision.answer, "allowed": decision.allowed}


def _event(change: Change) -> Log:
    question, decision = change.question, change.decision
    fields: dict[str, Any] = {"approval": question}
    if decision is None:
        words = f"{question['id']} waits: {question['prompt']}"
    else:
        said = {"allowed": decision.allowed, "answer": decision.answer, "by": decision.by}
        fields["decision"] = said
        words = f"{question['id']}: {'allowed' if decision.allowed else 'denied'}"
    return Log(version="0", level="info", message=words, fields=fields)
