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
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

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


class Relay:
    """Lets clients of one port in at another: with a token, a request for each connection."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        # Whoever asks once more on the connection would have no token.
        self._added = f"\r\nAuthorization: Bearer {token}\r\nConnection: close".encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(65536)
            if not data:
                return
            head += data
        first, _, rest = head.partition(b"\r\n")
        lines = [one for one in rest.split(b"\r\n") if not one.lower().startswith(b"connection:")]
        # The suite names the port of the relay; the daemon looks at host and origin, not at that.
        data = first + self._added + b"\r\n" + b"\r\n".join(lines)
        data = data.replace(b":%d" % self.port, b":%d" % self._port)
        with socket.create_connection(("127.0.0.1", self._port)) as daemon:
            daemon.sendall(data)
            threading.Thread(target=_carry, args=(client, daemon), daemon=True).start()
            _carry(daemon, client)


def _carry(source: socket.socket, to: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
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
        stdiod = Stdiod(folder)
        stdiod.run("up", "--config", str(config), "--http", "127.0.0.1:0")
        try:
            new = ("token", "new", "suite", "--scope", "read", "--scope", "invoke")
            token = stdiod.run(*new).split()[0]
            address = stdiod.status()["daemon"]["http"]
            relay = Relay(int(address.rpartition(":")[2]), token)
            node = MCP_CONFORMANCE.bin
            path = f"{node}{os.pathsep}{os.environ['PATH']}"
            url = ["--url", f"http://127.0.0.1:{relay.port}/mcp"]
            suite = [str(node / "conformance"), "server", *url, "-o", str(folder / "results")]
            suite += ["--requirements", asked.requirements]
            if asked.scenario is not None:
                suite += ["--scenario", asked.scenario, "--verbose"]
            done = subprocess.run(
                suite, env={**os.environ, "PATH": path}, check=False, timeout=WITHIN_S
            )
        finally:
            stdiod.end()
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
