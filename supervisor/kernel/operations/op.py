"""An op of the daemon: a function with a name, the scope that it needs, and a struct of its args.

    @op("session.end", Scope.INVOKE, OfSession)
    def end_session(kernel: Kernel, args: OfSession, request: OwnRequest) -> Begun:

The struct says all about the args: `schema_of` makes of it what `describe`, OpenAPI and the words
for a wrong argument show, and `Op.check` holds args to it. Text in an `Annotated` is a description.
A field `X | None = None` may be left out; null is no value of any field but those of type `Any`.

An op does at once what can be done at once. It returns its result, or an awaitable of it; both may
raise `RefusedError`. So of requests that come one after the other, a start or stop has its effect
before the next one is checked, however long its own answer takes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import structlog
import trio
from msgspec import Meta

from protocol.args_schema import ArgsSchema
from protocol.connection import Notice
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Log, Progress
from protocol.problem import Problem
from protocol.response import Response
from supervisor.kernel.parties import Client, Handle, Party, RefusedError
from supervisor.kernel.request_checks import invalid_args, unknown_module, without_unseen
from supervisor.policy.principals import Principal, Scope
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.module import Module

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

log = structlog.get_logger()

WORD_CHARS = 8192
"""The bound on a name, an id or a path. Most have a much lower bound, and the op refuses a longer
one in its own words; beyond this it is refused unread."""

Word = Annotated[str, Meta(max_length=WORD_CHARS)]
Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
ModuleName = Annotated[Word, "a module's name"]


class Args(msgspec.Struct, forbid_unknown_fields=True):
    """The args of an op; as it stands, none."""


class OfModule(Args):
    module: ModuleName


Begun = dict[str, Any] | Awaitable[Any]
"""The result of an op, or what to await for it; both may come to a `RefusedError`."""

Emit = Callable[[Progress | None], Awaitable[None]]
"""Where an op's events go; waits while the client cannot keep up (`OwnRequest.emit`)."""

Level = Literal["debug", "info", "warn", "error"]

AnArgs = TypeVar("AnArgs", bound=Args)


class Op(msgspec.Struct, frozen=True):
    name: str
    scope: Scope | None
    """None: every principal may use it."""
    args: type[Args]
    serve: Callable[[Kernel, Any, OwnRequest], Any]
    whole_module: bool = False
    """The op concerns a whole module: the caller's globs have to cover all ops of `module`."""
    all_modules: bool = False
    """The op concerns all modules: the caller's globs have to cover every possible name."""
    for_logins: bool = False
    """For a connection of the control socket that may do everything (`Party.may_log_in`)."""
    hands_over: bool = False
    """The op answers the client itself; it returns a handle that cancels, or None at its end."""

    def check(self, said: Any) -> Args | Failure:
        """Return the args, or why they are refused; the schema decides, and explains."""
        # The library for schemas takes 9 MB: no daemon loads it for args that fit.
        try:
            if type(said) is dict and None not in said.values():
                return msgspec.convert(said, self.args)
        except msgspec.ValidationError:
            pass
        fault = _compiled(self.args).fault(said)
        if fault is not None:
            return invalid_args(self.name, fault)
        # A schema takes 5.0 for an integer, too.
        whole = {key: int(one) for key, one in said.items() if type(one) is float and one % 1 == 0}
        try:
            return msgspec.convert(said | whole, self.args)
        except msgspec.ValidationError as error:  # an integer that no float can hold
            return invalid_args(self.name, Problem("", str(error)))


def op(
    name: str, scope: Scope | None, args: type[AnArgs], **more: bool
) -> Callable[[Callable[[Kernel, AnArgs, OwnRequest], Begun | Handle | None]], Op]:
    """Make an op of a function; `more` are fields of `Op`."""
    return lambda serve: Op(name, scope, args, serve, **more)


# Schemas.


