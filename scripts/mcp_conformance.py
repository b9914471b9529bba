"""Run the official MCP conformance suite against `/mcp`: `make conformance`.

The suite (npm) and the Node that it wants are installed into `.mcp-conformance`, in exact versions.
A daemon of its own serves the fixtures, which are a module like any other. The suite can say no
token, so it is let in by a relay that adds one to each request.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from scripts.checkout import ROOT, Stdiod
from scripts.foreign import MCP_CONFORMANCE

FIXTURES = ROOT / "tests" / "conformance" / "mcp"

REVISIONS = ("2026-07-28", "2025-11-25")

WITHIN_S = 900.0

POLICY = 'allow = ["user.ask", "model.sample", "roots.list"]\n'
CONFIG = """\
directories = [{folder}]
policy = "policy.toml"

[mcp.views.default]
modules = ["conformance"]
prefix = false
"""


class Relay(socketserver.StreamRequestHandler):
    """Lets the clients of one port in at another: with a token, a request for each connection."""

    daemon_port: ClassVar[int]
    token: ClassVar[str]

    def handle(self) -> None:
        head = list(iter(self.rfile.readline, b"\r\n"))
        # A second request on the connection would have no token.
        kept = [line for line in head if not line.lower().startswith(b"connection:")]
        added = f"Authorization: Bearer {self.token}\r\nConnection: close\r\n\r\n".encode()
        # The suite names the port of the relay; the daemon looks at host and origin, not at that.
        own = b":%d" % self.connection.getsockname()[1]
        data = b"".join([*kept, added]).replace(own, b":%d" % self.daemon_port)
        with socket.create_connection(("127.0.0.1", self.daemon_port)) as daemon:
            daemon.sendall(data)
            threading.Thread(target=_carry, args=(self.rfile.read1, daemon), daemon=True).start()
            _carry(daemon.recv, self.connection)


def _carry(read: Callable[[int], bytes], to: socket.socket) -> None:
    try:
        while data := read(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except (OSError, ValueError):  # one of both has ended
        to.close()


def main() -> None:
    """Run the scenarios that a revision requires; exits with 0 only if all pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requirements", choices=REVISIONS, default=REVISIONS[0])
    parser.add_argument("--scenario", help="only this one")
    asked = parser.parse_args()
    if (why := MCP_CONFORMANCE.install()) is not None:
        sys.exit(f"the suite cannot be installed: {why}")
    with tempfile.TemporaryDirectory(prefix="stdiod-") as named:
        folder = Path(named)
        (folder / "policy.toml").write_text(POLICY, encoding="utf-8")
        config = folder / "stdiod.toml"
        config.write_text(CONFIG.format(folder=json.dumps(str(FIXTURES.parent))), encoding="utf-8")
        with Stdiod(folder) as stdiod:
            stdiod.run("up", "--config", str(config), "--http", "127.0.0.1:0")
            new = ("token", "new", "suite", "--scope", "read", "--scope", "invoke")
            token = stdiod.run(*new).split()[0]
            address = stdiod.status()["daemon"]["http"]
            Relay.daemon_port, Relay.token = int(address.rpartition(":")[2]), token
            relay = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay)
            relay.daemon_threads = True
            threading.Thread(target=relay.serve_forever, daemon=True).start()
            node = MCP_CONFORMANCE.bin
            path = f"{node}{os.pathsep}{os.environ['PATH']}"
            url = ["--url", f"http://127.0.0.1:{relay.server_address[1]}/mcp"]
            suite = [str(node / "conformance"), "server", *url, "-o", str(folder / "results")]
            suite += ["--requirements", asked.requirements]
            if asked.scenario is not None:
                suite += ["--scenario", asked.scenario, "--verbose"]
            done = subprocess.run(
                suite, env={**os.environ, "PATH": path}, check=False, timeout=WITHIN_S
            )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
