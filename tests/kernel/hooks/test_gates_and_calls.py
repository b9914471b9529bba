"""Where gates and calls to the host meet: who waits for whom, and what reaches who called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.descriptor.model import Descriptor
from tests.factories import PYTHON, actor, descriptor
from tests.kernel.conftest import daemon_with
from tests.kernel.hooks.parties import hook
from tests.kernel.host_calls import allowing, caller, error, payload, results

CONSULTING = str(Path(__file__).parent / "consulting.py")
ALONE = {"concurrency": 1}


def consulting(folder: Path, module: str, op: str, **fields: Any) -> Descriptor:
    """Return a gate of `b` that asks a module first; its own time-out is out of reach."""
    return descriptor(
        folder,
        [*PYTHON, CONSULTING, "g", module, op],
        name="g",
        kind="hook",
        hook={"gate": ["tool:pre"], "modules": ["b"], "timeout_s": 600, **fields},
        capabilities=["module.invoke"],
        supervision=ALONE,
    )


@pytest.mark.parametrize("room", [1, 2])
async def test_a_gate_that_calls_whoever_waits_for_it_is_told_so_at_once(
    room: int, tmp_path: Path
) -> None:
    a = caller(tmp_path, "a", supervision={"concurrency": room})
    parties = a, caller(tmp_path, "b"), consulting(tmp_path, "a", "echo")
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        [result] = await results(daemon, payload("invoke", module="b", op="echo"))
    if room == 2:
        assert result["output"]["ok"], result
        return
    problem = error(result, "denied", "forbidden")
    assert problem["details"]["hook"] == "g"
    assert "a -> b -> g -> a wait for each other" in problem["details"]["hook_reason"]


async def test_what_a_gate_injects_reaches_the_module_that_called(tmp_path: Path) -> None:
    said = {"action": "inject_context", "context_injection": "mind the step"}
    gate = hook(
        tmp_path,
        answers={"tool:post": said, "tool:error": said},
        gate=["tool:post", "tool:error"],
        modules=["b"],
    )
    parties = caller(tmp_path, "a"), actor(tmp_path, name="b"), gate
    calls = [payload("invoke", op, module="b", op=op) for op in ("echo", "exit")]
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        found = {one["call_id"]: one for one in await results(daemon, *calls)}
    [injected] = found["echo"]["output"]["injected"]
    assert injected["content"] == "mind the step"
    assert found["exit"]["error"]["details"]["injected"] == [injected]
