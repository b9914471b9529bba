"""Of `test_traces.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

from protocol.trace_context import EXAMPLE
from tests.factories import script
from tests.kernel.conftest import ask, daemon_with
from tests.kernel.test_traces import CALM, TELLS, continues


async def test_a_process_per_invocation_has_it_in_its_environment_and_else_nothing(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, script(tmp_path, TELLS, supervision=CALM)) as daemon:
        assert (await ask(daemon, "m", "a").document())["result"] == ""
        assert daemon.requests.guarded_calls == 0
        heard = [await ask(daemon, "m", "a", traceparent=EXAMPLE).document() for _ in range(2)]
        one, other = (document["result"] for document in heard)
        assert continues(one)
        assert continues(other)
        assert one != other  # each invocation is a span of its own
