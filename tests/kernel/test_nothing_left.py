"""What served requests leave behind in the process of the kernel: nothing."""

from __future__ import annotations

import gc
import json
from collections import Counter
from pathlib import Path

import pytest
import trio
import trio.testing

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import Kernel
from tests.bounds import WAIT_S
from tests.factories import actor, descriptor, open_files, script
from tests.kernel.conftest import GONE, ask, begun, daemon_with, own
from tests.principals import ADA

ROUNDS = 8
LASTING = {
    "health": {"interval_s": 10_000},
    "timeouts": {"linger_s": 5000, "invoke_s": 5000},
    "backoff": {"initial_s": 0.001, "max_s": 0.001},
    "intensity": 100,
}
"""Timers that are not cancelled would be there for as long as the test."""

LINE = {"version": "0", "type": "log", "level": "info", "message": "hi"}
DONE = {"version": "0", "type": "done", "ok": True}
SAYS = f"echo '{json.dumps(LINE)}'; echo '{json.dumps(DONE)}'"


def module(folder: Path, kind: str) -> Descriptor:
    match kind:
        case "persistent":
            return actor(folder, "cancel", supervision=LASTING)
        case "tool":
            return script(folder, SAYS, supervision=LASTING)
        case "warm":
            return script(folder, f"read x; {SAYS}", supervision={**LASTING, "warm": 1})
        case "exec":
            transport = {"protocol": "exec", "exec": {"ops": {"echo": {"args": ["hi"]}}}}
            return descriptor(folder, ["echo"], transport=transport, supervision=LASTING)
    raise AssertionError(kind)


async def serve(daemon: Kernel, kind: str) -> None:
    """Make requests that end in each way."""
    await ask(daemon, "m", timeout_s=5000).document()
    await ask(daemon, "nobody").document()
    if kind == "persistent":
        handle, asker = begun(daemon, "m", "hang")
        handle.cancel(GONE)
        await asker.document()
        await ask(daemon, "m", "events", args={"count": 3}).document()
        await ask(daemon, "m", "exit", args={"code": 0}).document()
        await own(daemon, ADA, "wait", modules=["m"])
        await own(daemon, ADA, "restart", module="m")
    await own(daemon, ADA, "wait", modules=["m"])
    await own(daemon, ADA, "status", module="m")
    while (await own(daemon, ADA, "status", module="m"))["in_flight"]:
        await trio.lowlevel.checkpoint()


def left_since(before: Counter[str]) -> set[str]:
    """Return the types of ours of which each round has left one, or more."""
    more = objects() - before
    return {name for name, number in more.items() if number >= ROUNDS and is_ours(name)}


def objects() -> Counter[str]:
    gc.collect()
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())


def is_ours(name: str) -> bool:
    """Whether a type is the product's; what a timer would do is let go of before the timer."""
    return name.startswith(("protocol.", "supervisor.")) and not name.endswith(".Timer")


@pytest.mark.parametrize("kind", ["persistent", "tool", "warm", "exec"])
async def test_requests_leave_nothing_behind(tmp_path: Path, kind: str) -> None:
    supervised = module(tmp_path, kind)
    async with daemon_with(tmp_path, supervised) as daemon:
        for _ in range(3):
            await serve(daemon, kind)
        await trio.testing.wait_all_tasks_blocked()
        files, before = len(open_files()), objects()
        for _ in range(ROUNDS):
            await serve(daemon, kind)
        with trio.fail_after(WAIT_S):  # what processes had is removed some time after their end
            while left_since(before) or len(open_files()) >= files + ROUNDS:
                await trio.lowlevel.checkpoint()
