"""The daemon as somebody's module: two pipes in place of a socket."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pytest

from tests.faces.lines import request
from tests.system.daemon import command
from tests.system.descriptors import actor, write
from tests.system.liveness import BOUND_S


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, which a socket needs."""
    with TemporaryDirectory(prefix="stdiod-") as name:
        yield Path(name)


@pytest.fixture
def inner(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that is somebody's module, with the module `m` that does what its ops say."""
    write(folder / "modules", actor())
    words = command(folder / "modules", folder / "socket", folder / "data", "--stdio")
    with subprocess.Popen(
        [*words, "--name", "inner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
            assert process.wait(BOUND_S) == 0
        finally:
            process.kill()


def written(pipe: IO[bytes] | None, *requests: dict[str, Any]) -> None:
    assert pipe is not None
    pipe.write(b"".join(json.dumps(one).encode() + b"\n" for one in requests))
    pipe.flush()


def read(pipe: IO[bytes] | None) -> dict[str, Any]:
    assert pipe is not None
    line: dict[str, Any] = json.loads(pipe.readline())
    return line


def test_the_daemon_answers_to_the_name_it_was_given(inner: subprocess.Popen[bytes]) -> None:
    written(inner.stdin, request("h", "inner", "health"), request("d", "inner", "describe"))
    health, description = read(inner.stdout), read(inner.stdout)
    assert health["result"] == {"status": "ok"}
    assert description["result"]["name"] == "inner"
    assert inner.stdin is not None
    inner.stdin.close()


def test_what_was_asked_before_the_end_of_the_input_is_answered(
    inner: subprocess.Popen[bytes],
) -> None:
    assert inner.stdin is not None
    inner.stdin.write(json.dumps(request("a", "m", op="echo", args={"n": 1})).encode())
    inner.stdin.close()
    assert read(inner.stdout)["result"] == {"n": 1}
