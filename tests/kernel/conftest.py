"""A pipeline over real modules, and clients that keep what they are told."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from protocol.descriptor.model import Descriptor
from protocol.errors import Failure, Success
from protocol.events import Progress
from protocol.response import Response
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.operations.op import OwnRequest
from supervisor.kernel.parties import Client, OutcomeOnly, Party
from supervisor.kernel.request_checks import Doubt
from supervisor.policy.findings import Found, Quarantined
from supervisor.policy.lifecycle import State
from supervisor.policy.principals import Principal
from supervisor.runtime.supervision.call import Congestion
from tests.principals import ADA

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
    quarantined: tuple[Quarantined, ...] = (),
    **options: Any,
) -> AsyncIterator[Kernel]:
    """Run a daemon; the block begins when its eager modules are ready."""
    found = Found(descriptors, quarantined)
    async with Kernel(found, data_dir=folder / "data", environment=os.environ, **options) as daemon:

        def ready() -> bool | None:
            return all(one.state is State.READY for one in daemon.fleet.eager()) or None

        await daemon.fleet.wait_until(ready)
        yield daemon


Emit = Callable[[Progress | None], Awaitable[None]]


class Asked(OwnRequest):
    """A request for one of the daemon's own ops."""

    def __init__(self, emit: Emit, principal: Principal = ADA) -> None:
        super().__init__(Party(principal), OutcomeOnly(lambda _: None), "an op")
        self._emit = emit

    async def emit(self, event: Progress | None) -> None:
        await self._emit(event)


async def run_op(
    daemon: Kernel, op: str, args: dict[str, Any], emit: Emit, principal: Principal = ADA
) -> Any:
    """Run one of the daemon's own ops to its end."""
    operations = daemon.requests.own.operations
    assert operations.refusal(op, args) is None
    begun = operations.begin(op, args, Asked(emit, principal))
    return Success(begun if isinstance(begun, dict) else await begun).result


async def refused(daemon: Kernel, op: str, args: Any) -> Failure:
    """Return why one of the daemon's own ops cannot be run with these args."""
    refusal = daemon.requests.own.operations.refusal(op, args)
    if isinstance(refusal, Doubt):
        refusal = await refusal.settled(daemon.requests.checks, "a client")
    assert refusal is not None
    return refusal


def begin(
    daemon: Kernel,
    tool: str,
    operation: str,
    content: dict[str, Any] | None = None,
    principal: Principal = ADA,
) -> Asker:
    """Begin a request as a face does."""
    asker = Asker()
    daemon.requests.begin(Party(principal), tool, operation, content or {}, asker)
    return asker


def ask(daemon: Kernel, tool: str, op: Any = "echo", **content: Any) -> Asker:
    asker = Asker()
    content = {"op": op, **content} if op is not None else content
    daemon.requests.invoke(ADA, tool, content, asker)
    return asker
