"""Which zombies are reaped, and which are put off."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.orphans import Led, Orphans
from supervisor.runtime.containment.procfs import Stat

LIVING = 20


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


@pytest.mark.fault(26)
def test_one_that_lives_is_looked_at_once_for_all_modules_and_reaped_when_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orphans = Orphans("d", whole_process=True)
    me = procfs.stat(os.getpid())
    assert me is not None
    brand = orphans.brands.next()
    orphans.leads(Led(me._replace(pid=1), "a#1", brand))
    with orphans.brands.forking(brand):
        living = [
            subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(LIVING)
        ]
    looked: list[int] = []

    def stat(pid: int) -> Stat | None:
        looked.append(pid)
        return found(pid)

    found = procfs.stat
    monkeypatch.setattr(procfs, "stat", stat)
    assert orphans.may_be_left("b#1")
    assert orphans.look() == ()
    assert sorted(looked) == sorted(one.pid for one in living)
    for _ in range(10):  # so many modules end
        orphans.look()
        assert not orphans.may_be_left("b#1")
    assert orphans.may_be_left("a#1")
    assert len(looked) == LIVING
    for one in living:
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        one.returncode = 0  # somebody else reaps it
    orphans.collect()
    assert orphans.reaped_count == LIVING
    assert not orphans.may_be_left()
