"""The scene in which a module changes the state of a session, again and again."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil

from protocol.events import Progress
from scripts.bench.in_process import listen
from scripts.bench.rows import (
    OURS,
    PATCHES,
    PATCHES_MEMORY,
    PATCHES_READ,
    PATCHES_SIZE,
    Cost,
    Sample,
    now,
    rate,
    since,
)
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import Workshop, daemon
from supervisor.kernel.event_feed import EventFeed
from supervisor.kernel.journal import FILE, remembering
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.principals import SUPERVISOR
from supervisor.runtime.blocking import BlockingWork

MEGABYTE = 1_000_000


async def patch(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Have a module send its patches twice: the first time warms up, the second one counts.

    The answer comes when all of them are in the journal, so that is part of the time.
    """
    async with daemon(workshop, workshop.native()) as one:
        session = one.sessions.new(SUPERVISOR, "bench")
        await listen(one, sizes.patches, "patch", session_id="bench")
        gc.collect()
        before = psutil.Process().memory_info().rss
        cost = await listen(one, sizes.patches, "patch", session_id="bench")
        gc.collect()
        grown = psutil.Process().memory_info().rss - before
        assert session.kept.revision == 2 * sizes.patches, session.kept.revision
        assert session.kept.state["step"] == sizes.patches - 1, session.kept.state
        data_dir = Path(one.facts.data_dir)
    read = await _read(data_dir, 2 * sizes.patches)
    return [
        rate(PATCHES, OURS, sizes.patches, cost),
        Sample(PATCHES_MEMORY.title, OURS, max(0, grown) / MEGABYTE),
        Sample(PATCHES_SIZE.title, OURS, (data_dir / FILE).stat().st_size / 2 / MEGABYTE),
        rate(PATCHES_READ, OURS, 2 * sizes.patches, read),
    ]


async def _read(data_dir: Path, count: int) -> Cost:
    """Read all patches back as `events` does; returns what it took."""
    seen = -1  # the heading comes first

    async def emit(event: Progress | None) -> None:
        nonlocal seen
        seen += event is not None

    async with remembering(data_dir, JournalOptions()) as journal:
        feed = EventFeed(journal, BlockingWork())
        begun = now()
        await feed.send({"since": 0, "last": 0, "event": "session:patch"}, emit, None)
        cost = since(begun)
        feed.close()
    assert seen == count, seen
    return cost
