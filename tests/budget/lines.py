"""Count the lines of our own code that are run: what something costs, on a busy machine too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import trio

import protocol
import supervisor

OURS = str(Path(supervisor.__file__).parent)
PROTOCOL = str(Path(protocol.__file__).parent)


class Lines:
    """How many lines of the daemon's own code have been run."""

    def __init__(self, *folders: str) -> None:
        """Count those of the modules in some folders."""
        self.run = 0
        self._folders = folders or (OURS,)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count within the block; each round of a loop counts, those within a line too."""
        before = sys.gettrace()
        sys.settrace(self._frame)
        try:
            yield
        finally:
            sys.settrace(before)

    def _frame(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._folders) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.run += event == "line"
        return self._line


class LongestStep(trio.abc.Instrument):
    """The most lines that a task runs from one wait to the next."""

    def __init__(self) -> None:
        self.most = 0
        self._lines = Lines(OURS, PROTOCOL)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure within the block, the steps of the task that enters it too."""
        trio.lowlevel.add_instrument(self)
        try:
            with self._lines.counting():
                yield
                self._step()
        finally:
            trio.lowlevel.remove_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step()

    def _step(self) -> None:
        self.most = max(self.most, self._lines.run)
        self._lines.run = 0
