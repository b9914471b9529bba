"""The daemon's own ops: what `supervisor` answers on any face (DESIGN 9).

The daemon is itself a module: it has `health`, `describe` and `invoke`, and each op below is one it
lists in `describe`, with the schema that its args are held to. An op is a coroutine that may emit
events and returns its result, or raises `RefusedError` with the failure to answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
import trio

from protocol.args_schema import ArgsValidator
from protocol.errors import Failure, Reason
from protocol.events import Log, Progress
from protocol.replies import Operation
from protocol.version import VERSION
from supervisor.kernel.invocations import Invocations
from supervisor.kernel.refusal import RefusedError
from supervisor.kernel.reloads import Reloads
from supervisor.kernel.status import DaemonFacts, daemon_status, module_status
from supervisor.policy.lifecycle import State
from supervisor.runtime.fleet import Fleet
from supervisor.runtime.module import Module
from supervisor.runtime.module_log import LogLine

LOG_LINES = 50
MAX_LOG_LINES = 10_000
FOLLOWED_LINES = 1000
"""Lines kept for a follower that reads slowly; beyond it, they are counted and left out."""


class Emit(Protocol):
    """Where an op's events go; waits while the client cannot keep up."""

    async def __call__(self, event: Progress) -> None:
        """Send an event."""


Op = Callable[[dict[str, Any], Emit], Awaitable[Any]]

_MODULE = {"type": "string", "description": "a module's name"}


