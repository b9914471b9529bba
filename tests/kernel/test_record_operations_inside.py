"""Of `test_record_operations.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from supervisor.transcripts import recording
from tests.factories import actor
from tests.kernel.conftest import ask, daemon_with
from tests.kernel.test_record_operations import Client, record


async def test_a_client_that_does_not_read_slows_down_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "WAITING_BYTES", 8192)
    client = Client()
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(record, daemon, client, [])
        await client.until("attached")
        client.reading = trio.Event()
        for _ in range(20):
            assert (await ask(daemon, "m", "echo", args={"text": "x" * 2000}).response()).ok
        client.reading.set()
        await client.until("missing")
        nursery.cancel_scope.cancel()
    assert any("are missing" in flaw for flaw in client.transcript().flaws)
