"""What a bad MCP server prints in a call fails that call at the most; the next one goes well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from protocol.descriptor.model import Lifecycle
from tests.factories import PYTHON, descriptor
from tests.kernel.conftest import ask, daemon_with, run_op
from tests.kernel.test_grants import nothing

ATTACKER = str(Path(__file__).with_name("mcp_attacker.py"))


def attacker(folder: Path, era: str) -> Any:
    made = descriptor(folder, [*PYTHON, ATTACKER, era], name="server")
    transport = replace(made.transport, protocol="mcp", lifecycle=Lifecycle.PERSISTENT)
    return replace(made, transport=transport)


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("batch", None),
        ("own_id", None),
        ("flood", None),
        ("twice", None),
        ("noise", None),
        ("long", "line_too_long"),
        ("close", "broken_pipe"),
    ],
)
async def test_a_call_has_one_outcome_and_the_next_one_goes_well(
    era: str, op: str, reason: str | None, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, attacker(tmp_path, era)) as daemon:
        document = await ask(daemon, "server", op).document()
        if reason is None:
            assert document["result"] == {"content": [{"type": "text", "text": "well"}]}
        else:
            assert document["error"]["details"]["reason"] == reason
        await run_op(daemon, "wait", {"modules": ["server"]}, nothing)
        after = await ask(daemon, "server", "well").document()
        assert after["ok"], after
        status = await run_op(daemon, "status", {"module": "server"}, nothing)
        assert status["restarts"] == (op == "close")
