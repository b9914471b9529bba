"""Of `test_scopes.py`, what is bound to the structure."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from supervisor.policy.principals import (
    ALL_SCOPES,
    Principal,
)
from tests.factories import actor, descriptor
from tests.kernel.conftest import begin, daemon_with
from tests.kernel.remembering import Remembering


@pytest.mark.parametrize("depth", [1, 2])
async def test_what_a_module_waits_for_is_not_told_to_who_may_not_see_it(
    tmp_path: Path, depth: int
) -> None:
    names = ["shown", *(f"secret{number}" for number in range(depth))]
    made = [
        actor(tmp_path, name=name, supervision={"start": "lazy", "depends_on": [on]})
        for name, on in itertools.pairwise(names)
    ]
    broken = descriptor(tmp_path, ["./secret"], name=names[-1], supervision={"start": "lazy"})
    recorder = Remembering()
    async with daemon_with(tmp_path, *made, broken, recorder=recorder) as daemon:
        some = Principal("eve", "test", ALL_SCOPES, ("shown",))
        for tool, operation, content in (
            ("shown", "invoke", {"op": "echo"}),
            ("shown", "health", {}),
            ("shown", "describe", {}),
            ("supervisor", "start", {"module": "shown"}),
            ("supervisor", "restart", {"module": "shown"}),
            ("supervisor", "wait", {"modules": ["shown"]}),
            ("supervisor", "status", {}),
        ):
            asker = begin(daemon, tool, operation, content, some)
            said = json.dumps(await asker.document())
            assert ("secret" in said, '"reason": "not_ready"' in said) == (
                False,
                operation != "status",
            )
        asker = begin(daemon, "shown", "invoke", {"op": "echo"})
        assert "secret" in json.dumps(await asker.document())
        told = [one for one in recorder.of("module:invoke") if one["by"]["name"] == "eve"]
        assert len(told) == 1
        assert "secret" not in json.dumps(told)
