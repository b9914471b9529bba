"""A daemon over a directory, and owners that lend it modules for a while."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from supervisor.kernel.kernel import Kernel, LentDescriptors, Sources, UnreadableSourceError
from supervisor.policy.findings import Reading, usable
from supervisor.policy.lifecycle import SERVES
from supervisor.policy.reload_plan import ReloadPlan
from tests.bounds import WAIT_S
from tests.factories import ACTOR, PYTHON, document

EDITOR = "editor session 1"


def text(name: str, **fields: Any) -> bytes:
    """Write the descriptor of a module that does what its ops say (runtime/actor.py)."""
    return json.dumps(document([*PYTHON, ACTOR, name], name=name, **fields)).encode()


def lent(folder: Path, *names: str, owner: str = EDITOR, **documents: bytes) -> LentDescriptors:
    return LentDescriptors(owner, folder, {**{one: text(one) for one in names}, **documents})


class Owner(LentDescriptors):
    """One whose reading can be held up, or fail."""

    def __init__(self, owner: str, folder: Path, *names: str) -> None:
        super().__init__(owner, folder, {name: text(name) for name in names})
        self.unreadable = False
        self._reading_begun = threading.Event()
        self._may_read = threading.Event()
        self._may_read.set()

    def read(self, interests: Any) -> Reading:
        self._reading_begun.set()
        assert self._may_read.wait(WAIT_S), f"nobody let {self.owner} be read"
        if self.unreadable:
            raise UnreadableSourceError(f"{self.owner} is unreadable", "it does not answer")
        return super().read(interests)

    def hold_up(self) -> None:
        """Have the next reading wait until it is let go on."""
        self._reading_begun.clear()
        self._may_read.clear()

    def go_on(self) -> None:
        self._may_read.set()

    async def being_read(self) -> None:
        assert await trio.to_thread.run_sync(self._reading_begun.wait, WAIT_S), "never read"


@asynccontextmanager
async def daemon_over(folder: Path, *names: str) -> AsyncIterator[Kernel]:
    """Run a daemon over a directory; the block begins when the modules in it serve."""
    directory = folder / "modules"
    directory.mkdir()
    for name in names:
        (directory / f"{name}.json").write_bytes(text(name))
    sources = Sources.of_directories([directory])
    async with Kernel(
        usable({}, sources.read_first()),
        data_dir=folder / "data",
        directories=[directory],
        environment=os.environ,
        sources=sources,
    ) as daemon:
        await serving(daemon, *names)
        yield daemon


async def serving(daemon: Kernel, *names: str) -> None:
    """Wait until exactly these modules are there, and serve."""

    def all_serve() -> bool | None:
        modules = daemon.fleet.modules
        there = sorted(modules) == sorted(names) and not daemon.fleet.leaving
        return (there and all(one.state in SERVES for one in modules.values())) or None

    await daemon.fleet.wait_until(all_serve)


def instances(daemon: Kernel) -> list[str]:
    """Return the ids of those of the descriptors in effect."""
    lives = [one.life for module in daemon.fleet.all() for one in module.workers]
    return sorted(one.id for life in lives if life is not None for one in life.instances())


def cause(daemon: Kernel) -> str:
    """Return what led to the last reload."""
    assert daemon.reloads.last is not None
    return daemon.reloads.last.cause


class Lender:
    """An owner with a task of its own, who stays until he is told to go."""

    def __init__(self, daemon: Kernel, source: LentDescriptors) -> None:
        self.scope = trio.CancelScope()
        self.gone = trio.Event()
        self._daemon = daemon
        self._source = source
        self._leave = trio.Event()
        self._why: ArithmeticError | None = None
        self.raised: ArithmeticError | None = None

    async def run(
        self,
        task_status: trio.TaskStatus[
            Callable[[], Awaitable[ReloadPlan]]
        ] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            with self.scope:
                async with self._daemon.reloads.lend(self._source) as changed:
                    task_status.started(changed)
                    await self._leave.wait()
                    if self._why is not None:
                        raise self._why
        except ArithmeticError as error:
            self.raised = error
        finally:
            self.gone.set()

    def leave(self, why: ArithmeticError | None = None) -> None:
        """Have him go; with an error, by raising it."""
        self._why = why
        self._leave.set()
