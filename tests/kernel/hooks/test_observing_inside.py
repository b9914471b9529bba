"""Of `test_observing.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import Reason
from supervisor.kernel.hooks import registry as observer
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.kernel import JournalOptions, Kernel
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.kernel.hooks.parties import entries, hook, seen
from tests.kernel.hooks.test_observing import observed, until
from tests.principals import ADA

GONE = Stopped(Reason.CLIENT, "the client cancelled the request")


def begin(
    daemon: Kernel, tool: str, op: str, parent: Invocation | None = None, **bounds: float
) -> Any:
    asker = Asker()
    args = {"event": "mine", "data": {}} if op == "on_event" else {}
    content = {"op": op, "args": args, **bounds}
    return daemon.requests.invoke(ADA, tool, content, asker, parent=parent), asker


async def test_what_is_done_on_a_hooks_behalf_is_told_to_others_only(tmp_path: Path) -> None:
    hooks = [hook(tmp_path, one, {"mine": "hang"}, observe=["module:*"]) for one in ("h", "i")]
    module = actor(tmp_path, supervision={"concurrency": 2})
    async with daemon_with(tmp_path, module, *hooks) as daemon:
        own, _ = begin(daemon, "h", "on_event")
        child, of_child = begin(daemon, "m", "echo", own)
        _, of_grandchild = begin(daemon, "m", "echo", child)
        _, refused = begin(daemon, "nobody", "echo", own)
        ids = {(await one.response()).request_id for one in (of_child, of_grandchild, refused)}
        last = (await ask(daemon, "m").response()).request_id
        for name, expected in (("h", set[str]()), ("i", ids)):
            told: set[str] = set()
            while last not in told:
                told = {one["data"].get("request_id") for one in await seen(daemon, name)}
            assert ids & told == expected
        own.cancel(GONE)
        while daemon.requests.lineage.all():  # until the last event is delivered too
            await trio.lowlevel.checkpoint()


async def test_two_hooks_do_not_feed_each_other(tmp_path: Path) -> None:
    # Of an event that h's own call has caused, i is told; what i does about it, h is not.
    hooks = [hook(tmp_path, one, {"*": "hang"}, observe=["module:invoke"]) for one in ("h", "i")]
    async with daemon_with(tmp_path, actor(tmp_path), *hooks) as daemon:
        own, _ = begin(daemon, "h", "on_event")
        begin(daemon, "m", "echo", own)
        while not (await observed(daemon, "i"))["in_flight"]:
            await trio.lowlevel.checkpoint()
        behind = {frozenset(one) for one in daemon.requests.lineage.all()}
        assert frozenset({"h", "i"}) in behind


async def test_drops_are_recorded_again_when_their_time_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "REPORT_S", 0.0)
    hooks = hook(tmp_path, answers={"*": "hang"}, observe=["module:invoke"], queue=1)
    async with daemon_with(tmp_path, actor(tmp_path), hooks, memory=JournalOptions()) as daemon:
        daemon.fleet.modules["h"].stop("the test")
        for _ in range(4):
            await ask(daemon, "m").response()
    assert sum(one["data"]["count"] for one in entries(tmp_path, "hook:dropped")) == 4


async def test_an_event_that_cannot_be_written_to_a_hook_is_passed_over(tmp_path: Path) -> None:
    hooks = hook(tmp_path, observe=["daemon:start"])
    async with daemon_with(tmp_path, hooks) as daemon:
        recorder = daemon.recorder
        deep: Any = []
        for _ in range(200):
            deep = [deep]
        recorder.record("daemon:start", data={"deep": deep})
        recorder.record("daemon:start", data={"deep": []})
        await until(daemon, lambda events: events["failed"] == 1 and events["delivered"] == 1)
