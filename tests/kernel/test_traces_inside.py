"""Of `test_traces.py`, what is bound to the structure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.trace_context import EXAMPLE
from tests.faces.http.in_process import served
from tests.factories import script
from tests.kernel.conftest import ask, daemon_with
from tests.kernel.test_traces import CALM, TELLS, continues


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
