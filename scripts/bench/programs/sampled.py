"""sampled.py FILE ARGUMENTS...: be `stdiod ARGUMENTS...`, and count where the CPU time is spent.

At each SIGRTMIN it writes what it counted since the last one, or since its start, into FILE-1,
FILE-2 and so on, as a JSON list of `[part, function, samples]`.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from scripts.bench.sampling import sampled
from supervisor.cli.main import main

path = sys.argv[1]
sys.argv = ["stdiod", *sys.argv[2:]]
numbers = itertools.count(1)

with sampled() as samples:

    def tell(signum: int, frame: FrameType | None) -> None:
        """Write it where it is looked for, whole."""
        del signum, frame
        name = f"{path}-{next(numbers)}"
        counted = json.dumps([[*spot, count] for spot, count in list(samples.items())])
        Path(f"{name}.new").write_text(counted, encoding="utf-8")
        Path(f"{name}.new").rename(name)
        samples.clear()

    signal.signal(signal.SIGRTMIN, tell)
    main()
