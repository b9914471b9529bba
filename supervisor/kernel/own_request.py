"""A request that the daemon serves itself: an op of its own, or a look at a module.

It is begun at once, so that requests have their effects in the order in which they come; what takes
time is a task's, whose steps have their turns with those of the party's other tasks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import structlog
import trio

from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import Progress
from protocol.replies import Operation
from protocol.response import Response
from supervisor.kernel.operations.op import Begun
from supervisor.kernel.parties import Client, OutcomeOnly, Party, RefusedError
from supervisor.kernel.request_checks import without_unseen
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.module import Module

log = structlog.get_logger()


class OwnRequest:
    """One request and its one answer (kernel.parties.Handle); what the op sees of who asked."""

    __slots__ = ("_room", "_scope", "client", "ended", "party", "principal", "session_id", "what")

    def __init__(
        self, party: Party, client: Client, what: str, session_id: str | None = None
    ) -> None:
        self.party = party
        self.what = what
        """The op that is asked for."""
        self.principal = party.principal
        """As it was when it asked: its connection may be narrowed since."""
        self.session_id = session_id
        self.client = client
        self.ended = False
        self._scope = trio.CancelScope()
        self._room = trio.lowlevel.ParkingLot()

    @property
    def is_written(self) -> bool:
        """Whether the answer is only encoded: nobody within the daemon looks at it."""
        return not isinstance(self.client, OutcomeOnly)

    def begin(self, begin: Callable[[], Begun], nursery: trio.Nursery) -> None:
        """Do at once what can be done at once, and the rest in a task."""
        with self._answering():
            begun = begin()
            if isinstance(begun, dict):
                self.finish(Success(begun))
            else:
                nursery.start_soon(self._run, begun)

    async def emit(self, event: Progress | None) -> None:
        """Send an event once there is room for it; None waits for the room, and sends nothing."""
        while self.client.congested():
            await self._room.park()
        if self.party.turn.is_over:
            await trio.lowlevel.cancel_shielded_checkpoint()
        if event is not None and not self.ended:
            self.client.event(event, None)

    def finish(self, outcome: Outcome) -> None:
        """Answer it; only the first answer counts."""
        if not self.ended:
            self.ended = True
            if isinstance(outcome, Failure):
                outcome = without_unseen(outcome, self.principal)
            self.client.finished(Response(outcome))

    def cancel(self, stopped: Stopped) -> None:
        """End it; idempotent."""
        self._scope.cancel()
        self.finish(Failure.because(stopped.reason, stopped.message))

    def resume(self) -> None:
        """Have it go on: the client may have room again."""
        self._room.unpark_all()

    async def _run(self, rest: Awaitable[Any]) -> None:
        await self.party.turn.serve(self._answer(rest), self.what)

    async def _answer(self, rest: Awaitable[Any]) -> None:
        try:
            with self._scope, self._answering():
                self.finish(Success(await rest))
        finally:  # also when the daemon ends without waiting
            self.finish(Failure.because(Reason.SHUTDOWN, "the daemon is stopping"))

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Have the request answered if it comes to nothing."""
        try:
            yield
        except RefusedError as error:
            self.finish(error.failure)
        # A mistake of ours over one request is that request's failure; the others are served.
        except Exception as error:
            log.exception("a request failed in the daemon")
            words = f"the request failed in the daemon: {type(error).__name__}; its log says where"
            self.finish(Failure.because(Reason.REPORTED, words))


async def answer_of(module: Module, operation: Operation) -> dict[str, Any]:
    """Return a module's answer to `health` or `describe`; raises `RefusedError`.

    `inputs` and `outputs` of its descriptor stand in a description in place of its own: these are
    the ops and args that it is held to.
    """
    outcome = await module.ask(operation)
    if isinstance(outcome, Failure):
        raise RefusedError(outcome)
    answer: dict[str, Any] = outcome.result
    if operation is Operation.HEALTH:
        return answer
    declared = {"inputs": module.descriptor.inputs, "outputs": module.descriptor.outputs}
    return answer | {key: value for key, value in declared.items() if value}
