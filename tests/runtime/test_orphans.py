"""Adopted children are reaped by their numbers, and nobody else's exit status is taken.

Each test is a process of its own that really adopts orphans: a child subreaper.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

BOUND_S = 60.0

PREAMBLE = """
import ctypes, os, subprocess, sys
import trio
from supervisor.runtime.orphans import Children, adopts_orphans

assert not adopts_orphans()
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
assert adopts_orphans()
children = Children()

def orphan(status):
    '''Return the pid of a grandchild that ends with a status once its stdin is closed.'''
    reading, writing = os.pipe()
    held, hold = os.pipe()
    if os.fork() == 0:
        pid = os.fork()
        if pid == 0:
            os.close(hold)
            os.read(held, 1)
            os._exit(status)
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.wait()
    pid = int(os.read(reading, 20))
    return pid, lambda: os.close(hold)

def is_there(pid):
    try:
        os.kill(pid, 0)  # a zombie counts
    except ProcessLookupError:
        return False
    return True

def wait_ended(pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
"""

REAPS = """
async def main():
    ended = [orphan(status) for status in range(20)]
    with children.being_born() as born:
        ours = subprocess.Popen(["/bin/sh", "-c", "exit 7"])
        born(ours.pid)
    async with trio.open_nursery() as nursery:
        await nursery.start(children.reap_orphans)
        wait_ended(ours.pid)
        for pid, end in ended:
            end()
        # Those that the kernel shows behind our own zombie are seen once that one is reaped.
        assert ours.wait() == 7
        children.reaped(ours.pid)
        with trio.fail_after(60):
            while children.reaped_orphans < 20:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert not any(is_there(pid) for pid, _ in ended)

trio.run(main)
"""

SUSPECTS = """
async def main():
    pid, end = orphan(3)
    with children.being_born() as born:
        end()
        wait_ended(pid)
        children.sweep()
        assert is_there(pid), "it could have been the one being born"
        with children.being_born():
            children.sweep()
            assert is_there(pid)
            born(0)
    children.sweep()
    assert not is_there(pid)
    assert children.reaped_orphans == 1

trio.run(main)
"""

LATER_BIRTHS = """
async def main():
    pid, end = orphan(3)
    end()
    wait_ended(pid)
    first = children.being_born()
    first.__enter__()
    children.sweep()
    with children.being_born():
        first.__exit__(None, None, None)
        children.sweep()
        assert not is_there(pid), "a spawn that began later cannot have made it"

trio.run(main)
"""

OURS = """
async def main():
    with children.being_born() as born:
        ours = subprocess.Popen(["/bin/sh", "-c", "exit 7"])
        wait_ended(ours.pid)
        children.sweep()
        born(ours.pid)
    children.sweep()
    assert ours.wait() == 7, "its status was taken"
    children.reaped(ours.pid)
    children.sweep()  # no children at all

trio.run(main)
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(REAPS, id="every-adopted-child-is-reaped-and-our-own-status-stays-ours"),
        pytest.param(SUSPECTS, id="a-zombie-of-unknown-birth-waits-for-the-births-under-way"),
        pytest.param(LATER_BIRTHS, id="births-that-begin-later-do-not-put-it-off"),
        pytest.param(OURS, id="a-process-of-ours-is-left-alone"),
    ],
)
def test_orphans(program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PREAMBLE + program],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
