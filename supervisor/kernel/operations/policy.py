"""The ops about what modules are allowed: `policy.show`, `policy.explain`, `policy.forget`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

import msgspec

from supervisor.kernel.grants.operator_policy import explained
from supervisor.kernel.operations.op import MODULE, WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.policy.capabilities import Verdict


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
    }

    def ops(self) -> Mapping[str, Op]:
        return {
            "policy.show": self._show,
            "policy.explain": self._explain,
            "policy.forget": self._forget,
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
        if decision.verdict is Verdict.ASK:
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
