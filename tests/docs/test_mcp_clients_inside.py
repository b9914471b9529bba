"""Of `test_mcp_clients.py`, what is bound to the structure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.cli import quick_mcp
from supervisor.cli.mcp_servers_file import servers_of
from supervisor.cli.verbs.mcp import mcp
from tests.docs.markdown import Block
from tests.docs.test_mcp_clients import ENTRIES


@pytest.mark.parametrize(("page", "block"), ENTRIES)
def test_an_entry_is_one_that_stdiod_understands_at_a_glance(
    page: str, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STDIOD_SOCKET", "/s")
    [found] = servers_of(json.loads(block.text))
    [(name, entry)] = found.by_name.items()
    assert name == entry["command"] == "stdiod"
    verb, *words = entry["args"]
    assert verb == "mcp"
    assert quick_mcp._read(words) == ("/s", "", ["/home/ada/modules"])
    with mcp.make_context("mcp", list(words)) as context:
        assert context.params["directories"] == (Path("/home/ada/modules"),)
