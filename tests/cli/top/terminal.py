"""A command on a terminal of its own, which it leads as a login shell's command would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 60.0

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
"""Show the other screen; show the one that was there before."""

_PROGRAM = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from supervisor.cli.main import main
main()
"""


_PART = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z@])|\x1b.|\r|\n|\x08|[^\x1b\r\n\x08]+", re.DOTALL)


def screen_of(output: bytes) -> str:
    """Return what a terminal of any size shows that was written this."""
    rows: dict[int, str] = {}
    row = column = 0
    for part in _PART.finditer(output.decode("utf-8", "replace")):
        text, number = part[0], int((part[1] or "1").partition(";")[0] or 1)
        match text if part[2] is None else part[2]:
            case "\r":
                column = 0
            case "\n" | "B":
                row += number
            case "\x08" | "D":
                column = max(0, column - number)
            case "A":
                row = max(0, row - number)
            case "C":
                column += number
            case "H":
                row, column = (int(one or 1) - 1 for one in f"{part[1]};".split(";")[:2])
            case "J":
                rows = {one: line for one, line in rows.items() if one < row and part[1] != "2"}
            case "K":
                rows[row] = rows.get(row, "")[:column]
            case _ if part[2] is None and text[0] != "\x1b":
                line = rows.get(row, "").ljust(column)
                rows[row] = line[:column] + text + line[column + len(text) :]
                column += len(text)
    return "\n".join(rows.get(one, "") for one in range(max(rows, default=0) + 1))


class Terminal:
    """Holds both ends, so that what the command left of its settings can be seen."""

    def __init__(self, socket: Path, *arguments: str, **environment: str) -> None:
        self._master, self._slave = pty.openpty()
        self._resize(100, 24)
        self.settings: Any = termios.tcgetattr(self._slave)
        self.output = b""
        """All that was written."""
        usual = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        usual |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, "top", "--socket", str(socket), *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**usual, **environment},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for end in (self._master, self._slave):
            with contextlib.suppress(OSError):
                os.close(end)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; the kernel tells the command with SIGWINCH."""
        self._resize(columns, lines)

    def block(self) -> None:
        """Have the terminal take nothing more."""
        termios.tcflow(self._slave, termios.TCOOFF)

    def close(self) -> None:
        """Close the terminal as somebody closes a window."""
        os.close(self._master)
        self._master = -1

    def shows(self, *texts: str, without: str = "\0") -> None:
        """Wait until the screen shows each of the texts, and not the other one."""
        ends_at = time.monotonic() + PATIENCE_S
        while without in (shown := screen_of(self.output)) or not all(
            text in shown for text in texts
        ):
            assert self._read(0.05) or self.process.poll() is None, shown
            assert time.monotonic() < ends_at, shown

    def writes(self, *parts: bytes) -> None:
        """Wait until this was written, in this order."""
        pattern = re.compile(b".*".join(map(re.escape, parts)), re.DOTALL)
        ends_at = time.monotonic() + PATIENCE_S
        while not pattern.search(self.output):
            self._read(0.05)
            assert time.monotonic() < ends_at, self.output[-3000:]

    def ended(self) -> int:
        """Wait for the end of the command, reading on; returns its status."""
        ends_at = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < ends_at, self.output[-3000:]
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.wait()

    def is_given_back(self) -> bool:
        """Tell whether settings and screen are as they were."""
        left_at, entered_at = self.output.rfind(LEAVE), self.output.rfind(ENTER)
        return self.has_its_settings() and left_at > entered_at

    def has_its_settings(self) -> bool:
        """Tell whether settings are as they were."""
        now: Any = termios.tcgetattr(self._slave)
        return bool(now == self.settings)

    def _read(self, timeout_s: float) -> bytes:
        ready, _, _ = select.select([self._master], [], [], max(0.0, timeout_s))
        data = os.read(self._master, 1 << 16) if ready else b""
        self.output += data
        return data

    def _resize(self, columns: int, lines: int) -> None:
        packed = struct.pack("4H", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, packed)
