"""What 1,000 invocations cost the event loop; the pipes are filled before they are read."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
import trio.testing

from protocol.events import Progress
from protocol.response import Response
from supervisor.faces.byte_stream import carry, disconnect
from supervisor.faces.conversation import Conversation
from supervisor.kernel import parties
from supervisor.kernel.parties import Party
from tests.budget.conftest import Bench, assert_within
from tests.budget.turns import Turns
from tests.faces.lines import Client, request
from tests.principals import ADA

INVOCATIONS = 1000
WINDOW = 64
ROUNDS = -(-INVOCATIONS // WINDOW)
"""With 64 open at once, all 64 are asked in one write and answered in one read."""

OURS = tuple(str(Path(__file__).parents[2] / ring) for ring in ("protocol", "supervisor"))

Budget = dict[str, int]


class Asker(parties.Client):
    """Has `window` invocations open until all of them are answered."""

    def __init__(self, bench: Bench, window: int) -> None:
        self.ended = trio.Event()
        self._requests = bench.daemon.requests
        self._left = INVOCATIONS
        self._open = 0
        for _ in range(window):
            self._submit()

    def _submit(self) -> None:
        if self._left:
            self._left -= 1
            self._open += 1
            self._requests.invoke(ADA, "m", {"op": "echo"}, self)

    def event(self, event: Progress, line: bytes | None) -> None:
        raise AssertionError

    def finished(self, response: Response) -> None:
        assert response.ok, response
        self._open -= 1
        self._submit()
        if not self._open:
            self.ended.set()


class RemoteAsker:
    """The same at the other end of a control socket; a turn reads all answers and asks again."""

    def __init__(
        self, turns: Turns, end: socket.socket, window: int, login: str | None = None
    ) -> None:
        """It asks as a `login`, as the gateway does, or as itself."""
        self._turns = turns
        self.ended = trio.Event()
        self._end = end
        self._number = self._answered = 0
        self._window = window
        self._as = {} if login is None else {"as": login}

    def turn(self) -> bool:
        if not self._number:
            self._ask(self._window)
            return True
        try:
            data = self._end.recv(1 << 20)
        except BlockingIOError:
            return False
        lines = data.splitlines()
        assert all(json.loads(line)["ok"] for line in lines)
        self._answered += len(lines)
        if self._answered == INVOCATIONS:
            self._turns.soon(self.ended.set)
        self._ask(len(lines))
        return True

    def _ask(self, count: int) -> None:
        frames = b""
        for _ in range(min(count, INVOCATIONS - self._number)):
            self._number += 1
            named = {"requestId": f"c{self._number}", **self._as}
            request = {**named, "tool": "m", "operation": "invoke"}
            frames += json.dumps({**request, "input": {"op": "echo", "args": {}}}).encode() + b"\n"
        self._end.sendall(frames)


@pytest.fixture
async def end(bench: Bench, nursery: trio.Nursery) -> AsyncIterator[socket.socket]:
    """Serve a client over a socket pair; the fixture is the client's end."""
    theirs, ours = socket.socketpair()
    for one in (theirs, ours):
        one.setblocking(False)

    async def serve() -> None:
        conversation = Conversation(bench.daemon, Party(ADA))
        try:
            await carry(conversation, ours.fileno(), ours.fileno())
        finally:
            await disconnect(conversation)

    async with trio.open_nursery() as tasks:
        tasks.start_soon(serve)
        await trio.testing.wait_all_tasks_blocked()
        yield theirs
        tasks.cancel_scope.cancel()
    for one in (theirs, ours):
        trio.lowlevel.notify_closing(one)
        one.close()


@pytest.mark.parametrize(
    ("window", "rounds", "each"),
    [
        # Written; read, and looked for more, since the reader does it all: settles, asks again,
        # writes. So the next answer may be there already, and belongs to this turn if it is.
        (1, INVOCATIONS, {"writes": 1, "reads": 2, "steps": 1, "passes": 1}),
        # The same for 64 at a time.
        (WINDOW, ROUNDS, {"writes": 1, "reads": 2, "steps": 2, "passes": 2}),
    ],
    ids=["one", "many"],
)
async def test_invocations_in_process_stay_in_their_budget(
    bench: Bench, window: int, rounds: int, each: Budget
) -> None:
    with bench.counting() as counts:
        await Asker(bench, window).ended.wait()
        counted = Counter(counts)
    assert_within(counted, rounds, each)


@contextmanager
def functions_called() -> Iterator[Counter[str]]:
    """Count the calls of functions of ours in this thread; what has no end is not called anew."""
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            called[code.co_qualname] += 1

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


async def test_an_invocation_in_process_calls_few_functions(bench: Bench) -> None:
    await Asker(bench, WINDOW).ended.wait()  # what the first one of all makes ready
    with functions_called() as called:
        await Asker(bench, WINDOW).ended.wait()
    assert called.total() <= 29 * INVOCATIONS, called.most_common(60)


async def test_an_invocation_over_the_control_socket_calls_few_functions(
    bench: Bench, end: socket.socket
) -> None:
    asker = RemoteAsker(bench.turns, end, WINDOW)
    bench.turns.peers.append(asker)
    with functions_called() as called:
        await asker.ended.wait()
    bench.turns.peers.remove(asker)
    assert called.total() <= 41 * INVOCATIONS, called.most_common(60)


async def test_an_invocation_for_a_login_of_the_gateway_calls_few_functions(
    bench: Bench, end: socket.socket
) -> None:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(end.dup()))
    client = Client(stream)
    args = {"uid": os.getuid(), "face": "http"}
    await client.send(
        request("unordered", "supervisor", op="unordered"),
        request("login", "supervisor", op="login.open", args=args),
    )
    handle = [await client.done() for _ in range(2)][1]["result"]["handle"]
    await stream.aclose()
    asker = RemoteAsker(bench.turns, end, WINDOW, handle)
    bench.turns.peers.append(asker)
    with functions_called() as called:
        await asker.ended.wait()
    bench.turns.peers.remove(asker)
    assert called.total() <= 53 * INVOCATIONS, called.most_common(60)


@pytest.mark.parametrize(
    ("window", "rounds", "each"),
    [
        # To the module and to the client; from both. Two tasks have a step each: the reader of the
        # client, and that of the module, which write what they have led to.
        (1, INVOCATIONS, {"writes": 2, "reads": 2, "steps": 2, "passes": 2}),
        # The same for 64 at a time.
        (WINDOW, ROUNDS, {"writes": 2, "reads": 2, "steps": 2, "passes": 2}),
    ],
    ids=["one", "many"],
)
async def test_invocations_over_a_socket_stay_in_their_budget(
    bench: Bench, end: socket.socket, window: int, rounds: int, each: Budget
) -> None:
    with bench.counting() as counts:
        asker = RemoteAsker(bench.turns, end, window)
        bench.turns.peers.append(asker)
        await asker.ended.wait()
        bench.turns.peers.remove(asker)
        counted = Counter(counts)
    assert_within(counted, rounds, each)
