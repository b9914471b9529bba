"""What was written to MCP servers of others is valid under the schema of the revision agreed on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from protocol.dialects.mcp.vocabulary import DISCOVER, INITIALIZE, LEGACY, MODERN
from protocol.transcript import EntrySource
from tests.conformance.recorded import FILES, SERVERS, read
from tests.protocol.mcp_revisions import check


def agreed_on(lines: Sequence[tuple[EntrySource, dict[str, Any]]]) -> str:
    """Return the revision that was agreed on, in either handshake."""
    for source, line in lines:
        result = line.get("result", {})
        if source is EntrySource.MODULE and "supportedVersions" in result:
            return str(max(result["supportedVersions"]))
        if source is EntrySource.MODULE and "protocolVersion" in result:
            return str(result["protocolVersion"])
    raise AssertionError("there is no handshake")


GREETINGS = {DISCOVER: MODERN, INITIALIZE: LEGACY[0]}
"""They come before anything is agreed on."""

RECORDED = [one for one in FILES if one.stem in SERVERS]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_each_line_to_a_server_of_others_is_valid(path: Path) -> None:
    lines = [
        (one.source, json.loads(one.line))
        for one in read(path).entries
        if one.line is not None and one.source in (EntrySource.HOST, EntrySource.MODULE)
    ]
    revision = agreed_on(lines)
    asked: dict[str, str] = {}
    for source, line in lines:
        if source is EntrySource.MODULE and "method" in line:
            asked[repr(line.get("id"))] = line["method"]
        if source is EntrySource.HOST:
            wanted = GREETINGS.get(str(line.get("method")), revision)
            check(line, wanted, asked.get(repr(line.get("id"))))
