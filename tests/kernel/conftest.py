"""A pipeline over real modules, and clients that keep what they are told."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Reason
from protocol.events import Progress
from protocol.response import Response
from supervisor.kernel.kernel import Client, Congestion, Handle, Kernel, Party, RefusedError
from supervisor.policy.findings import Found, QuarantinedFile
from supervisor.policy.principals import Principal
from supervisor.policy.verdict import Stopped
from tests.principals import ADA

GONE = Stopped(Reason.CLIENT, "the client cancelled the request")
LATE = Stopped(Reason.DEADLINE, "the deadline passed")

Start = Callable[..., AbstractAsyncContextManager[Kernel]]


class Asker(Client):
    """A client of the pipeline."""

    def __init__(self) -> None:
        self.events: list[Progress] = []
        self.responses: list[Response] = []
        self.slow = Congestion.NONE
        self._heard = trio.lowlevel.ParkingLot()

    def event(self, event: Progress, line: bytes | None) -> None:
        assert not self.responses, "an event after the response"
        self.events.append(event)
        self._heard.unpark_all()

    def finished(self, response: Response) -> None:
        self.responses.append(response)
        self._heard.unpark_all()

    def congested(self) -> Congestion:
        return self.slow

    async def response(self) -> Response:
        while not self.responses:
            await self._heard.park()
        assert len(self.responses) == 1
        return self.responses[0]

    async def document(self) -> dict[str, Any]:
        return (await self.response()).document()

    async def heard(self, count: int) -> None:
        while len(self.events) < count:
            await self._heard.park()


@asynccontextmanager
async def daemon_with(
    folder: Path,
    *descriptors: Descriptor,
    quarantined: tuple[QuarantinedFile, ...] = (),
    **options: Any,
) -> AsyncIterator[Kernel]:
    """Run a daemon; the block begins when its eager modules are ready."""
    found = Found(descriptors, quarantined)
    async with Kernel(found, data_dir=folder / "data", environment=os.environ, **options) as daemon:
        await daemon.wait_ready()
        yield daemon


Emit = Callable[[Progress | None], Awaitable[None]]


class _Emitting(Asker):
    """A client that is slow while an event of its waits to be emitted."""

    def __init__(self) -> None:
        super().__init__()
        self.handle: Handle | None = None

    def congested(self) -> Congestion:
        return Congestion.SLOW if self.events else Congestion.NONE

    async def emit_all(self, emit: Emit) -> Response:
        while self.events or not self.responses:
            if self.events:
                await emit(self.events[0])
                del self.events[0]
                if self.handle is not None:
                    self.handle.resume()
            else:
                await self._heard.park()
        return await self.response()


async def run_op(
    daemon: Kernel, op: str, args: dict[str, Any], emit: Emit, principal: Principal = ADA
) -> Any:
    """Run one of the daemon's own ops to its end; raises `RefusedError`."""
    client = _Emitting()
    content = {"op": op, "args": args}
    client.handle = daemon.begin(Party(principal), "supervisor", "invoke", content, client)
    try:
        response = await client.emit_all(emit)
    finally:
        if client.handle is not None and not client.responses:
            client.handle.cancel(Stopped(Reason.CLIENT, "its caller is gone"))
    if isinstance(response.outcome, Failure):
        raise RefusedError(response.outcome)
    return response.outcome.result


async def refused(daemon: Kernel, op: str, args: Any) -> Failure:
    """Return why one of the daemon's own ops cannot be run with these args."""
    asker = begin(daemon, "supervisor", "invoke", {"op": op, "args": args})
    outcome = (await asker.response()).outcome
    assert isinstance(outcome, Failure)
    return outcome


async def nothing(event: object) -> None:
    """Take what an op emits."""


def begin(
    daemon: Kernel,
    tool: str,
    operation: str,
    content: dict[str, Any] | None = None,
    principal: Principal = ADA,
) -> Asker:
    """Begin a request as a face does."""
    asker = Asker()
    daemon.begin(Party(principal), tool, operation, content or {}, asker)
    return asker


def begun(daemon: Kernel, tool: str, op: str, **content: Any) -> tuple[Handle, Asker]:
    """Begin an invocation that has not ended with that."""
    asker = Asker()
    handle = daemon.begin(Party(ADA), tool, "invoke", {"op": op, **content}, asker)
    assert handle is not None
    return handle, asker


def ask(daemon: Kernel, tool: str, op: Any = "echo", **content: Any) -> Asker:
    content = {"op": op, **content} if op is not None else content
    return begin(daemon, tool, "invoke", content)


async def own(daemon: Kernel, who: Principal, op: str, /, **args: Any) -> Any:
    """Return the result of an op, or the words of its refusal."""
    content = {"op": op, "args": args}
    document = await begin(daemon, "supervisor", "invoke", content, who).document()
    return document["result"] if document["ok"] else document["error"]["message"]
