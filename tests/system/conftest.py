"""Fixtures of the system tests: folders short enough for a socket's path, daemons, liveness."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.containment.conftest import lifelines, rung
from tests.system.daemon import Daemon
from tests.system.liveness import Liveness

__all__ = ["lifelines", "rung"]

StartDaemon = Callable[..., Daemon]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's has 107 bytes at the most."""
    path = Path(tempfile.mkdtemp(prefix="stdiod-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def liveness(folder: Path) -> Iterator[Liveness]:
    """The register of living processes."""
    with Liveness(folder / "liveness") as register:
        yield register


@pytest.fixture
def start_daemon(folder: Path) -> Iterator[StartDaemon]:
    """Start a daemon with these descriptors; it is ended after the test."""
    with ExitStack() as daemons:

        def start(*documents: dict[str, Any], **options: Any) -> Daemon:
            return daemons.enter_context(Daemon(folder, *documents, **options))

        yield start
