"""What README and page have a client's file say is what `stdiod mcp` takes, and `import` reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.cli import quick_mcp
from supervisor.cli.verbs.mcp import mcp
from supervisor.policy.mcp_servers_file import servers_of
from tests.docs.markdown import Block, blocks

PAGES = ("README.md", "docs/mcp-clients.md")
ENTRIES = [
    (page, one)
    for page in PAGES
    for one in blocks(page)
    if one.text.startswith(('{"mcpS', '{"serv'))
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_file_of_claude_desktop_and_cursor_and_that_of_vs_code(page: str) -> None:
    found = [next(iter(json.loads(one.text))) for at, one in ENTRIES if at == page]
    assert found == ["mcpServers", "servers"]


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
    assert quick_mcp._read(words) == ("/s", "")
    with mcp.make_context("mcp", list(words)) as context:
        assert context.params["directories"] == (Path("/home/ada/modules"),)
