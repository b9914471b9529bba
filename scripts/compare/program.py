"""A program with a vice, as child.py has them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

CHILD = Path(__file__).with_name("child.py")


class Program(NamedTuple):
    """Something to run."""

    name: str
    vice: str
    whole_group: bool = False

    def command(self, births: Path) -> list[str]:
        """Return its command; `births` is the socket it connects to."""
        return [sys.executable, "-I", "-S", str(CHILD), str(births), self.vice, self.name]
