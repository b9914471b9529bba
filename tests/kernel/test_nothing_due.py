"""What is over leaves nothing that is due: a daemon whose modules do nothing is not woken."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.runtime.containment import data_dir
from tests.factories import actor, script
from tests.kernel.conftest import GONE, ask, begun, own
from tests.kernel.service_peer import peer
from tests.kernel.test_mcp_servers import served
from tests.kernel.virtual import Clock, Story, story
from tests.principals import ADA

PROBE_AT_S = 5000
SUPERVISION = {"health": {"interval_s": 2 * PROBE_AT_S}, "concurrency": 2}
A_WHILE_S = 1.2
"""Longer than the bound of each call, and than what follows a start or an end."""

DONE = """echo '{"version":"0","type":"done","ok":true}'"""
TOOL = f"read -r x; case $x in *hang*) exec sleep 1000;; esac; {DONE}"
LIMITED = {"limits": {"processes": 50}}


@asynccontextmanager
async def module(folder: Path, kind: str) -> AsyncIterator[tuple[Descriptor, dict[str, Any]]]:
    """Give a module, and a request that it serves."""
    call: dict[str, Any] = {"op": "echo"}
    match kind:
        case "persistent":
            yield actor(folder, "cancel", supervision=SUPERVISION), call
        case "limited":
            yield actor(folder, supervision={**SUPERVISION, **LIMITED}), call
        case "several":
            instances = {"min": 2, "max": 3, "max_requests": 50}
            yield actor(folder, supervision={**SUPERVISION, "instances": instances}), call
        case "server":
            yield served(folder, "legacy", supervision=SUPERVISION), {"op": "album"}
        case "service":
            async with peer() as services:
                yield services.service(folder, "m", supervision=SUPERVISION), call
        case "tool":
            yield script(folder, TOOL), call
        case "limited tool":
            yield script(folder, TOOL, supervision=LIMITED), call
        case "waiting tool":
            yield script(folder, TOOL, supervision={"warm": 2}), call


async def until_next_is(world: Story, at: float) -> None:
    """Let pass what is due soon, until nothing is due before this time of the clock."""
    while True:
        await trio.testing.wait_all_threads_completed()
        await trio.testing.wait_all_tasks_blocked()
        next_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if math.isclose(trio.current_time() + next_s, at, abs_tol=0.01):
            return
        if next_s < A_WHILE_S:
            await world.passes(next_s)


@pytest.mark.parametrize(
    "kind",
    [
        *("persistent", "limited", "several", "server", "service"),
        *("tool", "limited tool", "waiting tool"),
    ],
)
async def test_what_is_over_leaves_nothing_that_is_due(
    tmp_path: Path, mock_clock: Clock, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing else than the look at the data directory, which has a budget in tests/budget.
    monkeypatch.setattr(data_dir, "LOOK_S", math.inf)
    async with module(tmp_path, kind) as (made, call), story(mock_clock, tmp_path, made) as world:
        name, kernel = made.name, world.kernel
        probe_at = math.inf if "tool" in kind else trio.current_time() + PROBE_AT_S

        async def rests(at: float) -> None:
            # A process that has answered this has answered all that was asked before, also
            # whether it still answers after a call was given up. Each process is asked: the least
            # loaded one serves.
            await trio.testing.wait_all_tasks_blocked()
            processes = 2 if kind == "several" else 1
            asked = [ask(kernel, name, timeout_s=1, **call) for _ in range(processes)]
            assert [(await one.document())["ok"] for one in asked] == [True] * processes
            await world.shows(name, in_flight=0)
            await trio.testing.wait_all_tasks_blocked()
            await world.passes(A_WHILE_S)
            if kind != "limited":  # it is looked at as long as it runs
                await until_next_is(world, at)

        if kind == "several":
            await world.serve("m#1", "m#2")
        await world.is_in("ready", name)
        await rests(probe_at)
        if kind != "server":
            handle, given_up = begun(kernel, name, "hang", timeout_s=1)
            await world.shows(name, in_flight=1)
            handle.cancel(GONE)
            await given_up.response()
            await world.shows(name, in_flight=0)
            await rests(probe_at)
            late = ask(kernel, name, "hang", timeout_s=1)
            await world.shows(name, in_flight=1)
            await world.passes(1)
            await late.response()
            await world.shows(name, in_flight=0)
            await rests(probe_at)
        await own(kernel, ADA, "stop", module=name)
        # Its process ends in the time of the machine. Before that, its next probe would be due.
        await world.has(module=name)
        await trio.testing.wait_all_tasks_blocked()
        # Once, it is woken for the probe that was to come. Where the machine was so slow that a
        # second process took the place of one in doubt, that is at a later moment.
        await world.passes(2 * PROBE_AT_S)
        await until_next_is(world, math.inf)