@cache
def schema_of(args: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a struct of args."""
    fields = msgspec.structs.fields(args)
    return {
        "type": "object",
        "properties": {one.encode_name: _schema_of_field(one) for one in fields},
        "required": [one.encode_name for one in fields if one.required],
        "additionalProperties": False,
    }


@cache
def _compiled(args: type[Args]) -> ArgsSchema:
    return ArgsSchema(schema_of(args))


def _schema_of_field(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    schema = _schema(field.type)
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if default in (None, msgspec.UNSET, msgspec.NODEFAULT):
        return schema
    return schema | {"default": msgspec.to_builtins(default)}


_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object"}

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}


def _schema(kind: Any) -> dict[str, Any]:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        return _bounded(_schema(inner[0]), inner[1:])
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _schema(inner[0])}
    if origin is Any:
        return {}
    if origin in _TYPES:
        return {"type": _TYPES[origin]}
    if origin in (Union, UnionType):  # with None, or UNSET: it may be left out
        return _schema(inner[0])
    if issubclass(origin, Enum):
        return {"enum": [one.value for one in origin]}
    return {key: one for key, one in schema_of(origin).items() if one != []}


def _bounded(schema: dict[str, Any], said: tuple[Meta | str, ...]) -> dict[str, Any]:
    of = "Items" if schema.get("type") == "array" else "Length"
    bounds = {**_BOUNDS, "min_length": f"min{of}", "max_length": f"max{of}"}
    for one in said:
        if isinstance(one, str):
            schema = schema | {"description": one}
        else:
            found = {key: getattr(one, name) for name, key in bounds.items()}
            schema = schema | {key: bound for key, bound in found.items() if bound is not None}
            schema |= one.extra_json_schema or {}
    return schema


# What several ops do.


def seen_module(kernel: Kernel, name: str, principal: Principal) -> Module:
    """Return a module that the principal may see; raises `RefusedError`."""
    module = kernel.fleet.modules.get(name)
    if module is None or not principal.sees(name):
        raise RefusedError(unknown_module(name, kernel.fleet, principal))
    return module


async def when_stored(kernel: Kernel, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result once all that was recorded so far is stored."""
    await kernel.durability.confirmed()
    return result


class OwnRequest:
    """A request that the daemon serves itself, as an op sees it (kernel.parties.Handle)."""

    __slots__ = (
        "_room",
        "_scope",
        "client",
        "ended",
        "notices",
        "party",
        "principal",
        "session_id",
        "traceparent",
        "what",
    )

    def __init__(
        self, party: Party, client: Client, what: str, content: Mapping[str, Any] | None = None
    ) -> None:
        """`what` is the op that is asked for, for words, and `content` the frame's `input`."""
        session_id, self.traceparent = map((content or {}).get, ("session_id", "traceparent"))
        self.session_id = session_id if isinstance(session_id, str) else None
        self.party = party
        self.what = what
        self.principal = party.principal
        """The principal at the time of the request: its connection may be narrowed since."""
        self.client = client
        self.notices: tuple[Notice, ...] = ()
        """The warnings of the response."""
        self.ended = False
        self._scope = trio.CancelScope()
        self._room = trio.lowlevel.ParkingLot()

    def begin(self, begin: Callable[[], Begun], nursery: trio.Nursery) -> None:
        """Do at once what can be done at once, and the rest in a task."""
        try:
            begun = begin()
            if isinstance(begun, dict):
                self.finish(Success(begun))
            else:
                nursery.start_soon(self._run, begun)
        except Exception as error:  # noqa: BLE001 - `_fail` logs it
            self._fail(error)

    async def emit(self, event: Progress | None) -> None:
        """Send an event once there is room for it; None waits for the room, and sends nothing."""
        while self.client.congested():
            await self._room.park()
        if self.party.turn.is_over:
            await trio.lowlevel.cancel_shielded_checkpoint()
        if event is not None and not self.ended:
            self.client.event(event, None)

    async def say(
        self, words: str, fields: dict[str, Any] | None = None, level: Level = "info"
    ) -> None:
        """Send a `log` event, as `emit` does."""
        said = msgspec.UNSET if fields is None else fields
        await self.emit(Log(version="0", level=level, message=words, fields=said))

    def finish(self, outcome: Outcome) -> None:
        """Answer it; only the first answer counts."""
        if not self.ended:
            self.ended = True
            if isinstance(outcome, Failure):
                outcome = without_unseen(outcome, self.principal)
            self.client.finished(Response(outcome, notices=self.notices))

    def cancel(self, stopped: Stopped) -> None:
        self._scope.cancel()
        self.finish(Failure.because(stopped.reason, stopped.message))

    def resume(self) -> None:
        self._room.unpark_all()

    async def _run(self, rest: Awaitable[Any]) -> None:
        await self.party.turn.serve(self._answer(rest), self.what)

    async def _answer(self, rest: Awaitable[Any]) -> None:
        try:
            with self._scope:
                self.finish(Success(await rest))
        except Exception as error:  # noqa: BLE001 - `_fail` logs it
            self._fail(error)
        finally:  # also when the daemon ends without waiting
            self.finish(Failure.because(Reason.SHUTDOWN, "the daemon is stopping"))

    def _fail(self, error: Exception) -> None:
        """Answer the request with the failure of an exception that is being handled."""
        # No context manager: it would leave a cycle (docs/limits.md, Memory).
        if isinstance(error, RefusedError):
            self.finish(error.failure)
            return
        # A mistake of ours over one request is that request's failure; the others are served.
        log.error("a request failed in the daemon", exc_info=error)
        words = f"the request failed in the daemon: {type(error).__name__}; its log says where"
        self.finish(Failure.because(Reason.REPORTED, words))
