"""Ops that last until they are cancelled: what they leave behind, and how the end answers them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from supervisor.kernel.kernel import Handle, JournalOptions, Kernel, Party
from tests.factories import actor
from tests.kernel.conftest import GONE, Asker, daemon_with, own
from tests.principals import ADA

OPEN: list[tuple[str, dict[str, Any], int]] = [
    ("events", {"follow": True, "last": 0}, 1),
    ("ui.subscribe", {}, 1),
    ("approvals", {"follow": True}, 0),
    ("offers", {"follow": True, "notifications": True}, 0),
    ("resource.follow", {"module": "m", "uri": "a"}, 1),
    ("logs", {"module": "m", "follow": True, "lines": 1}, 1),
    ("record", {"module": "m"}, 1),
    ("login.follow", {}, 1),
    ("wait", {"modules": ["m"], "for": "down"}, 0),
    ("reloaded", {"number": 7}, 0),
]
"""Each with how many events it begins with."""


async def begun(daemon: Kernel, op: str, args: dict[str, Any], events: int) -> tuple[Handle, Asker]:
    party, asker = Party(ADA), Asker()
    party.has_logins = True
    content = {"op": op, "args": args}
    handle = daemon.begin(party, "supervisor", "invoke", content, asker)
    assert handle is not None
    await asker.heard(events)
    await wait_all_tasks_blocked()
    assert not asker.responses
    return handle, asker


async def open_now(daemon: Kernel) -> dict[str, Any]:
    """Return what status says of those who follow, and of bytes that are held."""
    shown = (await own(daemon, ADA, "status"))["daemon"]
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "approvals": shown["approvals"],
        "ui": shown["ui"],
        "held": shown["held_bytes"]["total"],
        "more": shown["held_bytes"]["parties"],
    }


async def test_an_op_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path), memory=JournalOptions()) as daemon:
        await own(daemon, ADA, "session.new")
        await wait_all_tasks_blocked()
        before = await open_now(daemon)
        for op, args, events in OPEN:
            handle, asker = await begun(daemon, op, args, events)
            assert await open_now(daemon) != before, op
            await own(daemon, ADA, "restart", module="m")
            await wait_all_tasks_blocked()
            if not asker.responses:
                handle.cancel(GONE)
                handle.cancel(GONE)
                error = (await asker.document())["error"]
                assert (error["code"], error["message"]) == ("cancelled", GONE.message)
            heard = len(asker.events)
            await own(daemon, ADA, "restart", module="m")
            while await open_now(daemon) != before:
                await trio.lowlevel.checkpoint()
            assert len(asker.events) == heard


@pytest.mark.parametrize("fails", [False, True])
async def test_the_end_answers_what_is_open(fails: bool, tmp_path: Path) -> None:
    askers: list[Asker] = []
    with contextlib.suppress(ExceptionGroup):
        async with daemon_with(tmp_path, actor(tmp_path), memory=JournalOptions()) as daemon:
            askers += [(await begun(daemon, *one))[1] for one in OPEN]
            if fails:
                raise ZeroDivisionError
    for (op, _, _), asker in zip(OPEN, askers, strict=True):
        [response] = asker.responses
        document = response.document()
        if document["ok"]:
            assert op == "wait", "it came to its end"
            continue
        error = document["error"]
        assert (error["code"], error["details"]["reason"]) == ("cancelled", "shutdown")
        assert error["message"] == "the daemon is stopping"
