"""What an event costs: nothing of its own, only its part of a chunk that a pipe holds."""

from __future__ import annotations

from collections import Counter

import trio

from protocol.events import Progress
from protocol.response import Response
from supervisor.kernel.parties import Client
from tests.budget.conftest import Bench, assert_within
from tests.principals import ADA

EVENTS = 20_000


class Listening(Client):
    """A client that counts."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.events = 0

    def event(self, event: Progress, line: bytes | None) -> None:
        self.events += 1

    def finished(self, response: Response) -> None:
        assert response.ok, response
        self.ended.set()


async def test_a_stream_costs_two_reads_and_two_steps_for_each_time_its_pipe_was_filled(
    bench: Bench,
) -> None:
    client = Listening()
    before = bench.module.turns
    with bench.counting() as counts:
        bench.daemon.requests.invoke(ADA, "m", {"op": "say", "args": {"events": EVENTS}}, client)
        await client.ended.wait()
        counted = Counter(counts)
    assert client.events == EVENTS
    # One read takes all that a pipe holds, the other one finds it empty.
    filled = bench.module.turns - before
    assert_within(counted, filled, {"reads": 2, "steps": 2, "passes": 2})
    assert filled < EVENTS / 20, "this kernel's pipes are too small for this to say anything"
