"""Count where a process spends its CPU time, by part and function.

A timer of that time interrupts, and who is at work then is counted: as many samples fall into a
function as it takes time, without the cost of a profiler at each call.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import trio

from scripts.checkout import ROOT

EVERY_S = 0.001
"""How often to look; the kernel may do it less often."""

PARTS = {
    str(ROOT / "protocol"): "protocol",
    str(ROOT / "supervisor/policy"): "supervisor.policy",
    str(ROOT / "supervisor/runtime"): "supervisor.runtime",
    str(ROOT / "supervisor/kernel"): "supervisor.kernel",
    str(ROOT / "supervisor/faces"): "supervisor.faces",
    str(ROOT / "supervisor/daemon"): "supervisor.daemon",
    str(Path(trio.__file__).parent): "trio",
    str(ROOT / "scripts"): "who asks",
}
WAITING = "get_events"
"""Where trio waits for the kernel: CPU time that passes meanwhile is of other threads."""
THREADS = "epoll, and other threads"
OTHERS = "Python's library"


class Spot(NamedTuple):
    """Where time is spent."""

    part: str
    function: str = ""
    """`file.py: Class.method`; empty where it is none of ours or of trio's."""


@contextmanager
def sampled() -> Iterator[Counter[Spot]]:
    """Count who is at work in this process."""
    samples: Counter[Spot] = Counter()

    def look(signum: int, frame: FrameType | None) -> None:
        del signum
        samples[spot(frame)] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    try:
        yield samples
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def spot(frame: FrameType | None) -> Spot:
    """Return the innermost function of ours or of trio's."""
    while frame is not None:
        code = frame.f_code
        for folder, part in PARTS.items():
            if code.co_filename.startswith(folder):
                if part == "trio" and code.co_name == WAITING:
                    return Spot(THREADS)
                return Spot(part, f"{_named(code.co_filename)}: {code.co_qualname}")
        frame = frame.f_back
    return Spot(OTHERS)


def _named(path: str) -> str:
    """Return a file's path from the project's folder, or from trio's."""
    trio_folder = Path(trio.__file__).parents[1]
    known = ROOT if path.startswith(str(ROOT)) else trio_folder
    # An environment may be within the project.
    known = trio_folder if path.startswith(str(trio_folder)) else known
    return str(Path(path).relative_to(known))
