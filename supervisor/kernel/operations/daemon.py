"""The ops about the daemon as a whole: `status`, `metrics`, `reload`, `reloaded`, `shutdown`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import trio

from supervisor.kernel.metrics import Form
from supervisor.kernel.operations.long_answers import LongAnswers
from supervisor.kernel.operations.op import (
    MODULE,
    Begun,
    Op,
    OpGroup,
    OwnRequest,
    Parts,
    args_schema,
)
from supervisor.kernel.status import daemon_status, gateway_status
from supervisor.policy.principals import Principal
from supervisor.runtime.turns import Turn, each_in_turns

if TYPE_CHECKING:
    from supervisor.kernel.exposition import Exposition


class DaemonOps(OpGroup):
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
            outcomes={
                "type": "boolean",
                "default": False,
                "description": "add how the invocations of each op ended, and causes of restarts",
            },
            inputs={
                "type": "boolean",
                "default": False,
                "description": "with a module: add the schemas of what its ops take",
            },
        ),
        "metrics": args_schema(
            format={
                "enum": [str(one) for one in Form],
                "default": str(Form.PROMETHEUS),
                "description": "the text format of Prometheus (0.0.4), or OpenMetrics (1.0.0)",
            }
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
        super().__init__(parts)
        self._answers = LongAnswers()
        self._writing = trio.Semaphore(1)

    def ops(self) -> Mapping[str, Op]:
        return {
            "status": self._status,
            "metrics": self._metrics,
            "reload": self._reload,
            "reloaded": self._reloaded,
            "shutdown": self._shutdown,
        }

    def _status(self, args: dict[str, Any], asked: OwnRequest) -> Begun:
        principal = asked.principal
        more = {name: args.get(name, False) for name in ("histogram", "outcomes")}
        if "module" in args:
            module = self._parts.module(args["module"], principal)
            return self._parts.status_of(
                module, principal, inputs=args.get("inputs", False), **more
            )
        # First, so that no entry of a module is older than the reloads that are counted.
        principal, shown = asked.principal, self._whole(asked.principal)
        return self._answers.tell(self._told(principal, **more), shown, asked.party.telling)

    def _whole(self, principal: Principal) -> dict[str, Any]:
        """Return the answer to `status` without the modules."""
        fleet, facts, effects = self._parts.fleet, self._parts.facts, self._parts.effects
        whole = principal.covers_all()
        shown: dict[str, Any] = {
            "daemon": {
                **daemon_status(facts, trio.current_time()),
                "reloads": self._parts.reloads.count,
                "refused": dict(self._parts.refused),
                "last_reload": msgspec.to_builtins(self._parts.reloads.last),
                "leaving": [
                    self._parts.status_of(one, principal)
                    for one in fleet.leaving.values()
                    if principal.sees(one.name)
                ],
                "watch": msgspec.to_builtins(facts.watch),
                "assets": effects.assets.status(),
                "ui": effects.ui.status(),
                "sessions": effects.sessions.counts(principal),
                "policy": self._parts.grants.operator.status(fleet.modules) if whole else None,
                "approvals": self._parts.approvals.status(principal),
            },
            "quarantined": [msgspec.to_builtins(one) for one in fleet.quarantined if whole],
        }
        if facts.gateway is not None:
            shown["http"] = gateway_status(facts.gateway) if whole else None
        if not whole:
            # Their commands name modules that the principal may not see.
            shown["daemon"]["left_containers"] = []
        return shown

    def _told(self, principal: Principal, **more: bool) -> Iterator[dict[str, Any] | None]:
        """Yield the entry of each module; None for a module that the principal does not see.

        Finding that takes time too: a turn may end after each.
        """
        by_name = sorted(self._parts.fleet.modules.items(), key=itemgetter(0))
        return (
            self._parts.status_of(module, principal, **more)
            if principal.sees(module.name)
            else None
            for _, module in by_name
        )

    async def _metrics(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        """Write metrics a turn at a time: it takes as long as a whole `status`."""
        threads = self._parts.facts.registry.threads
        async with self._writing:
            make = await threads.run("importing prometheus_client", _import)
            exposition = make(Form(args.get("format", Form.PROMETHEUS)))
            whole = self._whole(asked.principal)
            told = self._told(asked.principal, histogram=True, outcomes=True)
            turn = Turn()
            turn.begin()
            for _ in exposition.write(whole, told):
                await turn.go_on()
            texts = [one async for one in each_in_turns(exposition.texts())]
            text = "".join(texts)
            # Of thousands of modules, to put it together and to encode it takes a turn each.
            await turn.go_on()
        return {"content_type": exposition.content_type, "text": text}

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


def _import() -> type[Exposition]:
    # Without a scrape it is never imported; and that takes longer than a turn.
    from supervisor.kernel.exposition import Exposition  # noqa: PLC0415

    return Exposition
