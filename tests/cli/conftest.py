from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from supervisor.cli.command_line import stdiod
from supervisor.daemon import serve as serve_module
from supervisor.daemon.serve import ServeOptions
from tests.cli.fake_daemon import FakeDaemon, Script, serving

Run = Callable[..., Result]
Serve = Callable[[Script], FakeDaemon]


@pytest.fixture
def socket_path() -> Iterator[Path]:
    # Not in tmp_path: a socket's path has 107 bytes at the most, and pytest's may be longer.
    with tempfile.TemporaryDirectory(prefix="stdiod-", dir="/tmp") as folder:
        yield Path(folder, "s")


@pytest.fixture
def run(socket_path: Path, tmp_path: Path) -> Run:
    """Run `stdiod` with the socket of the test, in this process."""
    environment = {"STDIOD_SOCKET": str(socket_path), "STDIOD_DATA_DIR": str(tmp_path / "data")}

    def run(*arguments: str, **options: Any) -> Result:
        return CliRunner(env=environment).invoke(stdiod, arguments, prog_name="stdiod", **options)

    return run


@pytest.fixture
def serve(socket_path: Path) -> Iterator[Serve]:
    """Have a fake daemon listen on the socket of the test."""
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(serving(socket_path, script))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServeOptions]:
    """Take the options of a daemon instead of being one."""
    taken: list[ServeOptions] = []

    def serve(options: ServeOptions) -> int:
        taken.append(options)
        return 0

    monkeypatch.setattr(serve_module, "serve", serve)
    return taken
