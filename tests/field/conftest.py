"""Servers as users have met them (`servers.py`), hosted by a daemon, and its MCP clients."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.field.mcp_client import McpClient
from tests.system.conftest import StartDaemon, folder, start_daemon
from tests.system.daemon import Daemon
from tests.system.descriptors import descriptor

__all__ = ["folder", "start_daemon"]

SERVERS = Path(__file__).with_name("servers.py")

Connect = Callable[..., McpClient]


def server(*words: str, name: str = "", **supervision: Any) -> dict[str, Any]:
    """Return the descriptor of one of the servers, with the defaults that its user has."""
    command = [sys.executable, "-I", "-S", str(SERVERS), *words]
    return descriptor(name or words[0], command, protocol="mcp", supervision=supervision)


@pytest.fixture
def host(start_daemon: StartDaemon, tmp_path: Path) -> Callable[..., Daemon]:
    """Run a daemon of these descriptors, with one view of all their names as they are."""

    def run(*documents: dict[str, Any], prefix: bool = False) -> Daemon:
        config = tmp_path / "stdiod.toml"
        config.write_text(f"[mcp.views.default]\nprefix = {str(prefix).lower()}\n")
        return start_daemon(*documents, options=("--config", str(config)))

    return run


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect an MCP client to a daemon; it is ended after the test."""
    with ExitStack() as clients:

        def run(daemon: Daemon, *options: str, **words: Any) -> McpClient:
            return clients.enter_context(McpClient(daemon.socket, *options, **words))

        yield run
