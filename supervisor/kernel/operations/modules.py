"""The ops about modules: `start`, `stop`, `restart`, `wait`, `logs`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any, ClassVar

import trio

from protocol.errors import Failure, Reason
from protocol.events import Log
from supervisor.kernel.last_items import LastItems
from supervisor.kernel.operations.op import MODULE, Op, OpGroup, OwnRequest, Parts, args_schema
from supervisor.kernel.parties import RefusedError, or_refused
from supervisor.policy.causes import seen_cause
from supervisor.policy.lifecycle import State
from supervisor.policy.principals import Principal
from supervisor.runtime.containment.reaping import tracer_of
from supervisor.runtime.files.module_log import LogLine, ModuleLog
from supervisor.runtime.held_bytes import LOGS, Account, HeldBytes
from supervisor.runtime.process.environment import CIDFILE
from supervisor.runtime.supervision.containers import REMOVED_WITHIN_S
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.refusal import unavailable
from supervisor.runtime.turns import Turn

LOG_LINES = 50
MAX_LOG_LINES = 10_000

WAITED = 10_000
"""Names that a `wait` may have: as many as a large fleet has modules."""

KILLED_WITHIN_S = 5.0
"""How long a module may take to end once its own timeouts are over, before its stop is refused: a
killed process ends in milliseconds, unless a debugger or the kernel holds it."""

TAIL_S = 10.0
"""How long reading a log may take, and the read before it: a disk may be slow, or not answer at
all."""


class ModuleOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "start": args_schema(("module",), module=MODULE),
        "stop": args_schema(("module",), module=MODULE),
        "restart": args_schema(
            ("module",),
            module=MODULE,
            prepare={
                "type": "boolean",
                "default": False,
                "description": "prepare its program anew first",
            },
        ),
        "wait": args_schema(
            modules={
                "type": "array",
                "items": MODULE,
                "maxItems": WAITED,
                "description": "all eager ones if left out",
            },
            for_={"enum": ["ready", "down", "verdict"], "default": "ready"},
        ),
        "logs": args_schema(
            ("module",),
            module=MODULE,
            lines={"type": "integer", "minimum": 0, "maximum": MAX_LOG_LINES, "default": LOG_LINES},
            follow={"type": "boolean", "default": False},
        ),
    }

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._followed = FollowedLogs(parts.facts.ledger)
        self._one_tail = trio.Lock()
        """Held until the bytes that were read are in the ledger."""

    def ops(self) -> Mapping[str, Op]:
        return {
            "start": self._start,
            "stop": self._stop,
            "restart": self._restart,
            "wait": self._wait,
            "logs": self._logs,
        }

    def _start(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        module = self._parts.module(args["module"], asked.principal)
        module.start("a command")
        return self._until_ready(module, asked.principal)

    def _restart(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        module = self._parts.module(args["module"], asked.principal)
        if args.get("prepare", False) and not module.forget_prepared():
            words = f"{module.name} has no transport.prepare in its descriptor"
            raise RefusedError.because(Reason.INVALID_ARGS, words)
        module.restart("a command")
        return self._until_ready(module, asked.principal)

    def _stop(self, args: dict[str, Any], asked: OwnRequest) -> Awaitable[Any]:
        module = self._parts.module(args["module"], asked.principal)
        module.stop("a command")
        return self._until_down(module, asked.principal)

    async def _until_ended(self, module: Module) -> None:
        """Wait for the end of a module that stops; refuses once it is beyond its bounds."""
        timeouts = module.descriptor.supervision.timeouts
        bound_s = 2 * timeouts.stop_s + timeouts.exit_s + KILLED_WITHIN_S
        if CIDFILE in " ".join(module.descriptor.transport.command):
            bound_s += REMOVED_WITHIN_S
        with trio.move_on_after(bound_s) as scope:
            await self._parts.fleet.wait_until(
                lambda: module.state is not State.STOPPING or None, of=module
            )
        if scope.cancelled_caught:
            raise RefusedError(_never_ends(module))

    async def _until_down(self, module: Module, principal: Principal) -> Any:
        await self._until_ended(module)
        # Another client may want it up again meanwhile; then it may never be seen down.
        await self._parts.fleet.wait_until(
            lambda: module.state is State.DOWN or module.wanted or None, of=module
        )
        return self._parts.status_of(module, principal)

    async def _wait(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        goal, changes, turn = args.get("for", "ready"), self._parts.fleet.changes(), Turn()
        pending = await self._awaited(args.get("modules"), asked.principal, turn)
        count = len(pending)
        verdicts: dict[str, str] = {}
        looked_at = list(pending.values())
        preparing: set[str] = set()
        while pending:
            for module in looked_at:
                await turn.go_on()
                well = self._settled(module, goal)
                if well is not None:
                    del pending[module.name]
                    verdicts[module.name] = str(module.state)
                    await asked.emit(_progress(module, len(verdicts), count, well=well))
                    if not well and goal != "verdict":
                        raise RefusedError(self._parts.fleet.verdict(module) or unavailable(module))
                elif module.state is State.PREPARING and module.name not in preparing:
                    preparing.add(module.name)
                    await asked.emit(_preparing(module))
            if pending:
                changed = await changes.take()
                looked_at = [pending[name] for name in changed or pending if name in pending]
        return {"modules": verdicts}

    async def _awaited(
        self, names: list[str] | None, principal: Principal, turn: Turn
    ) -> dict[str, Module]:
        """Return the named modules, each once, or all eager ones, by name."""
        found: dict[str, Module] = {}
        if names is None:
            for module in self._parts.fleet.eager():
                await turn.go_on()
                if principal.sees(module.name):
                    found[module.name] = module
        else:
            for name in names:
                await turn.go_on()
                found[name] = self._parts.module(name, principal)
        return found

    async def _logs(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        module = self._parts.module(args["module"], asked.principal)
        count = args.get("lines", LOG_LINES)
        with contextlib.ExitStack() as held:
            # Followed before the tail is asked for, so that nothing is missed between the two; what
            # was queued for the disk before is in the tail, what comes after is not.
            follower = None
            if args.get("follow"):
                follower = held.enter_context(self._followed.following(module.log))
            if count:
                await self._send_tail(module, count, asked)
            while follower is not None:
                left_out, line = await follower.next()
                if left_out:
                    words = f"{left_out} lines were left out: the reader was too slow"
                    await asked.emit(Log(version="0", level="warn", message=words))
                await asked.emit(_log_event(line, asked.principal))
        return {"module": module.name}

    async def _send_tail(self, module: Module, count: int, asked: OwnRequest) -> None:
        account = asked.party.account
        with trio.move_on_after(TAIL_S) as bound:
            async with self._one_tail:
                tail = await module.log.last_lines(count)
        if bound.cancelled_caught:
            words = f"the file with the log of {module.name} was not read within {TAIL_S:g} s"
            raise RefusedError.because(Reason.DEADLINE, f"{words}; `stuck` of status says why")
        if not account.fits(tail.size_bytes):
            words = f"{tail.size_bytes} bytes of the log of {module.name} find no room to wait"
            words += " in; ask for fewer lines, or read what was asked for before"
            raise RefusedError.because(Reason.QUEUE_FULL, words)
        account.add(LOGS, tail.size_bytes)
        try:
            for line in tail:
                await asked.emit(_log_event(line, asked.principal))
        finally:
            account.add(LOGS, -tail.size_bytes)

    async def _until_ready(self, module: Module, principal: Principal) -> Any:
        await self._until_ended(module)
        fleet = self._parts.fleet
        or_refused(
            await fleet.wait_until(
                lambda: module.is_ready() or module.asleep or fleet.verdict(module), of=module
            )
        )
        return self._parts.status_of(module, principal)

    def _settled(self, module: Module, goal: str) -> bool | None:
        """Return whether a module has reached the goal, or cannot; None if it still may."""
        if module.succession.undecided:
            return None
        if goal == "down":
            return True if module.state is State.DOWN else None
        if module.is_ready() or module.asleep:  # a request is all it waits for
            return True
        return None if self._parts.fleet.verdict(module, final=goal == "ready") is None else False


def _never_ends(module: Module) -> Failure:
    said: list[str] = []
    for one, _ in module.instances():
        tracer = tracer_of(one.pid)
        held = "" if tracer is None else f", which {tracer.words} traces"
        said.append(f"{one.id} (pid {one.pid}){held}")
    words = f"{module.name} does not end: {', '.join(said) or 'something of it is left'}"
    return Failure.because(Reason.STOPPING, words)


def _progress(module: Module, number: int, of: int, *, well: bool) -> Log:
    died = module.last_exit
    cause = f": {died.words}" if died is not None and (not well or module.asleep) else ""
    return Log(
        version="0",
        level="info" if well else "warn",
        message=f"{module.name} is {module.state.words}{cause}",
        fields={"module": module.name, "state": str(module.state), "number": number, "of": of},
    )


def _preparing(module: Module) -> Log:
    return Log(
        version="0",
        level="debug",
        message=f"{module.name} is preparing: `stdiod logs -f {module.name}` shows how far it is",
        fields={"module": module.name, "state": str(module.state)},
    )


def _log_event(line: LogLine, principal: Principal) -> Log:
    text = line.text
    return Log(
        version="0",
        level="info",
        message=seen_cause(text, principal) if line.stream == "host" else text,
        fields={"ts": line.ts, "instance": line.instance, "stream": line.stream},
    )


FOLLOWED_LINES = 1000
FOLLOWED_BYTES = 4 << 20
"""Bytes kept of one log; the oldest lines are lost beyond that, or where the ledger has no room."""

LINE_COST_BYTES = 128
"""The cost of a line beside its text."""


class FollowedLogs:
    """The logs of one daemon that have followers: new lines are kept once, within bounds.

    Each follower reads at its own pace, in its own turns. Lines beyond the bounds are left out, and
    the follower is told how many.
    """

    def __init__(self, ledger: HeldBytes) -> None:
        self._ledger = ledger
        self._followed: dict[ModuleLog, _Followed] = {}

    @contextlib.contextmanager
    def following(self, log: ModuleLog) -> Iterator[Follower]:
        followed = self._followed.get(log)
        if followed is None:
            followed = self._followed[log] = _Followed(log, self._ledger)
        followed.followers += 1
        try:
            yield Follower(followed)
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._followed[log]
                followed.end()


class Follower:
    """The place of one follower in a log."""

    def __init__(self, followed: _Followed) -> None:
        self._followed = followed
        self._next = followed.lines.end_number

    async def next(self) -> tuple[int, LogLine]:
        """Wait for the next line; returns how many were left out before it, and the line."""
        lines = self._followed.lines
        while self._next >= lines.end_number:
            await self._followed.some.park()
        left_out = max(lines.first_number - self._next, 0)
        self._next += left_out + 1
        return left_out, lines[self._next - 1]


class _Followed:
    """The last lines of one log."""

    def __init__(self, log: ModuleLog, ledger: HeldBytes) -> None:
        self.followers = 0
        self._account = Account(ledger, f"the followed log of {log.module}")
        self.lines: LastItems[LogLine] = LastItems(
            self._account, LOGS, FOLLOWED_LINES, FOLLOWED_BYTES
        )
        self.some = trio.lowlevel.ParkingLot()
        self._unfollow = log.follow(self._keep)

    def end(self) -> None:
        self._unfollow()
        del self._unfollow  # they held each other
        self._account.close()

    def _keep(self, line: LogLine) -> None:
        self.lines.keep(line, LINE_COST_BYTES + len(line.text))
        self.some.unpark_all()
