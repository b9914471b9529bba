"""The rows of the journal: entries and state patches, written durably and read back.

`python -m scripts.bench.journal FOLDER COUNT` writes entries as a busy daemon does, reads all of
them back, and prints the figures: in a process of its own, so that its memory is the journal's.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import trio

from protocol.events import Progress
from scripts.bench import rows
from scripts.bench.calls import listen
from scripts.bench.rows import OURS, Cost, Sample, now, since
from scripts.bench.workshop import Workshop, with_daemon
from scripts.checkout import COMMAND_WITHIN_S, ROOT
from supervisor.kernel.event_feed import EventFeed
from supervisor.kernel.journal import FILE, Journal, remembering
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.principals import SUPERVISOR
from supervisor.runtime.blocking import BlockingWork

MEGABYTE: Final = 1_000_000
AT_ONCE: Final = 20_000
"""Entries between two flushes: fewer than can wait, so that none is dropped."""


def patches(workshop: Workshop) -> list[Sample]:
    """Have a module send its patches twice: the first time warms up, the second one counts.

    The answer comes when all of them are in the journal, so that is part of the time.
    """
    count = workshop.sizes.patches

    async def merged(kernel: Kernel) -> tuple[Cost, int, Path]:
        session = kernel.sessions.new(SUPERVISOR, "bench")
        await listen(kernel, count, op="patch", session_id="bench")
        gc.collect()
        before = psutil.Process().memory_info().rss
        cost = await listen(kernel, count, op="patch", session_id="bench")
        gc.collect()
        grown = psutil.Process().memory_info().rss - before
        assert session.kept.revision == 2 * count, session.kept.revision
        assert session.kept.state["step"] == count - 1, session.kept.state
        return cost, grown, Path(kernel.facts.data_dir)

    cost, grown, data_dir = with_daemon(workshop, merged, workshop.native())
    reading = trio.run(_read_patches, data_dir, 2 * count)
    in_a_round = (data_dir / FILE).stat().st_size / 2
    return [
        rows.PATCHES.sample(OURS, count, cost),
        rows.PATCHES_MEMORY.figure(OURS, max(0, grown) / MEGABYTE),
        rows.PATCHES_SIZE.figure(OURS, in_a_round / MEGABYTE),
        rows.PATCHES_READ.sample(OURS, 2 * count, reading),
    ]


async def _read_patches(data_dir: Path, count: int) -> Cost:
    async with remembering(data_dir, JournalOptions()) as journal:
        return await _read(journal, count, 0, event="session:patch")


async def _read(journal: Journal, count: int, since_seq: int, **only: str) -> Cost:
    """Read entries back as a client's `events` does."""
    feed, seen = EventFeed(journal, BlockingWork()), -1  # the heading comes first

    async def emit(event: Progress | None) -> None:
        nonlocal seen
        seen += event is not None

    begun = now()
    await feed.send({"since": since_seq, "last": 0, **only}, emit, None)
    cost = since(begun)
    feed.close()
    assert seen == count, seen
    return cost


def entries(workshop: Workshop) -> list[Sample]:
    """Write entries and read all of them back, in another process."""
    count = workshop.sizes.entries
    command = [sys.executable, "-m", "scripts.bench.journal", str(workshop.new_folder())]
    done = subprocess.run(
        [*command, str(count)], cwd=ROOT, stdout=-1, check=True, timeout=COMMAND_WITHIN_S
    )
    figures = json.loads(done.stdout)
    return [
        rows.JOURNAL_WRITE.sample(OURS, count, Cost(*figures["write"])),
        rows.JOURNAL_READ.sample(OURS, count, Cost(*figures["read"])),
        rows.JOURNAL_SIZE.figure(OURS, figures["bytes"] / count * 1000 / MEGABYTE),
        rows.JOURNAL_MEMORY.figure(OURS, figures["grown_bytes"] / MEGABYTE),
    ]


async def main(folder: Path, count: int) -> None:
    """Write and read; print what it took."""
    async with remembering(folder, JournalOptions()) as journal:
        await _write(journal, min(count, AT_ONCE))
        before = _peak_bytes()
        begun = now()
        await _write(journal, count)
        writing = since(begun)
        reading = await _read(journal, count, journal.told.last_seq - count)
        grown = _peak_bytes() - before
        assert journal.dropped == 0
    size = (folder / FILE).stat().st_size
    print(json.dumps({"write": writing, "read": reading, "grown_bytes": grown, "bytes": size}))


async def _write(journal: Journal, count: int) -> None:
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


def _peak_bytes() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
