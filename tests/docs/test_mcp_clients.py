"""What README and page have a client's file say is what `stdiod mcp` takes, and `import` reads."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.docs.markdown import blocks

PAGES = ("README.md", "docs/mcp-clients.md")
ENTRIES = [
    (page, one)
    for page in PAGES
    for one in blocks(page)
    if one.text.startswith(('{"mcpS', '{"serv'))
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_file_of_claude_code_and_cursor_and_that_of_vs_code(page: str) -> None:
    found = [next(iter(json.loads(one.text))) for at, one in ENTRIES if at == page]
    assert found == ["mcpServers", "servers"]


@pytest.mark.parametrize("page", PAGES)
def test_claude_code_stands_first_and_is_told_the_same_entry(page: str) -> None:
    first = next(one for one in blocks(page) if "stdiod mcp" in one.text)
    words = shlex.split(first.text)
    assert words[:3] == ["claude", "mcp", "add"]
    assert words[words.index("--") + 1 :] == ["stdiod", "mcp", "/home/ada/modules"]


def test_the_snippets_of_other_clients_start_stdiod_or_reach_its_mcp_with_a_token() -> None:
    tables = [
        (tomllib if one.language == "toml" else json).loads(one.text)
        for one in blocks("docs/mcp-clients.md")
        if "stdiod" in one.text and one.language in ("json", "toml")
    ]
    keys = ("mcpServers", "servers", "mcp_servers", "context_servers")
    entries = [(table[key])["stdiod"] for table in tables for key in keys if key in table]
    assert len(entries) == len(tables)
    for entry in entries:
        if "command" in entry:
            program, verb, folder = [entry["command"], *entry["args"]][-3:]
            assert (Path(program).name, verb, folder) == ("stdiod", "mcp", "/home/ada/modules")
        else:
            assert (entry.get("url") or entry["httpUrl"]) == "http://127.0.0.1:8700/mcp"
            token = entry.get("headers", {}).get("Authorization", "Bearer ")
            assert token.startswith("Bearer ")
            assert "headers" in entry or entry["bearer_token_env_var"]
