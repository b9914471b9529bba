"""Hot reload where the kernel gives no watch: the files are looked at again and again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system import descriptors
from tests.system.client import Client
from tests.system.daemon import command, start
from tests.system.liveness import BOUND_S
from tests.system.reloading import A, B, replace, text

UNSHARE = ["unshare", "--user", "--map-root-user"]
WITHOUT_WATCHES = [
    *UNSHARE,
    "sh",
    "-c",
    'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"',
    "sh",
]
"""A namespace in which no process gets an inotify queue."""


def cannot() -> str:
    """Return why there is no such namespace, or nothing."""
    if shutil.which("unshare") is None:
        return "there is no unshare(1)"
    made = subprocess.run([*WITHOUT_WATCHES, "true"], capture_output=True, text=True, check=False)
    return f"no namespace for users: {made.stderr.strip()}" if made.returncode else ""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    descriptors.write(tmp_path / "modules", A)
    return tmp_path / "modules"


@pytest.fixture
def client(tmp_path: Path, modules: Path) -> Iterator[Client]:
    """Start a daemon without watches, and speak with it."""
    if why := cannot():
        pytest.skip(why)
    words = command(modules, tmp_path / "socket", tmp_path / "data")
    with (tmp_path / "log").open("wb") as log:
        process, ready = start([*WITHOUT_WATCHES, *words], os.environ, log.fileno(), anew=True)
    try:
        assert ready, (tmp_path / "log").read_text()
        client = Client(tmp_path / "socket")
        yield client
        client.close()
    finally:
        process.terminate()
        assert process.wait(BOUND_S) == 0


def names(client: Client) -> list[str]:
    return [one["name"] for one in client.op("status").result["modules"]]


def status(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.op("status").result["daemon"]
    return found


def test_changes_are_noticed_by_looking_again(
    client: Client, modules: Path, tmp_path: Path
) -> None:
    assert status(client)["watch"] == {
        "mode": "polling",
        "directories": 0,
        "reason": "the kernel gives no watch: Too many open files (EMFILE)",
    }
    assert "files are polled instead of watched" in (tmp_path / "log").read_text()
    number = status(client)["reloads"]
    replace(modules / "b.json", text(B))
    client.op("reloaded", number=number + 1)
    assert names(client) == ["a", "b"]
    os.utime(modules / "b.json")  # the same text, written again
    (modules / "a.json").unlink()
    client.op("reloaded", number=number + 2)
    assert names(client) == ["b"]
    assert status(client)["reloads"] == number + 2
