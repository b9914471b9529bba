"""What a bad MCP server prints in a call fails that call at the most; the next one goes well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from protocol.descriptor.model import Lifecycle
from protocol.errors import Reason
from supervisor.kernel.kernel import Party
from supervisor.policy.verdict import Stopped
from tests.factories import GENEROUS_S, PYTHON, descriptor, pass_time
from tests.kernel.conftest import Asker, ask, daemon_with, nothing, run_op
from tests.principals import ADA

AT_ONCE = 50
GONE = Stopped(Reason.CLIENT, "the client cancelled the request")
ATTACKER = str(Path(__file__).with_name("mcp_attacker.py"))


def attacker(folder: Path, era: str, name: str = "server", **supervision: Any) -> Any:
    made = descriptor(folder, [*PYTHON, ATTACKER, era], name=name, supervision=supervision)
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
    tmp_path: Path,
) -> None:
    bounds = {"start_s": GENEROUS_S, "describe_s": GENEROUS_S, "stop_s": 0.1, "exit_s": 0.1}
    bounds["invoke_s"] = 3 * GENEROUS_S
    flooding = attacker(tmp_path, "flood", "flooding", start="lazy", timeouts=bounds)
    async with daemon_with(tmp_path, flooding, attacker(tmp_path, "modern")) as daemon:
        flooded = ask(daemon, "flooding", "well")
        assert (await ask(daemon, "server", "well").document())["ok"]
        module = daemon.fleet.modules["flooding"]
        while not module.counters.quarantined_lines:
            await trio.lowlevel.checkpoint()
        pass_time(module.host.deadlines, 2 * GENEROUS_S)
        error = (await flooded.document())["error"]
        assert (error["code"], error["details"]["reason"]) == ("timeout", "start_deadline")
        said = "the last line it printed is not an answer: Welcome to this server"
        assert said in error["message"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_of_a_thousand_calls_that_are_cancelled_no_answer_is_taken_for_anothers(
    era: str, tmp_path: Path
) -> None:
    made = attacker(tmp_path, era, concurrency=AT_ONCE + 1)
    async with daemon_with(tmp_path, made) as daemon:
        for _ in range(1000 // AT_ONCE):
            askers = [Asker() for _ in range(AT_ONCE)]
            begun = [
                daemon.requests.invoke(ADA, "server", {"op": "late"}, asker)
                for asker in askers
            ]
            for invocation, asker in zip(begun, askers, strict=True):
                await asker.heard(1)  # so it has been written
                assert invocation is not None
                invocation.cancel(GONE)
                assert (await asker.document())["error"]["code"] == "cancelled"
            # Of one that nobody cancels the answer is its own, whichever come with it.
            kept = Asker()
            invocation = daemon.begin(Party(ADA), "server", "invoke", {"op": "late"}, kept)
            assert invocation is not None
            await kept.heard(1)
            assert (await ask(daemon, "server", "well").document())["ok"]
            assert (await kept.document())["result"] == {"id": invocation.request.request_id}
        module = daemon.fleet.modules["server"]
        assert (module.counters.late_lines, module.restarts) == (1000, 0)
