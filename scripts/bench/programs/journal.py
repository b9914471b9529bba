"""Write entries of a journal as a busy daemon does, read all of them back, and print the figures.

In a process of its own, so that its memory is that of the journal and of nothing else.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import trio

from protocol.events import Progress
from scripts.bench.rows import now, since
from supervisor.kernel.event_feed import EventFeed
from supervisor.kernel.journal import Journal, remembering
from supervisor.kernel.store.settings import JournalOptions
from supervisor.runtime.blocking import BlockingWork

AT_ONCE = 20_000
"""Entries between two flushes: fewer than can wait, so that none is dropped."""


async def main() -> None:
    """Take the folder and the number of entries from the command line."""
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    async with remembering(folder, JournalOptions()) as journal:
        await write(journal, min(count, AT_ONCE))
        before = peak_bytes()
        begun = now()
        await write(journal, count)
        wrote, begun = since(begun), now()
        await read(journal, count)
        have_read = since(begun)
        grown = peak_bytes() - before
        assert journal.dropped == 0
    size = (folder / "journal.db").stat().st_size
    figures = {"write": wrote, "read": have_read, "grown_bytes": grown, "bytes": size}
    print(json.dumps(figures))


async def write(journal: Journal, count: int) -> None:
    """Record what an invocation leaves, `count` times, until it is durable."""
    for first in range(0, count, AT_ONCE):
        for number in range(first, min(first + AT_ONCE, count)):
            journal.record(
                "module:invoke",
                module="primes",
                status="ok",
                duration_ms=3,
                data={"op": "echo"},
                request_id=f"r{number}",
                span_id=journal.new_span(),
            )
        durable = trio.Event()
        journal.flush(lambda failure: durable.set() if failure is None else None)  # noqa: B023
        await durable.wait()


async def read(journal: Journal, count: int) -> None:
    """Read the last `count` entries as a client's `events` does."""
    feed, seen = EventFeed(journal, BlockingWork()), 0

    async def emit(event: Progress | None) -> None:
        nonlocal seen
        del event
        seen += 1

    await feed.send({"since": journal.told.last_seq - count, "last": 0}, emit, None)
    feed.close()
    assert seen == count + 1, seen  # the heading is one


def peak_bytes() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


trio.run(main)
