"""Which notifications of a server are of its extensions: none that a revision of MCP defines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.connection import Notified, Stray
from tests.protocol.mcp_process import ALL, Served, legacy, modern
from tests.protocol.mcp_revisions import FOLDER

OFFERS = {**ALL, "extensions": {"com.example/x": {}}}


def defined() -> list[str]:
    """Return the methods of all notifications that the schemas know."""
    found: set[str] = set()
    for path in FOLDER.glob("*.json"):
        document = json.loads(path.read_text())
        for one in document.get("$defs", document.get("definitions")).values():
            method = one.get("properties", {}).get("method", {}).get("const", "")
            found |= {method} if method.startswith("notifications/") else set()
    return sorted(found)


def notified(served: Served, method: str, params: dict[str, Any]) -> list[Notified]:
    served.hear({"method": method, "params": params})
    return [one for one in served.events if isinstance(one, Notified)]


@pytest.mark.parametrize("method", defined())
@pytest.mark.parametrize("era", [legacy, modern])
def test_what_a_revision_defines_is_of_no_extension(era: Any, method: str) -> None:
    assert notified(era(offers=OFFERS), method, {}) == []


@pytest.mark.parametrize("method", ["notifications/x/y", "codex/event", "notifications/"])
@pytest.mark.parametrize("era", [legacy, modern])
def test_what_no_revision_defines_is_of_an_extension(era: Any, method: str) -> None:
    (told,) = notified(era(offers=OFFERS), method, {"a": 1})
    assert (told.method, told.params) == (method, {"a": 1})


def test_one_that_is_nested_too_deeply_is_dropped() -> None:
    served = legacy(offers=OFFERS)
    params: dict[str, Any] = {}
    for _ in range(200):
        params = {"a": params}
    assert notified(served, "notifications/x", params) == []
    assert isinstance(served.events[-1], Stray)


@pytest.mark.parametrize(("more_bytes", "passed_on"), [(0, 1), (1, 0)])
def test_one_of_a_mebibyte_is_passed_on_and_a_longer_one_is_not(
    more_bytes: int, passed_on: int
) -> None:
    served = legacy(offers=OFFERS, line_bytes=1 << 22)
    line = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"%b"}}\n'
    served.hear(line % (b"x" * ((1 << 20) + more_bytes - len(line % b"") + 1)))
    assert len([one for one in served.events if isinstance(one, Notified)]) == passed_on


def test_a_server_of_the_newer_era_is_listened_to_for_its_extensions() -> None:
    served = modern(offers={"tools": {}, "extensions": {"com.example/x": {}}})
    assert "subscriptions/listen" in [one.get("method") for one in served.written]
