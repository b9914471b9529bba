"""What the journal of a daemon says."""

from __future__ import annotations

import fnmatch
from typing import Any

from protocol.events import Log, Progress
from supervisor.kernel.kernel import Kernel
from tests.kernel.conftest import nothing, run_op


async def noted(daemon: Kernel, name: str = "*") -> list[dict[str, Any]]:
    """Return the entries of events whose names fit."""
    await run_op(daemon, "session.new", {}, nothing)  # once it is stored, so is all before it
    entries: list[dict[str, Any]] = []

    async def emit(event: Progress | None) -> None:
        assert isinstance(event, Log)
        assert isinstance(event.fields, dict)
        if "seq" in event.fields:
            entries.append(event.fields)

    await run_op(daemon, "events", {"since": 0}, emit)
    return [one for one in entries if fnmatch.fnmatch(one["event"], name)]


async def invoked(daemon: Kernel, op: str) -> dict[str, Any]:
    """Return the one entry of the invocation of an op."""
    found = [one for one in await noted(daemon, "module:invoke") if one["data"]["op"] == op]
    [entry] = found
    return entry
