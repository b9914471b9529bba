"""A trace goes from who asks to the module, wherever that can hear of it (docs/metrics.md)."""

from __future__ import annotations

from pathlib import Path

from protocol.replies import Operation
from protocol.trace_context import EXAMPLE, is_traceparent
from tests.factories import script
from tests.kernel.conftest import ask, begin, daemon_with
from tests.kernel.service_peer import peer

TELLS = """printf '{"version":"0","type":"done","ok":true,"result":"%s"}' "$TRACEPARENT" """
CALM = {"timeouts": {"stop_s": 0.1, "exit_s": 0.1}}


def continues(heard: str) -> bool:
    """Tell whether it is of the trace of `EXAMPLE`, and its parent another span."""
    return is_traceparent(heard) and heard[:36] == EXAMPLE[:36] and heard != EXAMPLE


async def test_a_service_has_it_in_a_header(tmp_path: Path) -> None:
    async with peer() as services, daemon_with(tmp_path, services.service(tmp_path, "s")) as daemon:
        await ask(daemon, "s", "a").response()
        await ask(daemon, "s", "a", traceparent=EXAMPLE).response()
        plain, traced = services.invoked("s")
        assert "traceparent" not in plain.headers
        assert continues(traced.headers["traceparent"])


async def test_a_daemon_that_is_asked_through_another_one_passes_it_on(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, script(tmp_path, TELLS, supervision=CALM)) as daemon:
        content = {"op": "invoke", "args": {"module": "m", "op": "a"}, "traceparent": EXAMPLE}
        asker = begin(daemon, "supervisor", Operation.INVOKE, content)
        assert continues((await asker.document())["result"])
