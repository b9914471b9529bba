"""The ops about the daemon as a whole: `reload`, `reloaded`, `shutdown`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from supervisor.kernel.operations.op import Op, OpGroup, OwnRequest, args_schema


class DaemonOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "reload": args_schema(
            dry_run={
                "type": "boolean",
                "default": False,
                "description": "only say what a reload would do",
            }
        ),
        "reloaded": args_schema(
            ("number",),
            number={
                "type": "integer",
                "minimum": 0,
                "description": (
                    "wait until so many reloads have been applied (status: daemon.reloads)"
                ),
            },
        ),
        "shutdown": args_schema(),
    }

    def ops(self) -> Mapping[str, Op]:
        return {
            "reload": self._reload,
            "reloaded": self._reloaded,
            "shutdown": self._shutdown,
        }

    async def _reload(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        del asked
        dry_run = args.get("dry_run", False)
        reloads = self._parts.reloads
        if dry_run:
            plan = await reloads.rehearse()
        else:
            plan = await reloads.reload("a command", again=True)
        number = reloads.count
        refused = [] if dry_run else await reloads.wait_decided(plan)
        document = plan.document()
        document["quarantined"] += [msgspec.to_builtins(one) for one in refused]
        return {
            "dry_run": dry_run,
            "reloads": number,
            **document,
            "policy": self._parts.grants.operator.path and str(self._parts.grants.operator.path),
            "policy_problem": await reloads.policy_problem(),
        }

    async def _reloaded(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        del asked
        return msgspec.to_builtins(await self._parts.reloads.wait_for(int(args["number"])))

    def _shutdown(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        del args
        self._parts.shut_down("a command", asked.principal.by)
        return {"pid": self._parts.facts.pid}
