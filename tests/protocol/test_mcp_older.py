from __future__ import annotations

from typing import Any

import pytest

from protocol.mcp_server.mending import definition_for, result_for

SOUND = {"type": "audio", "mimeType": "audio/wav", "data": ""}
LINK = {"type": "resource_link", "uri": "note://1", "name": "n"}
TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("revision", "kinds"),
    [
        ("2024-11-05", ["text", "text", "text"]),
        ("2025-03-26", ["text", "audio", "text"]),
        ("2025-06-18", ["text", "audio", "resource_link"]),
        ("2025-11-25", ["text", "audio", "resource_link"]),
        ("2026-07-28", ["text", "audio", "resource_link"]),
    ],
)
def test_content_that_a_revision_does_not_have_is_named(revision: str, kinds: list[str]) -> None:
    blocks = [TEXT, SOUND, LINK]
    told = result_for(revision, {"content": blocks})["content"]
    assert [one["type"] for one in told] == kinds
    words = " ".join(one.get("text", "") for one in told)
    assert ("audio/wav" in words, "note://1" in words) == ("audio" not in kinds, LINK not in told)
    messages = [{"role": "user", "content": one} for one in blocks]
    got = result_for(revision, {"messages": messages})["messages"]
    assert [one["content"]["type"] for one in got] == kinds
    assert result_for(revision, {"messages": ["odd", 1]}) == {"messages": ["odd", 1]}


def test_structure_is_of_an_object_before_the_newest_revision() -> None:
    result: dict[str, Any] = {"content": [TEXT], "structuredContent": [1]}
    assert result_for("2026-07-28", result) is result
    assert result_for("2025-11-25", result) == {"content": [TEXT]}
    tool = {"name": "t", "outputSchema": {"type": "array"}}
    assert definition_for("2026-07-28", tool) is tool
    assert definition_for("2025-11-25", tool) == {"name": "t"}
    good = {"name": "t", "outputSchema": {"type": "object"}}
    assert definition_for("2025-11-25", good) is good
