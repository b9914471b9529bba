"""The ops about the daemon as a whole: `status`, `reload`, `reloaded`, `shutdown`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import trio

from supervisor.kernel.operations.op import MODULE, Asked, Begun, Op, Parts, args_schema
from supervisor.kernel.status import daemon_status
from supervisor.policy.principals import Principal
from supervisor.runtime.turns import Turn


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

    def _status(self, args: dict[str, Any], asked: Asked) -> Begun:
        histogram, principal = args.get("histogram", False), asked.principal
        if "module" in args:
            module = self._parts.module(args["module"], principal)
            return self._parts.status_of(module, principal, histogram=histogram)
        fleet = self._parts.fleet
        shown: dict[str, Any] = {
            "daemon": self._daemon(principal),
            "modules": [],
            "quarantined": [
                msgspec.to_builtins(one) for one in fleet.quarantined if principal.covers_all()
            ],
        }
        ahead = deque(fleet.modules[name] for name in sorted(fleet.modules) if principal.sees(name))

        def look() -> bool:
            """Look at as many modules as fit into a turn; returns whether that was all."""
            turn = Turn()
            turn.begin()
            while ahead:
                module = ahead.popleft()
                if fleet.modules.get(module.name) is module:  # it has not gone meanwhile
                    status = self._parts.status_of(module, principal, histogram=histogram)
                    shown["modules"].append(status)
                if turn.over:
                    break
            return not ahead

        async def look_on() -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            while not look():
                await trio.lowlevel.checkpoint()
            return shown

        return shown if look() else look_on()

    def _daemon(self, principal: Principal) -> dict[str, Any]:
        parts, whole = self._parts, principal.covers_all()
        shown = {
            **daemon_status(parts.facts, trio.current_time()),
            "reloads": self._reloads.count,
            "last_reload": msgspec.to_builtins(self._reloads.last),
            "leaving": [
                parts.status_of(one, principal)
                for one in parts.fleet.leaving.values()
                if principal.sees(one.name)
            ],
            "watch": msgspec.to_builtins(parts.facts.watch),
            "assets": parts.effects.assets.status(),
            "ui": parts.effects.ui.status(),
            "sessions": parts.effects.sessions.counts(principal),
            "policy": parts.grants.operator.status(parts.fleet.modules) if whole else None,
            "approvals": parts.approvals.status(principal),
        }
        # They name modules that the principal may not see.
        return shown if whole else {**shown, "possible_survivors": []}

    async def _reload(self, args: dict[str, Any], asked: Asked) -> Any:
        del asked
        dry_run = args.get("dry_run", False)
        reloads = self._reloads
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
            "policy_problem": await reloads.policy_problem(),
        }

    async def _reloaded(self, args: dict[str, Any], asked: Asked) -> Any:
        del asked
        return msgspec.to_builtins(await self._reloads.wait_for(int(args["number"])))

    def _shutdown(self, args: dict[str, Any], asked: Asked) -> dict[str, Any]:
        del args
        self._parts.shut_down("a command", asked.principal.by)
        return {"pid": self._parts.facts.pid}
