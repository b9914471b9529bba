"""mcp_server.py: the echo tool as the MCP SDK's own server has it, over stdio.

It runs in the SDK's own environment.
"""

from __future__ import annotations

import logging

from mcp.server import MCPServer

server = MCPServer("echo", log_level="ERROR")


@server.tool()
def echo(n: int) -> str:
    """Return what came."""
    return str(n)


logging.disable(logging.CRITICAL)
server.run("stdio")
