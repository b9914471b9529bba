"""Both lines of the TypeScript SDK and both of the Python SDK, as clients of one daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from scripts.foreign import NODE_CLIENTS, PYTHON, PYTHON_OLDER
from tests.field.conftest import server
from tests.mcp.servers import BOUND_S, skip_unless_installed
from tests.system.daemon import Daemon, shared
from tests.system.descriptors import AT_ONCE, descriptor

HERE = Path(__file__).parent
NODE = NODE_CLIENTS.bin / "node"

CLIENTS = {
    "typescript 1.32": (NODE_CLIENTS, "older", "legacy"),
    "typescript 2.4": (NODE_CLIENTS, "newer", "legacy"),
    "typescript 2.4 auto": (NODE_CLIENTS, "newer", "auto"),
    "python 1.30": (PYTHON_OLDER, "older", "legacy"),
    "python 2.3": (PYTHON, "newer", "legacy"),
    "python 2.3 auto": (PYTHON, "newer", "auto"),
}
"""Those of the newer lines in both eras: `auto` finds that `stdiod mcp` speaks the newer one."""

Outcome = Any
"""Of a step: what came of it, or `raised`, with what the SDK raised in words."""


class SdkClient:
    """A program that uses an SDK; it makes a connection for each script."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self.daemon = daemon
        self.name = name
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        where, line, mode = CLIENTS[self.name]
        if where == NODE_CLIENTS:
            # From the folder of the packages, else `import` would not find them.
            source = (HERE / "client.mjs").read_text(encoding="utf-8")
            program = [str(NODE), "--input-type=module", "--eval", source]
        else:
            program = [str(where.bin / "python"), "-I", str(HERE / "client.py")]
        return subprocess.Popen(
            [*program, line, mode], cwd=where.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            self.process.communicate(timeout=BOUND_S)
        finally:
            self.process.kill()

    def __call__(self, view: str, *steps: list[Any]) -> list[Outcome]:
        """Connect to a view, take these steps, and disconnect; returns what came of each."""
        stdiod = str(Path(sys.executable).with_name("stdiod"))
        command = [stdiod, "mcp", "--socket", str(self.daemon.socket), "--view", view]
        if self.process.poll() is not None:  # of the test before this, and it has told so
            self.process.communicate()
            self.process = self._start()
        bound = threading.Timer(BOUND_S, self.process.kill)
        bound.start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([command, steps]).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        bound.cancel()
        if not line:
            self.process.wait()
        assert line, f"the client ended, or took longer than {BOUND_S:g} s"
        outcomes = json.loads(line)
        assert isinstance(outcomes, list), outcomes
        return outcomes


def other(word: str, **supervision: Any) -> dict[str, Any]:
    """Return the descriptor of a server of more_servers.py."""
    command = [sys.executable, "-I", "-S", str(HERE / "more_servers.py"), word]
    return descriptor(word, command, protocol="mcp", supervision=supervision)


BOUNDED = {"start_s": 15, "invoke_s": 8}
"""Ends a wait that nothing else ends, where a test is about that."""

A_MOMENT = {"intensity": 1000, "backoff": {**AT_ONCE, "initial_s": 0.5, "max_s": 0.5}}
"""Restarts that take as long after the crash that the last client wanted as after the first."""

RENEWED_S = 3
"""`invoke_s` of the server that tells its progress: less than its call takes."""

MODULES = {
    "schemas": (server("schemas"),),
    "results": (server("results"),),
    **{
        f"intids-{kind}": (server("intids", kind, name=f"intids-{kind}", timeouts=BOUNDED),)
        for kind in ("zero", "parse", "exit")
    },
    "lines": (server("lines", timeouts=BOUNDED),),
    "resources": (server("resources", "one", name="one"), server("resources", "two", name="two")),
    "changing": (server("changing"),),
    "idle_exit": (server("idle_exit"),),
    "parallel": (other("parallel", timeouts=BOUNDED),),
    "working": (other("working", timeouts={"invoke_s": RENEWED_S}),),
    "announcing": (other("announcing"),),
    "many": (other("many"),),
    "silent": (other("silent"),),
    "extended": (other("extended"),),
    "dying": (other("dying"),),
    "crashing": (other("crashing", **A_MOMENT),),
}
"""What each view has: one server, or two that share a name."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon of all of them, with a view for each."""
    config = tmp_path_factory.mktemp("field") / "stdiod.toml"
    views = (
        f"[mcp.views.{view}]\nmodules = {[one['name'] for one in documents]}\nprefix = false\n"
        for view, documents in MODULES.items()
    )
    config.write_text("".join(views), encoding="utf-8")
    documents = [one for each in MODULES.values() for one in each]
    with shared(*documents, options=("--config", str(config))) as running:
        yield running


@pytest.fixture(scope="module", params=CLIENTS)
def sdk(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[SdkClient]:
    where, _, _ = CLIENTS[request.param]
    skip_unless_installed(where)
    with SdkClient(daemon, request.param) as client:
        yield client
