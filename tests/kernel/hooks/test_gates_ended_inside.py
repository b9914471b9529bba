"""Of `test_gates_ended.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

import trio

from protocol.errors import Reason
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import daemon_with
from tests.kernel.hooks.parties import begin, hook
from tests.kernel.hooks.test_gates_ended import settled

STRIDE = 7
"""Between two moments of a sweep: each costs a request, and what happens lasts some of them."""


async def test_whenever_it_is_given_up_it_ends_once_and_leaves_nothing(tmp_path: Path) -> None:
    gate = hook(tmp_path, gate=["tool:pre", "tool:post"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        steps, ended_by_itself = 0, False
        while not ended_by_itself:
            invocation, asker = begin(daemon, "m", "echo")
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            ended_by_itself = bool(asker.responses)
            invocation.cancel(Stopped(Reason.CLIENT, "it was given up"))
            response = await asker.response()
            assert response.ok is ended_by_itself
            assert not list(invocation.children)
            await settled(daemon)
            await daemon.requests.wait_none_guarded()
            assert not daemon.requests.lineage.all()
            steps += STRIDE
        assert steps > STRIDE
