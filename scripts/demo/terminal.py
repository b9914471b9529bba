"""Show what happens: headings, commands, their output as it comes, ticks; or JSON, one per step."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from typing import Any, Final

INDENT: Final = "    "
CLEAR_LINE: Final = "\r\x1b[K"


@dataclass
class Step:
    """One thing that has to go as expected."""

    name: str
    commands: list[dict[str, Any]] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    fault: str | None = None
    skipped: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the step as `--json` shows it."""
        return {
            "step": self.name,
            "ok": self.fault is None,
            "skipped": self.skipped,
            "commands": self.commands,
            "checks": self.checks,
            "fault": self.fault,
        }


class Screen:
    """Where people, or programs, look."""

    def __init__(self, *, as_json: bool) -> None:
        """Print for people, in colours on a terminal; or one JSON object per step."""
        self.as_json = as_json
        self.coloured = not as_json and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.columns = shutil.get_terminal_size().columns
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        self._tick, self._cross = ("✓", "✗") if utf8 else ("ok:", "FAILED:")

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._print(f"\n{self._paint('1;36', text)}")

    def words(self, text: str) -> None:
        """Explain something."""
        self._print(f"  {self._paint('2', text)}")

    def command(self, text: str) -> None:
        """Show a command that is run now."""
        self._print(f"\n  {self._paint('1', '$ ' + text)}")

    def output(self, *, limit: int) -> Output:
        """Return where the output of a command goes, shown up to `limit` lines."""
        return Output(silent=self.as_json, limit=limit)

    def ended(self, step: Step) -> None:
        """Show how a step ended."""
        if self.as_json:
            print(json.dumps(step.document()), flush=True)
        elif step.skipped is not None:
            self._print(f"  {self._paint('33', '- ' + step.name)}: skipped, {step.skipped}")
        elif step.fault is None:
            says = f": {'; '.join(step.checks)}" if step.checks else ""
            self._print(f"  {self._paint('32', f'{self._tick} {step.name}')}{says}")
        else:
            self._print(f"  {self._paint('1;31', f'{self._cross} {step.name}')}: {step.fault}")

    def verdict(self, text: str, *, well: bool) -> None:
        """Show how all of it ended."""
        mark = self._tick if well else self._cross
        self._print(f"\n{self._paint('1;32' if well else '1;31', f'{mark} {text}')}")

    def next_steps(self, steps: dict[str, str]) -> None:
        """Show what to type next."""
        self.heading("What to type next")
        width = max(map(len, steps))
        for command, what in steps.items():
            self._print(f"  {self._paint('1', command.ljust(width))}  {what}")

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.coloured else text

    def _print(self, text: str) -> None:
        if not self.as_json:
            print(text, flush=True)


class Output:
    """The output of one command: kept whole, and shown indented, piece by piece as it comes."""

    def __init__(self, *, silent: bool, limit: int) -> None:
        self.text = ""
        self._silent = silent
        self._limit = limit
        self._lines = 0
        self._at_start = True

    def write(self, text: str) -> None:
        """Take a piece; it may end anywhere."""
        self.text += text
        for line in text.splitlines(keepends=True):
            if self._lines < self._limit:
                self._show(line)
            self._at_start = line.endswith("\n")
            self._lines += self._at_start

    def finish(self) -> None:
        """Say how much was left out."""
        if self._lines > self._limit:
            self._show(f"… {self._lines - self._limit} more lines\n")
        elif not self._at_start:
            self._show("\n")

    def _show(self, line: str) -> None:
        if self._silent:
            return
        # What a command rewrites in place stays indented too.
        shown = line.replace(CLEAR_LINE, CLEAR_LINE + INDENT)
        sys.stdout.write(INDENT + shown if self._at_start and line != "\n" else shown)
        sys.stdout.flush()
