"""What served requests leave behind in the process of the kernel: nothing."""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import AssetOptions, JournalOptions, Kernel
from tests.bounds import WAIT_S, until
from tests.factories import actor, descriptor, open_files, opened_since, script
from tests.kernel.conftest import GONE, ask, begun, daemon_with, own
from tests.kernel.service_peer import LAST_CHUNK, Peer, peer, says, streamed
from tests.principals import ADA

ROUNDS = 8
LASTING = {
    "health": {"interval_s": 10_000},
    "timeouts": dict.fromkeys(("start_s", "describe_s", "health_s", "linger_s", "invoke_s"), 5000),
    "backoff": {"initial_s": 0.001, "max_s": 0.001},
    "intensity": 100,
}
"""Timers that are not cancelled would be there for as long as the test."""

LOOKED_AT = {**LASTING, "limits": {"processes": 100}}

LINE = {"version": "0", "type": "log", "level": "info", "message": "hi"}
DONE = {"version": "0", "type": "done", "ok": True}
SAYS = f"echo '{json.dumps(LINE)}'; echo '{json.dumps(DONE)}'"


def module(folder: Path, kind: str, services: Peer) -> Descriptor:
    match kind:
        case "service":
            services.scripts["m/invoke"] = says(streamed(LINE, DONE) + LAST_CHUNK)
            return services.service(folder, "m", supervision=LASTING)
        case "persistent":
            return actor(folder, "cancel", supervision=LOOKED_AT)
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
    if kind == "service":
        handle, asker = begun(daemon, "m", "hang")
        handle.cancel(GONE)
        await asker.document()
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


@pytest.mark.parametrize("kind", ["persistent", "tool", "warm", "exec", "service"])
async def test_requests_leave_nothing_behind(tmp_path: Path, kind: str) -> None:
    async with (
        peer() as services,
        daemon_with(tmp_path, module(tmp_path, kind, services)) as daemon,
    ):
        for _ in range(3):
            await serve(daemon, kind)
        await trio.testing.wait_all_tasks_blocked()
        files, before = len(open_files()), objects()
        for _ in range(ROUNDS):
            await serve(daemon, kind)
        with trio.fail_after(WAIT_S):  # what processes had is removed some time after their end
            while left_since(before) or len(open_files()) >= files + ROUNDS:
                await trio.lowlevel.checkpoint()


def surroundings() -> tuple[set[threading.Thread], set[int]]:
    """Return the threads of this process but for trio's own, and the processes below it."""
    threads = {one for one in threading.enumerate() if not one.name.startswith("Trio")}
    return threads, {one.pid for one in psutil.Process().children(recursive=True)}


async def test_a_kernel_that_has_ended_leaves_no_thread_process_or_open_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("hello")
    schema = {"echo": {"type": "object", "required": ["n"]}, "say": {"type": "object"}}
    known = {"assetId": "a", "kind": "k", "mediaType": "text/plain", "path": "file"}
    lines = [json.dumps({"version": "0", "type": "asset", **known}), json.dumps(DONE)]
    files, around = open_files(), surroundings()
    options: dict[str, Any] = {"memory": JournalOptions(), "asset_options": AssetOptions(copy=True)}
    made = actor(tmp_path, inputs=schema, supervision=LOOKED_AT)
    async with daemon_with(tmp_path, made, **options) as daemon:
        assert not (await ask(daemon, "m", "echo").document())["ok"]
        assert (await ask(daemon, "m", "say", args={"lines": lines}).document())["ok"]
        await own(daemon, ADA, "session.new")
        threads, processes = surroundings()
        assert {"journal", "module-logs"} <= {one.name for one in threads - around[0]}
        assert len(processes - around[1]) >= 2
    assert opened_since(files) == {}

    def is_all_gone() -> bool:
        threads, processes = surroundings()
        return threads <= around[0] and processes <= around[1]

    until(is_all_gone, "the end of what it had begun")
    log = (tmp_path / "data" / "logs" / "m.log").read_text()
    assert "stopping -> down" in log.splitlines()[-1]
    names = {one.name for one in (tmp_path / "data").iterdir()}
    assert names == {
        "assets",
        "instances",
        "instances.lock",
        "journal.db",
        "journal.db-last",
        "logs",
    }
