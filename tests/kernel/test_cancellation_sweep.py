"""A daemon's start, work and stop, cancelled at each point at which any of its tasks goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.policy.lifecycle import State
from tests.factories import actor, children, open_files, opened_since, script
from tests.kernel.conftest import ask, daemon_with

BRIEF = {"timeouts": {"stop_s": 0.05, "exit_s": 0.05}}
ENOUGH = 500
"""More steps than there are; a sweep that does not end by itself is a failure."""

FEW = 20
"""A sweep of fewer steps has not been through a start and a stop."""


class CancelAt(trio.abc.Instrument):
    """Cancels a scope when so many steps have been taken."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self.left = steps
        self.scope = scope

    def before_task_step(self, task: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


async def life_of_a_daemon(folder: Path, made: Descriptor, op: str) -> None:
    async with daemon_with(folder, made) as daemon:
        module = daemon.fleet.modules[made.name]
        await daemon.fleet.wait_until(lambda: module.state is State.READY or None)
        await ask(daemon, made.name, op).response()


@pytest.mark.bound(300)
@pytest.mark.fault(25)
@pytest.mark.parametrize("form", ["polite", "stubborn", "tool"])
async def test_wherever_it_is_cancelled_no_process_and_no_descriptor_is_left(
    tmp_path: Path, form: str
) -> None:
    match form:
        case "polite":
            made = actor(tmp_path, supervision=BRIEF)
        case "stubborn":
            made = actor(tmp_path, "ignore-term", supervision=BRIEF)
        case _:
            (tmp_path / "file").write_text("x")
            line = {"version": "0", "type": "asset", "assetId": "a", "kind": "k"}
            said = json.dumps({**line, "mediaType": "text/plain", "path": "file"})
            body = f"""echo '{said}'; echo '{{"version":"0","type":"done","ok":true}}'"""
            made = script(tmp_path, body, supervision=BRIEF)
    await life_of_a_daemon(tmp_path, made, "echo")  # threads and caches are there from now on
    before = open_files()
    for steps in range(1, ENOUGH):
        with trio.CancelScope() as scope:
            instrument = CancelAt(steps, scope)
            trio.lowlevel.add_instrument(instrument)
            try:
                await life_of_a_daemon(tmp_path, made, "echo")
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert children() == [], steps
        assert not opened_since(before), steps
        if not scope.cancel_called:
            assert steps > FEW
            break
    else:
        pytest.fail(f"not over after {ENOUGH} steps")
