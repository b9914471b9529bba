"""One supervisor's turn: it runs around a block, and nothing of it is left afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from scripts.peers.births import Births
from scripts.peers.supervisor import Program, Supervisor

BORN_WITHIN_S = 30.0
SETTLED_AFTER_S = 5.0
"""How long whoever is going to die of something may take."""


@contextmanager
def under(peer: type[Supervisor], *programs: Program) -> Iterator[tuple[Supervisor, Births]]:
    """Run a supervisor around the block; nothing of it is left afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="cmp-") as name,
        Births(Path(name, "births")) as births,
    ):
        supervisor = peer(Path(name), births.path, programs)
        try:
            yield supervisor, births
        finally:
            # Helpers go before the programs, or they would start them again.
            supervisor.helpers += family(supervisor.process.pid)
            supervisor.end()
            births.watch(0.0)
            theirs = {life.pid for life in births.lives}
            for helper in supervisor.helpers:
                if helper.is_running() and helper.pid not in theirs:
                    helper.kill()
            if births.alive():
                births.watch(SETTLED_AFTER_S / 4)  # those that were just being started


def born(births: Births, number: int, *roles: str) -> None:
    """Wait for so many processes of these roles; raises `TimeoutError`."""
    if not births.until(lambda: len(births.of(*roles)) >= number, BORN_WITHIN_S):
        raise TimeoutError(f"only {len(births.of(*roles))} of {number} processes came")


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it; none if it is gone."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
