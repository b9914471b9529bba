"""What a module forks before it is moved into its cgroup is ended with it all the same."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from supervisor.kernel.kernel import Kernel
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment import cgroup2, procfs
from supervisor.runtime.files.sources import scan
from tests.runtime.containment.conftest import why_not
from tests.runtime.containment.in_process import until
from tests.runtime.containment.lifelines import Lifelines, describe

Escaped = Callable[[str], AbstractAsyncContextManager[tuple[Kernel, int]]]


@pytest.fixture
def escaped(lifelines: Lifelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Escaped:
    missing = why_not("cgroup2")
    if missing is not None:
        pytest.skip(missing)
    return lambda vice: escaped_in_the_window(vice, lifelines, tmp_path, monkeypatch)


@asynccontextmanager
async def escaped_in_the_window(
    vice: str, lifelines: Lifelines, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Kernel, int]]:
    """Run `stubborn`, which has forked an escapee when it is moved, and `other`; gives its pid."""
    describe(folder / "modules", lifelines, vice, name="stubborn", start="lazy")
    escaped: list[int] = []
    move = cgroup2._move

    def move_late(leader: int, to: str) -> None:
        if "/stubborn#" in to:
            escaped.extend(lifelines.take("leader", vice))
            escaped.remove(leader)
        move(leader, to)

    monkeypatch.setattr(cgroup2, "_move", move_late)
    with contextlib.closing(Lifelines(folder)) as others:
        describe(folder / "modules", others, name="other")
        async with Kernel(
            scan([folder / "modules"]),
            data_dir=folder / "data",
            containment="cgroup2",
            whole_process=True,
        ) as daemon:
            await until(daemon, State.READY, "other")
            daemon.fleet.modules["stubborn"].start("the test")
            await until(daemon, State.READY)
            (pid,) = escaped
            assert "#" not in procfs.read_bytes(f"/proc/{pid}/cgroup").decode()
            yield daemon, pid


async def stop(daemon: Kernel, name: str) -> None:
    daemon.fleet.modules[name].stop("the test")
    await until(daemon, State.DOWN, name)


async def test_one_that_wiped_everything_in_the_window_ends_with_its_module(
    escaped: Escaped, lifelines: Lifelines
) -> None:
    async with escaped("bare") as (daemon, _):
        await stop(daemon, "stubborn")
        await lifelines.all_dead()
        assert daemon.fleet.modules["other"].state is State.READY


async def test_one_that_lost_its_brand_too_is_named_and_held_in_a_cgroup_for_strays(
    escaped: Escaped, lifelines: Lifelines
) -> None:
    async with escaped("hidden") as (daemon, pid):
        await stop(daemon, "stubborn")
        last = daemon.fleet.modules["stubborn"].last_exit
        assert last is not None
        assert [one.pid for one in last.exit.possible_survivors] == [pid]
        held = procfs.read_bytes(f"/proc/{pid}/cgroup").decode().splitlines()[-1]
        assert held.endswith("/stray")
        await stop(daemon, "other")
        await lifelines.all_dead()
