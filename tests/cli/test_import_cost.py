"""What nobody asked for is not imported: modules are counted, not milliseconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.cli.client import DaemonClient
from tests.cli.conftest import Serve
from tests.cli.fake_daemon import log, module, ok, status

HEAVY = {"trio", "jsonschema", "rich", "structlog", "psutil", "platformdirs", "asyncio", "sqlite3"}

PROGRAM = """
import sys
from supervisor.cli.command_line import stdiod
try:
    stdiod(sys.argv[1:], prog_name="stdiod")
finally:
    sys.stderr.write("\\n" + " ".join(sys.modules))
"""


def imported(*arguments: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--version",), ("--help",)])
def test_the_version_and_the_list_of_verbs_import_no_verb_and_nothing_heavy(
    arguments: tuple[str, ...],
) -> None:
    modules = imported(*arguments)
    assert not modules & HEAVY
    assert not [name for name in modules if name.startswith("supervisor.cli.verbs.")]
    assert "msgspec" not in modules


@pytest.mark.parametrize(
    "verb",
    [
        ("status",),
        ("invoke", "dice", "roll"),
        ("session", "show", "s-1", "--json"),
        ("policy", "forget", "m", "--json"),
        ("record", "dice"),
        ("events",),
        ("asset", "open", "x"),
        ("ui",),
        ("top", "--once", "--interval", "0.01"),
    ],
    ids=lambda verb: verb[0],
)
def test_a_verb_that_asks_a_daemon_imports_nothing_heavy(
    serve: Serve, socket_path: Path, verb: tuple[str, ...]
) -> None:
    made = module()
    made["latency_ms"]["histogram_us"] = []
    serve(lambda frame: [log("at work"), ok({**status(made), "path": "/x"})])
    assert not imported(*verb, "--socket", str(socket_path)) & HEAVY


def test_an_invocation_without_a_daemon_has_no_journal_and_imports_no_database() -> None:
    descriptor = Path(__file__).parents[2] / "modules" / "dice" / "module.json"
    arguments = ("invoke", "dice", "roll", "--args", '{"dice":"d6"}', "--descriptor")
    modules = imported(*arguments, str(descriptor))
    assert "trio" in modules
    assert "sqlite3" not in modules


def test_a_daemon_that_is_asked_for_what_it_knows_imports_no_validator(
    socket_path: Path, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-c", PROGRAM, "run", "--socket", str(socket_path)]
    options = ["--data-dir", str(tmp_path / "data"), "--ready-fd", str(writing), str(tmp_path)]
    daemon = subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, text=True, pass_fds=(writing,)
    )
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as ready:
            assert ready.read() == b"ready\n"
        with DaemonClient(socket_path) as client:
            assert client.own("wait", {"for": "verdict"}, timeout_s=60).ok
            assert client.known("status", {"histogram": True}).ok
            assert client.known("shutdown").ok
        _, said = daemon.communicate(timeout=60)
    finally:
        daemon.kill()
        daemon.wait()
    modules = set(said.splitlines()[-1].split())
    assert "trio" in modules
    assert "jsonschema" not in modules
