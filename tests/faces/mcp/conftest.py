"""A daemon that serves MCP over HTTP for the tests of a file that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.faces.mcp.clients import fixtures_document
from tests.faces.running import SOCK, Running, started

VIEWS: dict[str, dict[str, Any]] = {
    "own": {"modules": ["fixtures"], "prefix": False},
    "bobs": {"for": ["bob"]},
}


@pytest.fixture(scope="module")
def fixtures() -> Iterator[Running]:
    """A daemon with the module that has all that MCP has."""
    with started(fixtures_document(), views=VIEWS, http=SOCK) as daemon:
        yield daemon
