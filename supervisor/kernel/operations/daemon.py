"""The ops about the daemon as a whole: `status`, `reload`, `reloaded`, `shutdown`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterator, Mapping
from operator import itemgetter
from typing import Any, ClassVar

import msgspec
import trio

from protocol.frames import encode
from supervisor.kernel.operations.op import MODULE, Asked, Begun, Op, Parts, args_schema
from supervisor.kernel.status import daemon_status
from supervisor.runtime.turns import Turn

LONG_ANSWERS = 2
"""So many statuses that take more than a turn are made at a time."""


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
            inputs={
                "type": "boolean",
                "default": False,
                "description": "with a module: add the schemas of what its ops take",
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
        self._telling = trio.Semaphore(LONG_ANSWERS)

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
        fleet, facts, effects = self._parts.fleet, self._parts.facts, self._parts.effects
        status_of = self._parts.status_of
        if "module" in args:
            module = self._parts.module(args["module"], principal)
            inputs = args.get("inputs", False)
            return status_of(module, principal, histogram=histogram, inputs=inputs)
        whole = principal.covers_all()
        # First, so that what is said of a module is not older than the reloads that are counted.
        shown: dict[str, Any] = {
            "daemon": {
                **daemon_status(facts, trio.current_time()),
                "reloads": self._reloads.count,
                "last_reload": msgspec.to_builtins(self._reloads.last),
                "leaving": [
                    status_of(one, principal)
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
            "modules": [],
            "quarantined": [msgspec.to_builtins(one) for one in fleet.quarantined if whole],
        }
        if not whole:
            # They name modules that the principal may not see.
            shown["daemon"] |= {"possible_survivors": []}
        by_name = sorted(fleet.modules.items(), key=itemgetter(0))
        told = (
            status_of(module, principal, histogram=histogram)
            for _, module in by_name
            if principal.sees(module.name)
        )
        return self._tell(told, shown, asked.party.telling)

    def _tell(
        self, told: Iterator[Any], shown: dict[str, Any], telling: trio.Semaphore
    ) -> dict[str, Any] | Awaitable[msgspec.Raw]:
        """Take in what is told of modules: at once if there is a turn's time for all of it."""
        try:
            telling.acquire_nowait()
        except trio.WouldBlock:
            return self._tell_behind_others(told, shown, telling)
        with contextlib.ExitStack() as held:
            held.callback(telling.release)
            if _tell_a_turn(told, shown["modules"]):
                return shown
            held.pop_all()
        return self._tell_the_rest(told, shown, telling)

    async def _tell_behind_others(
        self, told: Iterator[Any], shown: dict[str, Any], telling: trio.Semaphore
    ) -> msgspec.Raw:
        await telling.acquire()
        return await self._tell_the_rest(told, shown, telling)

    async def _tell_the_rest(
        self, told: Iterator[Any], shown: dict[str, Any], telling: trio.Semaphore
    ) -> msgspec.Raw:
        """Take it in a turn at a time: of thousands it takes longer than neighbours should wait.

        It takes megabytes, too: so a party has one at a time, and all have a few. What was told is
        encoded in the same turns: as objects it would be encoded in one step, and the garbage
        collector would look through all of them.
        """
        try:
            async with self._telling:
                encoded = shown["modules"]
                encoded[:] = map(encode, encoded)
                over = False
                while not over:
                    await trio.lowlevel.checkpoint()
                    over = _tell_a_turn(map(encode, told), encoded)
                modules = msgspec.Raw(b"[%s]" % b",".join(encoded))
                return msgspec.Raw(encode({**shown, "modules": modules}))
        finally:
            telling.release()

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


def _tell_a_turn(told: Iterator[Any], into: list[Any]) -> bool:
    """Take as much as a turn has time for; return whether that was all."""
    turn = Turn()
    turn.begin()
    for one in told:
        into.append(one)
        if turn.over:
            return False
    return True
