"""The MCP server of one client of the control socket; the daemon starts it (`faces.mcp_clients`).

Its arguments are the descriptor of its connection to the daemon, how many bytes of the client come
there first, since the daemon has read them already, and the client's view.
"""

from __future__ import annotations

import socket
import sys
from contextlib import closing


def main(descriptor: str, unserved_bytes: str, view: str) -> None:
    # As in `cli.quick_mcp`.
    sys.modules.setdefault("typing_extensions", None)  # type: ignore[arg-type]
    from supervisor.edge.mcp_stdio import StdioBridge  # noqa: PLC0415

    daemon = socket.socket(fileno=int(descriptor))
    unserved = bytearray()
    while (left := int(unserved_bytes) - len(unserved)) and (data := daemon.recv(left)):
        unserved += data
    with closing(StdioBridge("", view)) as bridge:
        bridge.serve_connection(daemon, bytes(unserved))


if __name__ == "__main__":
    main(*sys.argv[1:])
