"""What dialects can have the daemon do: calls of no request, bytes to assets, new descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.kernel.kernel import Kernel
from tests.dialects.registry import speaking
from tests.kernel.conftest import ask, daemon_with

pytestmark = pytest.mark.usefixtures("made_up_dialects")


async def reason(daemon: Kernel, op: str) -> str | None:
    document = await ask(daemon, "dice", op).document()
    return None if document["ok"] else document["error"]["details"]["reason"]


async def test_what_is_in_flight_is_not_touched_by_a_new_description(tmp_path: Path) -> None:
    schema = {"inputs": {"echo": {"type": "object", "required": ["never"]}}}
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made) as daemon:
        document = await ask(
            daemon, "dice", "change", args={"times": 1, "facts": schema}
        ).document()
        assert document["ok"]
        assert await reason(daemon, "echo") == "invalid_args"
