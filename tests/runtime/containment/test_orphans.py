"""Which zombies are reaped, and which are put off."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from supervisor.runtime.containment.orphans import Orphans


def collected(orphans: Orphans) -> bool:
    """Collect; returns whether nothing was put off."""
    orphans.collect()
    return not orphans.put_off


def zombie() -> int:
    popen = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
    popen.returncode = 0  # somebody else reaps it
    return popen.pid


def test_an_orphan_that_ends_during_a_spawn_is_put_off_and_not_forgotten() -> None:
    orphans = Orphans("d", whole_process=True)
    with orphans.spawning():
        pid = zombie()
        assert not collected(orphans)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is still there
    assert collected(orphans)
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def test_inside_another_program_a_zombie_without_evidence_is_left_to_it() -> None:
    orphans = Orphans("d", whole_process=False)
    pid = zombie()
    assert collected(orphans)
    os.waitid(os.P_PID, pid, os.WEXITED)