def _args(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        # A trailing underscore keeps Python's keywords out of the way.
        "properties": {name.removesuffix("_"): schema for name, schema in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


INPUTS: dict[str, Any] = {
    "status": _args(module=_MODULE),
    "start": _args(("module",), module=_MODULE),
    "stop": _args(("module",), module=_MODULE),
    "restart": _args(("module",), module=_MODULE),
    "wait": _args(
        modules={"type": "array", "items": _MODULE, "description": "all eager ones if left out"},
        for_={"enum": ["ready", "down", "verdict"], "default": "ready"},
    ),
    "logs": _args(
        ("module",),
        module=_MODULE,
        lines={"type": "integer", "minimum": 0, "maximum": MAX_LOG_LINES, "default": LOG_LINES},
        follow={"type": "boolean", "default": False},
    ),
    "reload": _args(
        dry_run={
            "type": "boolean",
            "default": False,
            "description": "only say what a reload would do",
        }
    ),
    "reloaded": _args(
        ("number",),
        number={
            "type": "integer",
            "minimum": 0,
            "description": "wait until so many reloads have been applied (status: daemon.reloads)",
        },
    ),
    "shutdown": _args(),
    # Served by the face itself, straight from the pipeline: it streams and is cancelled like any
    # other invocation. Here so that a daemon inside another one can be asked for its modules' ops.
    "invoke": _args(
        ("module", "op"),
        module=_MODULE,
        op={"type": "string"},
        args={"type": "object", "default": {}},
        session_id={"type": "string"},
        timeout_s={"type": "number", "exclusiveMinimum": 0},
    ),
}


class Operations:
    """The ops of one daemon."""

    def __init__(
        self,
        fleet: Fleet,
        invocations: Invocations,
        facts: DaemonFacts,
        shut_down: Callable[[str], None],
        reloads: Reloads,
    ) -> None:
        """`shut_down` begins the daemon's end; its argument is the cause, for the log."""
        self._fleet = fleet
        self._invocations = invocations
        self._facts = facts
        self._shut_down = shut_down
        self._reloads = reloads
        self._validator = ArgsValidator(INPUTS)
        self._ops: dict[str, Op] = {
            "status": self._status,
            "start": self._start,
            "stop": self._stop,
            "restart": self._restart,
            "wait": self._wait,
            "logs": self._logs,
            "reload": self._reload,
            "reloaded": self._reloaded,
            "shutdown": self._shutdown,
        }

    def refusal(self, op: str, args: Any) -> Failure | None:
        """Say why an op cannot be run with these args, or None if it can."""
        if not self._validator.knows(op):
            words = f"the daemon has no op {op!r:.80}; it has {', '.join(INPUTS)}"
            return Failure.because(Reason.UNKNOWN_OP, words, ops=list(INPUTS))
        problem = self._validator.problem(op, args)
        if problem is None:
            return None
        words = f"the args of {op} are not valid: {problem}"
        return Failure.because(Reason.INVALID_ARGS, words, pointer=problem.pointer)

    async def run(self, op: str, args: dict[str, Any], emit: Emit) -> Any:
        """Run an op that `refusal` lets through; raises `RefusedError`."""
        return await self._ops[op](args, emit)

    def describe(self, name: str) -> dict[str, Any]:
        """Describe the daemon as a module."""
        return {
            "name": name,
            "version": VERSION,
            "kind": "tool",
            "capabilities": [],
            "inputs": INPUTS,
            "outputs": {},
            "features": ["cancel"],
        }

    async def ask(self, tool: str, operation: Operation) -> Any:
        """Ask a module for `health` or `describe`; raises `RefusedError`."""
        outcome = await self._module(tool).ask(operation)
        if isinstance(outcome, Failure):
            raise RefusedError(outcome)
        return outcome.result

    async def _status(self, args: dict[str, Any], emit: Emit) -> Any:
        del emit
        if "module" in args:
            return module_status(self._module(args["module"]))
        return {
            "daemon": {
                **daemon_status(self._facts, trio.current_time()),
                "reloads": self._reloads.count,
                "last_reload": msgspec.to_builtins(self._reloads.last),
                "leaving": [module_status(module) for module in self._fleet.leaving.values()],
                "watch": msgspec.to_builtins(self._facts.watch),
            },
            "modules": [
                module_status(module)
                for _, module in sorted(self._fleet.modules.items(), key=lambda item: item[0])
            ],
            "quarantined": [msgspec.to_builtins(one) for one in self._fleet.quarantined],
        }

    async def _start(self, args: dict[str, Any], emit: Emit) -> Any:
        del emit
        module = self._module(args["module"])
        module.start("a command")
        return await self._until_ready(module)

    async def _restart(self, args: dict[str, Any], emit: Emit) -> Any:
        del emit
        module = self._module(args["module"])
        module.restart("a command")
        return await self._until_ready(module)

    async def _stop(self, args: dict[str, Any], emit: Emit) -> Any:
        del emit
        module = self._module(args["module"])
        module.stop("a command")
        # Another client may want it up again meanwhile; then it may never be seen down.
        await self._fleet.wait_until(
            lambda: module.state is State.DOWN or module.slot.wanted or None
        )
        return module_status(module)

    async def _wait(self, args: dict[str, Any], emit: Emit) -> Any:
        names = args.get("modules")
        modules = self._fleet.eager() if names is None else [self._module(one) for one in names]
        goal = args.get("for", "ready")
        pending = {module.name: module for module in modules}
        verdicts: dict[str, str] = {}
        while pending:
            settled = await self._fleet.wait_until(lambda: self._settled(pending, goal) or None)
            for module, well in settled:
                del pending[module.name]
                verdicts[module.name] = str(module.state)
                await emit(_progress(module, len(verdicts), len(modules), well=well))
                if not well and goal != "verdict":
                    raise RefusedError(self._fleet.verdict(module) or module.unavailable())
        return {"modules": verdicts}

    async def _logs(self, args: dict[str, Any], emit: Emit) -> Any:
        module = self._module(args["module"])
        count = args.get("lines", LOG_LINES)
        send, receive = trio.open_memory_channel[LogLine](FOLLOWED_LINES)
        left_out = 0

        def keep(line: LogLine) -> None:
            nonlocal left_out
            try:
                send.send_nowait(line)
            except trio.WouldBlock:
                left_out += 1

        # Followed before the tail is asked for, so that nothing is missed between the two; what
        # was queued for the disk before is in the tail, what comes after is not.
        unfollow = module.log.follow(keep) if args.get("follow") else None
        try:
            for line in await module.log.last_lines(count) if count else []:
                await emit(_log_event(line))
            while unfollow is not None:
                await emit(_log_event(await receive.receive()))
                if left_out:
                    words = f"{left_out} lines were left out: the reader was too slow"
                    left_out = 0
                    await emit(Log(version="0", level="warn", message=words))
        finally:
            if unfollow is not None:
                unfollow()
        return {"module": module.name}

    async def _reload(self, args: dict[str, Any], emit: Emit) -> Any:
        del emit
        dry_run = args.get("dry_run", False)
        plan = await (self._reloads.rehearse() if dry_run else self._reloads.reload("a command"))
        return {"dry_run": dry_run, "reloads": self._reloads.count, **plan.document()}

    async def _reloaded(self, args: dict[str, Any], emit: Emit) -> Any:
        del emit
        return msgspec.to_builtins(await self._reloads.wait_for(int(args["number"])))

    async def _shutdown(self, args: dict[str, Any], emit: Emit) -> Any:
        del args, emit
        self._shut_down("a command")
        return {"pid": self._facts.pid}

    def _module(self, name: str) -> Module:
        module = self._fleet.modules.get(name)
        if module is None:
            raise RefusedError(self._invocations.unknown_module(name))
        return module

    async def _until_ready(self, module: Module) -> Any:
        verdict = await self._fleet.wait_until(lambda: self._start_verdict(module))
        if isinstance(verdict, Failure):
            raise RefusedError(verdict)
        return module_status(module)

    def _start_verdict(self, module: Module) -> Failure | bool | None:
        return True if module.is_ready() else self._fleet.verdict(module)

    def _settled(self, pending: dict[str, Module], goal: str) -> list[tuple[Module, bool]]:
        settled: list[tuple[Module, bool]] = []
        for module in pending.values():
            if goal == "down":
                if module.state is State.DOWN:
                    settled.append((module, True))
            elif module.is_ready():
                settled.append((module, True))
            elif self._fleet.verdict(module, final=goal == "ready") is not None:
                settled.append((module, False))
        return settled


def _progress(module: Module, number: int, of: int, *, well: bool) -> Log:
    died = module.slot.last_exit
    cause = f": {died.message}" if not well and died is not None else ""
    return Log(
        version="0",
        level="info" if well else "warn",
        message=f"{module.name} is {module.state}{cause}",
        fields={"module": module.name, "state": str(module.state), "number": number, "of": of},
    )


def _log_event(line: LogLine) -> Log:
    return Log(
        version="0",
        level="info",
        message=line.text,
        fields={"ts": line.ts, "instance": line.instance, "stream": line.stream},
    )
