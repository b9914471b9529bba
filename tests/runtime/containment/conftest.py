"""What the tests of containment share: lifelines, and each rung in turn."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.kernel import Kernel
from supervisor.runtime.containment import guardian, guardianship, ladder, procfs
from supervisor.runtime.containment.ladder import ContainmentError
from supervisor.runtime.containment.orphans import Orphans
from supervisor.runtime.files.sources import scan
from tests.runtime.containment.lifelines import Lifelines, describe
from tests.system import forked


@pytest.fixture(autouse=True)
def childless() -> Iterator[None]:
    """Have no child but a test's own, and reap what it orphaned to this process."""
    forked.end()
    yield
    for pid in procfs.children(os.getpid()) or ():
        one = procfs.stat(pid)
        if one is not None and not one.lives:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


@pytest.fixture(autouse=True)
def _guardian_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardianship, "command", guardian.command)


@pytest.fixture
def lifelines() -> Iterator[Lifelines]:
    # Not tmp_path: a socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="lf") as folder:
        lines = Lifelines(Path(folder))
        yield lines
        lines.close()


def why_not(rung: str) -> str | None:
    """Say why this machine lacks a rung."""
    try:
        chosen = ladder.choose(rung, "probe-probe", Orphans("probe", whole_process=False))
    except ContainmentError as error:
        return str(error)
    chosen.rung.close()
    return None


@pytest.fixture(params=ladder.RUNGS)
def rung(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    reason = why_not(name)
    if reason is not None:
        if os.environ.get("STDIOD_TEST_ALL_RUNGS"):
            pytest.fail(reason)
        pytest.skip(reason)
    return name


Make = Callable[..., Any]


@pytest.fixture
def daemon_with(rung: str, lifelines: Lifelines, tmp_path: Path) -> Make:
    @asynccontextmanager
    async def make(
        *vices: str,
        whole_process: bool = False,
        memory_ceiling_bytes: int | None = None,
        modules: tuple[str, ...] = ("stubborn",),
        **supervision: Any,
    ) -> AsyncIterator[Kernel]:
        folder = tmp_path / "modules"
        for name in modules:
            describe(folder, lifelines, *vices, name=name, **supervision)
        found = scan([folder])
        assert not found.quarantined
        async with Kernel(
            found,
            data_dir=tmp_path / "data",
            containment=rung,
            whole_process=whole_process,
            memory_ceiling_bytes=memory_ceiling_bytes,
        ) as daemon:
            assert daemon.facts.registry.rung.name == rung
            yield daemon

    return make
