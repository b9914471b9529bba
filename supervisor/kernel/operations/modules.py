"""The ops about modules: `start`, `stop`, `restart`, `wait`, `logs`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import trio
from msgspec import Meta

from protocol.errors import Failure, Reason
from supervisor.kernel.last_items import LastItems
from supervisor.kernel.operations.op import (
    Args,
    Begun,
    ModuleName,
    OfModule,
    OwnRequest,
    op,
    seen_module,
)
from supervisor.kernel.parties import RefusedError, or_refused
from supervisor.kernel.status import seen_status
from supervisor.policy.causes import seen_cause
from supervisor.policy.lifecycle import State
from supervisor.policy.principals import Principal, Scope
from supervisor.runtime.containment.reaping import tracer_of
from supervisor.runtime.files.module_log import LogLine, ModuleLog
from supervisor.runtime.held_bytes import LOGS, Account, HeldBytes
from supervisor.runtime.process.environment import CIDFILE
from supervisor.runtime.supervision.containers import REMOVED_WITHIN_S
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.refusal import unavailable
from supervisor.runtime.turns import Turn

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

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


@op("start", Scope.ADMIN, OfModule, whole_module=True)
def start(kernel: Kernel, args: OfModule, request: OwnRequest) -> Begun:
    module = seen_module(kernel, args.module, request.principal)
    module.start("a command")
    return _until_ready(kernel, module, request.principal)


@op("stop", Scope.ADMIN, OfModule, whole_module=True)
def stop(kernel: Kernel, args: OfModule, request: OwnRequest) -> Begun:
    module = seen_module(kernel, args.module, request.principal)
    module.stop("a command")
    return _until_down(kernel, module, request.principal)


class RestartArgs(OfModule):
    prepare: Annotated[bool, "prepare its program anew first"] = False


@op("restart", Scope.ADMIN, RestartArgs, whole_module=True)
def restart(kernel: Kernel, args: RestartArgs, request: OwnRequest) -> Begun:
    module = seen_module(kernel, args.module, request.principal)
    if args.prepare and not module.forget_prepared():
        words = f"{module.name} has no transport.prepare in its descriptor"
        raise RefusedError.because(Reason.INVALID_ARGS, words)
    module.restart("a command")
    return _until_ready(kernel, module, request.principal)


async def _until_ended(kernel: Kernel, module: Module) -> None:
    """Wait for the end of a module that stops; refuses once it is beyond its bounds."""
    timeouts = module.descriptor.supervision.timeouts
    bound_s = 2 * timeouts.stop_s + timeouts.exit_s + KILLED_WITHIN_S
    if CIDFILE in " ".join(module.descriptor.transport.command):
        bound_s += REMOVED_WITHIN_S
    with trio.move_on_after(bound_s) as scope:
        await kernel.fleet.wait_until(lambda: module.state is not State.STOPPING or None, of=module)
    if scope.cancelled_caught:
        raise RefusedError(_never_ends(module))


async def _until_down(kernel: Kernel, module: Module, principal: Principal) -> dict[str, Any]:
    await _until_ended(kernel, module)
    # Another client may want it up again meanwhile; then it may never be seen down.
    await kernel.fleet.wait_until(
        lambda: module.state is State.DOWN or module.wanted or None, of=module
    )
    return seen_status(kernel, module, principal)


async def _until_ready(kernel: Kernel, module: Module, principal: Principal) -> dict[str, Any]:
    await _until_ended(kernel, module)
    fleet = kernel.fleet
    or_refused(
        await fleet.wait_until(
            lambda: module.is_ready() or module.asleep or fleet.verdict(module), of=module
        )
    )
    return seen_status(kernel, module, principal)


class WaitArgs(Args):
    modules: Annotated[
        Annotated[tuple[ModuleName, ...], Meta(max_length=WAITED)] | None,
        "all eager ones if left out",
    ] = None
    goal: Literal["ready", "down", "verdict"] = msgspec.field(default="ready", name="for")


@op("wait", Scope.READ, WaitArgs)
async def wait(kernel: Kernel, args: WaitArgs, request: OwnRequest) -> dict[str, Any]:
    changes, turn = kernel.fleet.changes(), Turn()
    pending = await _awaited(kernel, args.modules, request.principal, turn)
    count = len(pending)
    verdicts: dict[str, str] = {}
    looked_at = list(pending.values())
    preparing: set[str] = set()
    while pending:
        for module in looked_at:
            await turn.go_on()
            well = _settled(kernel, module, args.goal)
            if well is not None:
                del pending[module.name]
                verdicts[module.name] = str(module.state)
                await _tell_state(request, module, len(verdicts), count, well=well)
                if not well and args.goal != "verdict":
                    raise RefusedError(kernel.fleet.verdict(module) or unavailable(module))
            elif module.state is State.PREPARING and module.name not in preparing:
                preparing.add(module.name)
                await _tell_preparing(request, module)
        if pending:
            changed = await changes.take()
            looked_at = [pending[name] for name in changed or pending if name in pending]
    return {"modules": verdicts}


async def _awaited(
    kernel: Kernel, names: tuple[str, ...] | None, principal: Principal, turn: Turn
) -> dict[str, Module]:
    """Return the named modules, each once, or all eager ones, by name."""
    found: dict[str, Module] = {}
    if names is None:
        for module in kernel.fleet.eager():
            await turn.go_on()
            if principal.sees(module.name):
                found[module.name] = module
    else:
        for name in names:
            await turn.go_on()
            found[name] = seen_module(kernel, name, principal)
    return found


def _settled(kernel: Kernel, module: Module, goal: str) -> bool | None:
    """Return whether a module has reached the goal, or cannot; None if it still may."""
    if module.succession.undecided:
        return None
    if goal == "down":
        return True if module.state is State.DOWN else None
    if module.is_ready() or module.asleep:  # a request is all it waits for
        return True
    return None if kernel.fleet.verdict(module, final=goal == "ready") is None else False


class LogsArgs(OfModule):
    lines: Annotated[int, Meta(ge=0, le=MAX_LOG_LINES)] = LOG_LINES
    follow: bool = False


@op("logs", Scope.READ, LogsArgs, whole_module=True)
async def logs(kernel: Kernel, args: LogsArgs, request: OwnRequest) -> dict[str, Any]:
    module = seen_module(kernel, args.module, request.principal)
    with contextlib.ExitStack() as held:
        # Followed before the tail is asked for, so that nothing is missed between the two; what
        # was queued for the disk before is in the tail, what comes after is not.
        follower = None
        if args.follow:
            follower = held.enter_context(kernel.followed_logs.following(module.log))
        if args.lines:
            await _send_tail(kernel, module, args.lines, request)
        while follower is not None:
            left_out, line = await follower.next()
            if left_out:
                words = f"{left_out} lines were left out: the reader was too slow"
                await request.say(words, level="warn")
            await _tell_line(request, line)
    return {"module": module.name}


async def _send_tail(kernel: Kernel, module: Module, count: int, request: OwnRequest) -> None:
    account = request.party.account
    with trio.move_on_after(TAIL_S) as bound:
        async with kernel.followed_logs.one_tail:
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
            await _tell_line(request, line)
    finally:
        account.add(LOGS, -tail.size_bytes)


def _never_ends(module: Module) -> Failure:
    said: list[str] = []
    for one, _ in module.instances():
        tracer = tracer_of(one.pid)
        held = "" if tracer is None else f", which {tracer.words} traces"
        said.append(f"{one.id} (pid {one.pid}){held}")
    words = f"{module.name} does not end: {', '.join(said) or 'something of it is left'}"
    return Failure.because(Reason.STOPPING, words)


async def _tell_state(
    request: OwnRequest, module: Module, number: int, of: int, *, well: bool
) -> None:
    died = module.last_exit
    cause = f": {died.words}" if died is not None and (not well or module.asleep) else ""
    fields = {"module": module.name, "state": str(module.state), "number": number, "of": of}
    words = f"{module.name} is {module.state.words}{cause}"
    await request.say(words, fields, "info" if well else "warn")


async def _tell_preparing(request: OwnRequest, module: Module) -> None:
    words = f"{module.name} is preparing: `stdiod logs -f {module.name}` shows how far it is"
    await request.say(words, {"module": module.name, "state": str(module.state)}, "debug")


async def _tell_line(request: OwnRequest, line: LogLine) -> None:
    text = line.text if line.stream != "host" else seen_cause(line.text, request.principal)
    await request.say(text, {"ts": line.ts, "instance": line.instance, "stream": line.stream})


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
        self.one_tail = trio.Lock()
        """Held by the reader of a log until the account of its client has the bytes."""
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
