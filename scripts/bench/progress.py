"""Tell those who wait what is going on: one line that changes on a terminal, else a line each."""

from __future__ import annotations

import sys
import time


class Progress:
    """What is going on, on stderr, beside the results."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._live = sys.stderr.isatty()

    def step(self, what: str) -> None:
        """Say what begins."""
        line = f"bench: {time.monotonic() - self._began_s:4.0f} s: {what}"
        text = f"\r\x1b[K{line}" if self._live else f"{line}\n"
        print(text, end="", file=sys.stderr, flush=True)

    def note(self, what: str) -> None:
        """Say something that stays."""
        self.end()
        print(f"bench: {what}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the terminal's line empty."""
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
