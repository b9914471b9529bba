"""Cancelled at any checkpoint of start or stop: no process, no descriptor, no open call is left."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from protocol.replies import Operation
from supervisor.policy.lifecycle import Input
from supervisor.runtime.process.incarnation import StopStep
from supervisor.runtime.process.spawning import spawn
from supervisor.runtime.supervision.call import Call
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.supervision.life import Life, LifeEnd, Setting
from supervisor.runtime.supervision.per_invocation import PerInvocationLife
from supervisor.runtime.supervision.persistent import PersistentLife
from tests import factories
from tests.factories import Heard
from tests.runtime.fakes import plain_setting
from tests.runtime.process.test_incarnation import incarnation_of
from tests.runtime.sweep import sweep

SERVER = r"""
while read -r line; do
  id=${line#*\"requestId\":\"}; id=\"requestId\":\"${id%%\"*}\"
  case $line in
    *'"operation":"health"'*) echo "{$id,\"status\":\"ok\"}" ;;
    *'"operation":"describe"'*) echo "{$id,\"name\":\"m\",\"version\":\"1\",\"kind\":\"tool\",\
\"capabilities\":[],\"inputs\":{},\"outputs\":{}}" ;;
    *'"op":"hang"'*) ;;
    *) echo "{$id,\"ok\":true,\"result\":1}" ;;
  esac
done
"""
"""A persistent module that starts within a millisecond or two: a sweep starts hundreds."""

TOOL = """read -r line; echo '{"version":"0","type":"done","ok":true}'"""

SHORT = {"timeouts": {"exit_s": 60, "stop_s": 60}}


class Listening:
    """An owner that only notes that a life has started."""

    def __init__(self) -> None:
        self.ready = trio.Event()

    def happened(self, life: Life, news: Input, why: str, failure: LifeEnd | None = None) -> None:
        assert news in (Input.STARTED, Input.HEALTHY, Input.UNHEALTHY), why
        if news is Input.STARTED:
            self.ready.set()

    def run_failed(self, life: Life, ended: LifeEnd) -> None:
        pass

    def capacity_freed(self, life: Life) -> None:
        pass


class Calls:
    """All calls a sweep made."""

    def __init__(self) -> None:
        self.made: list[tuple[Call, Heard]] = []

    def new(self, op: str = "go") -> tuple[Call, Heard]:
        self.made.append(factories.call(op))
        return self.made[-1]

    def assert_settled(self) -> None:
        for call, heard in self.made:
            assert len(heard.outcomes) == 1, call.request
        self.made.clear()


@pytest.fixture
def server(tmp_path: Path) -> Descriptor:
    return factories.descriptor(tmp_path, ["sh", "-c", SERVER], supervision=SHORT)


def setting(descriptor: Descriptor, host: Host) -> Setting:
    return plain_setting(descriptor, host, (f"m#{number}" for number in itertools.count(1)))


async def test_a_spawn_can_be_cancelled_anywhere(server: Descriptor, host: Host) -> None:
    async def subject() -> None:
        process = await spawn(server, host.environment, "m#1", host.registry)
        await process.kill()
        with trio.CancelScope(shield=True):
            await process.wait_exited()
        process.reap()

    assert await sweep(subject) > 1


@pytest.mark.parametrize("rung", list(StopStep))
async def test_an_incarnation_can_be_cancelled_anywhere(
    server: Descriptor, host: Host, rung: StopStep
) -> None:
    async def subject() -> None:
        with trio.CancelScope(shield=True):
            process = await spawn(server, host.environment, "m#1", host.registry)
        owner: Any = Listening()
        life = PersistentLife(setting(server, host), owner)
        incarnation = incarnation_of(host, process, server, life, exit_s=60, stop_s=60)
        incarnation.stop(rung)
        await incarnation.run()

    assert await sweep(subject) > 1


@pytest.mark.parametrize("op", ["go", "hang"])
@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_persistent_life_can_be_cancelled_anywhere(
    server: Descriptor, host: Host, op: str, abrupt: bool
) -> None:
    calls = Calls()

    async def subject() -> None:
        owner: Any = Listening()
        life = PersistentLife(setting(server, host), owner)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run)
            await owner.ready.wait()
            if not life.can_take():
                return  # cancelled meanwhile
            call, heard = calls.new(op)
            life.take(call)
            if op == "go":
                await heard.outcome()
            else:
                life.hurry()
            life.end(abrupt=abrupt)

    assert await sweep(subject, calls.assert_settled) > 10


async def test_a_probe_that_others_wait_for_ends_with_a_cancelled_life(
    server: Descriptor, host: Host
) -> None:
    """Found by the sweep: only invocations were answered, so a probe waited for its timeout."""
    owner: Any = Listening()
    life = PersistentLife(setting(server, host), owner)
    scope = trio.CancelScope()

    async def live() -> None:
        with scope:
            await life.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        await owner.ready.wait()
        (instance,) = life.instances()
        assert instance.pid is not None
        os.kill(instance.pid, signal.SIGSTOP)
        nursery.start_soon(life.ask, Operation.HEALTH, 1e6)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()


@pytest.mark.parametrize("warm", [0, 1])
@pytest.mark.parametrize("end", ["end", "hurry", "stay"])
async def test_a_per_invocation_life_can_be_cancelled_anywhere(
    tmp_path: Path, host: Host, end: str, warm: int
) -> None:
    calls = Calls()
    tool = factories.script(tmp_path, TOOL, supervision={**SHORT, "warm": warm})

    async def subject() -> None:
        owner: Any = Listening()
        life = PerInvocationLife(setting(tool, host), owner)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.deadlines.run)
            nursery.start_soon(life.run)
            await owner.ready.wait()
            if not life.can_take():
                return  # cancelled meanwhile
            call, heard = calls.new()
            life.take(call)
            if end == "stay":
                await heard.outcome()
            elif end == "end":
                life.end(abrupt=True)
            else:
                life.hurry()
            await heard.outcome()
            life.end(abrupt=False)
            while life.instances():
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    assert await sweep(subject, calls.assert_settled) > 10
