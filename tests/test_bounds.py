"""A test that would wait for ever ends, and says where it waited."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HANGING = """
import socket
import threading

import pytest
import trio
from hypothesis import given, strategies

pytestmark = pytest.mark.bound(1)


def wait_for_nobody():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.recv(1)


def test_of_a_socket():
    wait_for_nobody()


@given(strategies.integers())
def test_of_a_property(_):
    wait_for_nobody()


async def test_of_tasks(nursery):
    nursery.start_soon(trio.sleep_forever, name="the one who sleeps")
    await trio.sleep_forever()


async def test_of_signs_of_life():
    while True:
        await trio.lowlevel.checkpoint()


@pytest.mark.bound(100)
def test_that_ends():
    pass


def test_that_leaves_a_thread():
    threading.Thread(target=wait_for_nobody).start()


async def test_that_shields_itself():
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()
"""

WAITED_FOR = """
import os
from pathlib import Path

from tests import bounds

bounds.LAST_S = 0.2


def pytest_unconfigure():
    Path(__file__).with_name("over").write_text(str(os.getpid()))
"""

TWO = """
import os
import select
from pathlib import Path

import pytest

from tests import bounds


@pytest.mark.parametrize("last", [False, True])
def test_of_one_worker(last):
    if last:
        over = Path(__file__).with_name("over")
        pid = bounds.until(lambda: over.exists() and over.read_text(), "the end of the other")
        ended = os.pidfd_open(int(pid))
        assert select.select([ended], [], [], 3 * bounds.LAST_S) == ([], [], [])
        os.close(ended)
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    folder.joinpath("test_hanging.py").write_text(HANGING)
    alone = ["-c", "/dev/null", f"--rootdir={folder}", "-o", "trio_mode=true", "-p", "no:randomly"]
    words = [sys.executable, "-m", "pytest", *alone, "-p", "tests.bounds", *options, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_each_that_passes_its_bound_fails_by_name_and_tells_where_it_waited(tmp_path: Path) -> None:
    ended = run(tmp_path, "-k", "not itself and not leaves_a_thread")
    assert ended.returncode == 1
    for name in ("of_a_socket", "of_a_property", "of_tasks", "of_signs_of_life"):
        assert f"::test_{name} passed its bound of 1 s" in ended.stdout
    assert "ours.recv(1)" in ended.stdout
    assert "the one who sleeps" in ended.stdout
    assert "4 failed, 1 passed" in ended.stdout


def test_one_that_cannot_be_interrupted_ends_its_process(tmp_path: Path) -> None:
    tmp_path.joinpath("conftest.py").write_text("from tests import bounds; bounds.GRACE_S = 0.2")
    ended = run(tmp_path, "-k", "shields")
    assert ended.returncode == 1
    assert "::test_that_shields_itself passed its bound of 1 s" in ended.stderr
    assert "in get_events" in ended.stderr


def test_a_thread_that_is_left_ends_with_its_process_and_is_shown(tmp_path: Path) -> None:
    tmp_path.joinpath("conftest.py").write_text("from tests import bounds; bounds.LAST_S = 0.2")
    ended = run(tmp_path, "-k", "leaves_a_thread")
    assert ended.returncode == 1
    assert "in wait_for_nobody" in ended.stderr


def test_a_worker_may_wait_for_the_last_test_of_another(tmp_path: Path) -> None:
    """As long as that takes: it was shown as one that hangs, and ended, after `LAST_S`."""
    tmp_path.joinpath("conftest.py").write_text(WAITED_FOR)
    tmp_path.joinpath("test_two.py").write_text(TWO)
    ended = run(tmp_path, "-n", "2", "-k", "of_one_worker")
    assert "2 passed" in ended.stdout
