"""The scene of what the daemon remembers: its journal."""

from __future__ import annotations

import json
import sys
import tempfile

import trio

from scripts.bench.rows import (
    JOURNAL_MEMORY,
    JOURNAL_READ,
    JOURNAL_SIZE,
    JOURNAL_WRITE,
    OURS,
    Cost,
    Sample,
    rate,
)
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import PROGRAM_WITHIN_S, Workshop


async def journal(workshop: Workshop, sizes: Sizes) -> list[Sample]:
    """Write entries and read all of them back."""
    del workshop
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder:
        command = [sys.executable, "-m", "scripts.bench.programs.journal"]
        with trio.fail_after(PROGRAM_WITHIN_S):
            done = await trio.run_process(
                [*command, folder, str(sizes.entries)], capture_stdout=True
            )
    figures = json.loads(done.stdout)
    return [
        rate(JOURNAL_WRITE, OURS, sizes.entries, Cost(*figures["write"])),
        rate(JOURNAL_READ, OURS, sizes.entries, Cost(*figures["read"])),
        Sample(JOURNAL_SIZE.title, OURS, figures["bytes"] / sizes.entries * 1000 / 1e6),
        Sample(JOURNAL_MEMORY.title, OURS, figures["grown_bytes"] / 1e6),
    ]
