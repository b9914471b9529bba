"""The scene of where our own CPU time goes, by ring: what a row that falls short consists of.

A timer of the process's CPU time interrupts, and who is at work then is counted: as many samples
fall into a part as it takes time, without the cost of a profiler at each call.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import trio

from scripts.bench.in_process import WINDOW, ask
from scripts.bench.rows import INVOKE_MANY, INVOKE_ONE, TOOL, Share
from scripts.bench.sizes import Sizes
from scripts.bench.workshop import Workshop, daemon

ROOT = Path(__file__).parents[2]

EVERY_S = 0.001
"""How often to look; the kernel may do it less often."""

PARTS = {
    str(ROOT / "protocol"): "protocol",
    str(ROOT / "supervisor/policy"): "supervisor.policy",
    str(ROOT / "supervisor/runtime"): "supervisor.runtime",
    str(ROOT / "supervisor/kernel"): "supervisor.kernel",
    str(Path(trio.__file__).parent): "trio",
    str(ROOT / "scripts"): "who asks",
}
WAITING = "get_events"
"""Where trio waits for the kernel: CPU time that passes meanwhile is of other threads."""
THREADS = "epoll, and other threads"
OTHERS = "Python's library"


async def shares(workshop: Workshop, sizes: Sizes) -> list[Share]:
    """Look where the time goes of each row that is mostly ours."""
    found: list[Share] = []
    async with daemon(workshop, workshop.primes(), workshop.tool()) as one:
        for row, module, op, count, window in (
            (INVOKE_ONE, "primes", "echo", sizes.sequential * 4, 1),
            (INVOKE_MANY, "primes", "echo", sizes.concurrent * 4, WINDOW),
            (TOOL, "done", "run", sizes.spawns * 4, 1),
        ):
            with _sampled() as samples:
                begin = time.process_time()
                await ask(one, module, op, count, window)
                each_us = (time.process_time() - begin) / count * 1e6
            whole = samples.total()
            found += [
                Share(row.title, part, each_us * number / whole)
                for part, number in samples.most_common()
            ]
    return found


@contextmanager
def _sampled() -> Iterator[Counter[str]]:
    """Count who is at work, by part."""
    samples: Counter[str] = Counter()

    def look(signum: int, frame: FrameType | None) -> None:
        del signum
        samples[_part(frame)] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    try:
        yield samples
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _part(frame: FrameType | None) -> str:
    """Return the part that the innermost frame of ours or of trio's is in."""
    while frame is not None:
        code = frame.f_code
        for folder, part in PARTS.items():
            if code.co_filename.startswith(folder):
                return THREADS if part == "trio" and code.co_name == WAITING else part
        frame = frame.f_back
    return OTHERS
