"""A trace goes from who asks to the module, wherever that can hear of it (docs/metrics.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.replies import Operation
from protocol.trace_context import EXAMPLE, is_traceparent
from tests.faces.http.in_process import served
from tests.factories import script
from tests.kernel.conftest import ask, begin, daemon_with
from tests.kernel.service_peer import peer

TELLS = """printf '{"version":"0","type":"done","ok":true,"result":"%s"}' "$TRACEPARENT" """
CALM = {"timeouts": {"stop_s": 0.1, "exit_s": 0.1}}


def continues(heard: str) -> bool:
    """Tell whether it is of the trace of `EXAMPLE`, and its parent another span."""
    return is_traceparent(heard) and heard[:36] == EXAMPLE[:36] and heard != EXAMPLE


async def test_a_process_per_invocation_has_it_in_its_environment_and_else_nothing(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, script(tmp_path, TELLS, supervision=CALM)) as daemon:
        assert (await ask(daemon, "m", "a").document())["result"] == ""
        assert daemon.requests.long_ways == 0
        heard = [await ask(daemon, "m", "a", traceparent=EXAMPLE).document() for _ in range(2)]
        one, other = (document["result"] for document in heard)
        assert continues(one)
        assert continues(other)
        assert one != other  # each invocation is a span of its own


async def test_a_service_has_it_in_a_header(tmp_path: Path) -> None:
    async with peer() as services, daemon_with(tmp_path, services.service(tmp_path, "s")) as daemon:
        await ask(daemon, "s", "a").response()
        await ask(daemon, "s", "a", traceparent=EXAMPLE).response()
        plain, traced = services.invoked("s")
        assert "traceparent" not in plain.headers
        assert continues(traced.headers["traceparent"])


@pytest.mark.parametrize(
    ("said", "is_one"),
    [(EXAMPLE, True), (EXAMPLE.upper(), False), (f"{EXAMPLE}-x", False), ("00-0-0-00", False)],
)
async def test_over_http_it_is_a_header_and_what_is_none_is_ignored(
    said: str, is_one: bool, tmp_path: Path
) -> None:
    module = script(tmp_path, TELLS, supervision=CALM)
    async with (
        daemon_with(tmp_path, module) as daemon,
        served(daemon, tmp_path) as face,
        face.unix() as client,
    ):
        for path in ("/api/v1/modules/m/invoke", "/modules/m/invoke"):
            reply = await client.ask("POST", path, {"op": "a"}, headers=[("traceparent", said)])
            assert continues(reply.json["result"]) is is_one
            assert is_one or json.loads(reply.body)["result"] == ""


async def test_a_daemon_that_is_asked_through_another_one_passes_it_on(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, script(tmp_path, TELLS, supervision=CALM)) as daemon:
        content = {"op": "invoke", "args": {"module": "m", "op": "a"}, "traceparent": EXAMPLE}
        asker = begin(daemon, "supervisor", Operation.INVOKE, content)
        assert continues((await asker.document())["result"])
