"""What routes show of results that are encoded already."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.errors import Success
from protocol.response import Response
from supervisor.faces.http import results
from supervisor.faces.http.exchange import tell_result

MODULES = [{"name": "a", "kind": "tool"}, {"name": "b", "kind": "agent"}]
STATUS: dict[str, Any] = {"daemon": {"pid": 1}, "modules": MODULES, "quarantined": []}


@pytest.mark.fault(29)
@pytest.mark.parametrize("said", [STATUS, msgspec.Raw(msgspec.json.encode(STATUS))])
def test_modules_are_shown_without_being_built(said: Any) -> None:
    shown = results.modules(said)
    assert all(isinstance(one, msgspec.Raw) for one in shown["modules"])
    told = tell_result(Response(Success(said)), view=results.modules)
    assert msgspec.json.decode(told.body) == {"modules": MODULES, "quarantined": []}
    agents = results.of_kind("agent", said)["agents"]
    assert all(isinstance(one, msgspec.Raw) for one in agents)
    assert msgspec.json.decode(msgspec.json.encode(agents)) == MODULES[1:]
