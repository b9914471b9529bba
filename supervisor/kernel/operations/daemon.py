"""The ops about the daemon as a whole: `status`, `reload`, `reloaded`, `shutdown`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import trio

from supervisor.kernel.operations.op import MODULE, Emit, Op, Parts, args_schema
from supervisor.kernel.status import daemon_status


class DaemonOps:
    """Ops about the daemon as a whole."""

    INPUTS: ClassVar[Mapping[str, Any]] = {
        "status": args_schema(
            module=MODULE,
            histogram={
                "type": "boolean",
                "default": False,
                "description": (
                    "add the counts of durations, for quantiles of a time between two asks"
                ),
            },
        ),
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

    def __init__(self, parts: Parts) -> None:
        """Prepare to serve."""
        self._parts = parts
        self._reloads = parts.reloads

    def ops(self) -> Mapping[str, Op]:
        """Return the ops."""
        return {
            "status": self._status,
            "reload": self._reload,
            "reloaded": self._reloaded,
            "shutdown": self._shutdown,
        }

    def _status(self, args: dict[str, Any], emit: Emit) -> dict[str, Any]:
        del emit
        histogram = args.get("histogram", False)
        fleet, facts = self._parts.fleet, self._parts.facts
        status_of = self._parts.status_of
        if "module" in args:
            return status_of(self._parts.module(args["module"]), histogram=histogram)
        return {
            "daemon": {
                **daemon_status(facts, trio.current_time()),
                "reloads": self._reloads.count,
                "last_reload": msgspec.to_builtins(self._reloads.last),
                "leaving": [status_of(module) for module in fleet.leaving.values()],
                "watch": msgspec.to_builtins(facts.watch),
                "assets": self._parts.effects.assets.status(),
                "ui": self._parts.effects.ui.status(),
                "sessions": self._parts.effects.sessions.counts(),
                "policy": self._parts.grants.operator.status(fleet.modules),
                "approvals": self._parts.approvals.status(),
            },
            "modules": [
                status_of(module, histogram=histogram)
                for _, module in sorted(fleet.modules.items(), key=lambda item: item[0])
            ],
            "quarantined": [msgspec.to_builtins(one) for one in fleet.quarantined],
        }

    async def _reload(self, args: dict[str, Any], emit: Emit) -> Any:
        del emit
        dry_run = args.get("dry_run", False)
        plan = await (self._reloads.rehearse() if dry_run else self._reloads.reload("a command"))
        return {
            "dry_run": dry_run,
            "reloads": self._reloads.count,
            **plan.document(),
            "policy_problem": await self._reloads.policy_problem(),
        }

    async def _reloaded(self, args: dict[str, Any], emit: Emit) -> Any:
        del emit
        return msgspec.to_builtins(await self._reloads.wait_for(int(args["number"])))

    def _shutdown(self, args: dict[str, Any], emit: Emit) -> dict[str, Any]:
        del args, emit
        self._parts.shut_down("a command")
        return {"pid": self._parts.facts.pid}
