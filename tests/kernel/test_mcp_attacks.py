"""What a bad MCP server prints in a call fails that call at the most; the next one goes well."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from protocol.descriptor.model import Lifecycle
from supervisor.kernel.kernel import Kernel
from tests.factories import GENEROUS_S, PYTHON, descriptor
from tests.kernel.conftest import ask, daemon_with, nothing, run_op

ATTACKER = str(Path(__file__).with_name("mcp_attacker.py"))


def attacker(folder: Path, era: str, name: str = "server", **supervision: Any) -> Any:
    made = descriptor(folder, [*PYTHON, ATTACKER, era], name=name, supervision=supervision)
    transport = replace(made.transport, protocol="mcp", lifecycle=Lifecycle.PERSISTENT)
    return replace(made, transport=transport)


PIPE_BYTES = 1 << 16
"""Of a process that printed more, some has been read."""


async def printed_bytes(daemon: Kernel, module: str) -> int:
    status = await run_op(daemon, "status", {"module": module}, nothing)
    return sum(written_bytes(one["pid"]) for one in status["instances"] if one["pid"])


def written_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        counts = Path(f"/proc/{pid}/io").read_text().splitlines()
        return sum(int(row.removeprefix("wchar: ")) for row in counts if row.startswith("wchar"))
    return 0


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("batch", None),
        ("own_id", None),
        ("flood", None),
        ("twice", None),
        ("noise", "invalid_event"),
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


async def test_a_flood_in_the_place_of_a_greeting_ends_that_start_and_is_quoted(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    bounds = {"start_s": GENEROUS_S, "describe_s": GENEROUS_S, "stop_s": 0.1, "exit_s": 0.1}
    bounds["invoke_s"] = 3 * GENEROUS_S
    flooding = attacker(tmp_path, "flood", "flooding", start="lazy", timeouts=bounds)
    async with daemon_with(tmp_path, flooding, attacker(tmp_path, "modern")) as daemon:
        flooded = ask(daemon, "flooding", "well")
        assert (await ask(daemon, "server", "well").document())["ok"]
        while await printed_bytes(daemon, "flooding") <= 2 * PIPE_BYTES:
            await trio.lowlevel.checkpoint()
        mock_clock.jump(2 * GENEROUS_S)
        mock_clock.rate = 1.0  # for the steps of a stop
        error = (await flooded.document())["error"]
        assert (error["code"], error["details"]["reason"]) == ("timeout", "start_deadline")
        said = "the last line it printed is not an answer: Welcome to this server"
        assert said in error["message"]
