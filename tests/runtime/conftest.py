"""A host, modules that run under it, and the bound on every test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.policy.lifecycle import State
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.module import Module
from tests.runtime.fakes import Alone, Stage


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    files = LogFiles(tmp_path / "logs")
    yield Host(os.environ, files, draw=lambda: 0.0)
    files.close()


class Running(Alone):
    """Makes modules and waits for their states."""

    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        self.host = host
        self._nursery = nursery
        self._change = trio.Event()
        self.states: list[State] = []
        self.warm = False
        self.module: Module

    def __call__(self, descriptor: Descriptor) -> Module:
        fleet: Any = self
        self.module = Module(descriptor, self.host, self._nursery, fleet)
        return self.module

    async def ready(self, descriptor: Descriptor) -> Module:
        module = self(descriptor)
        module.start("the test")
        await self.until(lambda: module.state is State.READY)
        return module

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._change.wait()

    async def down(self) -> None:
        self.module.stop("the test is over")
        await self.until(lambda: self.module.state is State.DOWN)

    def module_changed(self, module: Module) -> None:
        self.states.append(module.state)
        self._change.set()
        self._change = trio.Event()


@pytest.fixture
async def running(host: Host, nursery: trio.Nursery) -> Running:
    nursery.start_soon(host.deadlines.run)
    return Running(host, nursery)


@pytest.fixture
async def fleet(host: Host, nursery: trio.Nursery) -> Fleet:
    nursery.start_soon(host.deadlines.run)
    return Fleet(host, nursery)


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Lives without processes: they do what the test tells them."""
    stage = Stage()
    with stage.known():
        yield stage
