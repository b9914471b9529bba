"""Daemons that are started at a socket of the test's own, and those that cannot start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.daemon import command, start
from tests.system.descriptors import write
from tests.system.liveness import BOUND_S


def _started(folder: Path, socket: Path, *options: str) -> tuple[subprocess.Popen[bytes], bool]:
    own = folder / "own"
    write(own / "modules")
    words = command(own / "modules", socket, own / "data", *options)
    with (own / "log").open("ab") as log:
        return start(words, os.environ, log.fileno())


@contextmanager
def serving(folder: Path, socket: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon without modules at a socket; what else it needs is in `folder`."""
    process, ready = _started(folder, socket)
    try:
        assert ready, (folder / "own" / "log").read_text()
        yield process
        process.terminate()
        assert process.wait(BOUND_S) == 0
    finally:
        process.kill()
        process.wait()


def refusal(folder: Path, socket: Path, *options: str) -> str:
    """Return what a daemon says that cannot start."""
    process, ready = _started(folder, socket, *options)
    try:
        assert not ready
        assert process.wait(BOUND_S) != 0
    finally:
        process.kill()
        process.wait()
    return (folder / "own" / "log").read_text()
