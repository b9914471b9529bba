"""The scene in which a module changes the state of a session, again and again."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import psutil
import trio

from protocol.events import Progress
from protocol.response import Response
from scripts.bench.in_process import Counting
from scripts.bench.rows import (
    OURS,
    PATCHES,
    PATCHES_MEMORY,
    PATCHES_READ,
    PATCHES_SIZE,
    Sample,
)
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import Workshop, daemon
from supervisor.kernel.daemon import Daemon
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
        await _run(one, sizes.patches)
        gc.collect()
        before = psutil.Process().memory_info().rss
        took_s = await _run(one, sizes.patches)
        gc.collect()
        grown = psutil.Process().memory_info().rss - before
        assert session.kept.revision == 2 * sizes.patches, session.kept.revision
        assert session.kept.state["step"] == sizes.patches - 1, session.kept.state
        data_dir = Path(one.facts.data_dir)
    read_s = await _read(data_dir, 2 * sizes.patches)
    return [
        Sample(PATCHES.title, OURS, sizes.patches / took_s),
        Sample(PATCHES_MEMORY.title, OURS, max(0, grown) / MEGABYTE),
        Sample(PATCHES_SIZE.title, OURS, (data_dir / FILE).stat().st_size / 2 / MEGABYTE),
        Sample(PATCHES_READ.title, OURS, 2 * sizes.patches / read_s),
    ]


async def _read(data_dir: Path, count: int) -> float:
    """Read all patches back as `events` does; returns how long it took (s)."""
    seen = -1  # the heading comes first

    async def emit(event: Progress | None) -> None:
        nonlocal seen
        seen += event is not None

    async with remembering(data_dir, JournalOptions()) as journal:
        feed = EventFeed(journal, BlockingWork())
        begin = time.perf_counter()
        await feed.send({"since": 0, "last": 0, "event": "session:patch"}, emit, None)
        took_s = time.perf_counter() - begin
        feed.close()
    assert seen == count, seen
    return took_s


async def _run(one: Daemon, count: int) -> float:
    ended = trio.Event()
    answers: list[Response] = []

    def finished(response: Response) -> None:
        answers.append(response)
        ended.set()

    client = Counting(finished)
    content = {"op": "patch", "args": {"n": count}, "session_id": "bench", "timeout_s": 600}
    begin = time.perf_counter()
    one.requests.invoke(SUPERVISOR, "native", content, client)
    await ended.wait()
    took_s = time.perf_counter() - begin
    assert answers[0].ok, answers[0]
    assert client.events == count, client.events
    return took_s
