"""The ops about what modules may do, and about the questions that wait for a person.

`policy.show`, `policy.explain`, `policy.forget`; `approvals`, `approve`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

import msgspec

from protocol.events import Log
from supervisor.kernel.grants.operator_policy import explained
from supervisor.kernel.hooks.approvals import QuestionUpdate
from supervisor.kernel.operations.op import MODULE, WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.policy.approval import ALLOW, OPTION_CHARS
from supervisor.policy.capabilities import Authorization

ID_CHARS = 40
"""More than the id of a question has."""


class PolicyOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "policy.show": args_schema(),
        "policy.explain": args_schema(
            ("module", "capability"),
            module=MODULE,
            capability={
                **WORD,
                "minLength": 1,
                "description": "such as log, or module.invoke:kv.get",
            },
        ),
        "policy.forget": args_schema(("module",), module=MODULE),
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
        return {
            "policy.show": self._show,
            "policy.explain": self._explain,
            "policy.forget": self._forget,
            "approvals": self._approvals,
            "approve": self._approve,
        }

    def _show(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        del args, asked
        operator, answers = self._parts.grants.operator, self._parts.grants.answers.all()
        policy = msgspec.to_builtins(operator.policy)
        return {**policy, "problem": operator.problem, "answers": msgspec.to_builtins(answers)}

    async def _explain(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        descriptor = self._parts.module(args["module"], asked.principal).descriptor
        decision = self._parts.grants.decide(descriptor, args["capability"])
        found = explained(self._parts.grants.operator.policy, decision, descriptor)
        if decision.verdict is Authorization.ASK:
            known = self._parts.grants.answers.find(descriptor.name, args["capability"])
            if known is not None:
                same = known.program == await self._parts.grants.program(descriptor)
                found["remembered"] = {
                    "allowed": known.allowed,
                    "ts": known.ts,
                    "same_program": same,
                }
        return found

    def _forget(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        del asked
        # Also of a module that is not there any more: then above all.
        forgotten = self._parts.grants.answers.forget(args["module"])
        return self._when_stored({"forgotten": [msgspec.to_builtins(one) for one in forgotten]})

    async def _approvals(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        if not args.get("follow"):
            return {"approvals": self._parts.approvals.waiting(asked.principal)}
        following, unfollow = self._parts.approvals.follow(asked.principal)
        try:
            # Both at once: later questions come as changes.
            for question in self._parts.approvals.waiting(asked.principal):
                await asked.emit(_event(QuestionUpdate(question)))
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


def _event(change: QuestionUpdate) -> Log:
    question, decision = change.question, change.decision
    fields: dict[str, Any] = {"approval": question}
    if decision is None:
        words = f"{question['id']} waits: {question['prompt']}"
    else:
        said = {"allowed": decision.allowed, "answer": decision.answer, "by": decision.by}
        fields["decision"] = said
        words = f"{question['id']}: {'allowed' if decision.allowed else 'denied'}"
    return Log(version="0", level="info", message=words, fields=fields)
