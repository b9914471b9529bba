"""Which zombies are reaped, and which are put off."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from supervisor.runtime.containment import hunt, procfs
from supervisor.runtime.containment.ledger import NO_BRAND
from supervisor.runtime.containment.orphans import (
    Led,
    Orphans,
    Subtree,
    is_subreaper,
    set_subreaper,
)
from supervisor.runtime.containment.procfs import Stat
from tests.runtime.containment.lifelines import PATIENCE_S

LIVING = 20


def zombie() -> int:
    popen = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
    popen.returncode = 0  # somebody else reaps it
    return popen.pid


def test_an_orphan_that_ends_during_a_spawn_is_put_off_and_not_forgotten() -> None:
    orphans = Orphans("d", whole_process=True)
    with orphans.spawning():
        pid = zombie()
        assert not orphans.collect()
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is still there
    assert orphans.collect()
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def test_inside_another_program_a_zombie_without_evidence_is_left_to_it() -> None:
    orphans = Orphans("d", whole_process=False)
    pid = zombie()
    assert orphans.collect()
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
    assert orphans.look()
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


@pytest.fixture
def adopting() -> Iterator[None]:
    """Adopt orphans."""
    was = is_subreaper()
    set_subreaper(on=True)
    yield
    set_subreaper(on=was)


def led(orphans: Orphans) -> tuple[Subtree, int]:
    """Have an instance a#1 whose leader has ended; returns it, and its brand."""
    me = procfs.stat(os.getpid())
    assert me is not None
    leader, brand = me._replace(pid=1), orphans.brands.next()
    orphans.leads(Led(leader, "a#1", brand))
    return Subtree("a#1", leader, brand, orphans), brand


# Starts a process that leaves its session and group, says its number, and waits.
PARENT = """
import subprocess, sys
child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.fault(21)
@pytest.mark.usefixtures("adopting")
def test_the_child_of_one_that_dies_while_it_is_looked_at_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orphans = Orphans("d", whole_process=True)
    instance, brand = led(orphans)
    with orphans.brands.forking(brand):
        parent = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PARENT],
            stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    orphans.look()
    found = procfs.stat

    def stat(pid: int) -> Stat | None:
        if pid == parent.pid and parent.returncode is None:
            parent.kill()
            os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
            parent.returncode = 0  # somebody else reaps it
        return found(pid)

    monkeypatch.setattr(procfs, "stat", stat)
    assert [one.pid for one in instance.left()] == [child]
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert instance.left() == []
    orphans.collect()
    assert orphans.reaped_count == 2


@pytest.mark.fault(7)
@pytest.mark.usefixtures("adopting")
def test_an_orphan_that_shows_nothing_belongs_to_the_instance_that_saw_it_below_its_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orphans = Orphans("d", whole_process=True)
    parent = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    leader = procfs.stat(parent.pid)
    assert leader is not None
    orphans.spawned(leader)
    orphans.leads(Led(leader, "a#1", NO_BRAND))
    instance = Subtree("a#1", leader, NO_BRAND, orphans)
    other = Subtree("b#1", leader._replace(pid=1), NO_BRAND, orphans)
    assert {one.pid for one in instance.find()} == {parent.pid, child}
    with monkeypatch.context() as missing:  # a search that an exit on the way cut short
        missing.setattr(procfs, "descendants", lambda _: [])
        assert {one.pid for one in instance.find()} == {parent.pid}
    parent.kill()
    parent.wait()
    assert other.left() == []
    with orphans.spawning():  # which a dead mount may hold up
        assert [one.pid for one in orphans.unknown()] == [child]
    assert hunt.exterminate(instance.left, PATIENCE_S) == []
    assert gone_after(orphans, child)


def gone_after(orphans: Orphans, pid: int) -> bool:
    """Whether an orphan that was killed is reaped with the others."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    orphans.collect()
    return not procfs.read_bytes(f"/proc/{pid}/stat")


def test_a_list_that_is_older_than_a_look_forgets_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    orphans = Orphans("d", whole_process=True)
    instance, brand = led(orphans)
    with orphans.brands.forking(brand):
        orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    orphans.look()
    with monkeypatch.context() as older:
        older.setattr(procfs, "children_of_thread", lambda *_: [])
        assert not orphans.may_be_left()
        orphans.collect()
    assert not orphans.may_be_left("b#1")
    assert [one.pid for one in instance.left()] == [orphan.pid]
    orphan.kill()
    orphan.wait()


@pytest.mark.fault(36)
def test_a_look_that_the_kernel_holds_up_keeps_no_other_module_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orphans = Orphans("d", whole_process=True)
    instance, _ = led(orphans)
    monkeypatch.setattr("supervisor.runtime.containment.orphans.TURN_S", 0.0)
    found, held, go_on = procfs.stat, threading.Event(), threading.Event()
    looker = threading.Thread(target=orphans.look)

    def stat(pid: int) -> Stat | None:
        if threading.current_thread() is looker:
            held.set()
            go_on.wait(PATIENCE_S)
        return found(pid)

    monkeypatch.setattr(procfs, "stat", stat)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as orphan:
        looker.start()
        try:
            assert held.wait(PATIENCE_S), "nothing was looked at"
            assert hunt.exterminate(instance.left, 0.0) == []
            assert not orphans.collect()
        finally:
            go_on.set()
            looker.join()
            orphan.kill()
    assert orphans.collect()


class Shortage:
    """Has files of /proc not be read, as when the system has no descriptor or memory left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int, file: str) -> None:
        self.left = 0
        """So many of the next reads fail."""
        found = procfs._contents

        def contents(path: str, *words: int) -> bytes:
            if self.left and path.endswith(f"/{file}"):
                self.left -= 1
                raise OSError(code, os.strerror(code))
            return found(path, *words)

        monkeypatch.setattr(procfs, "_contents", contents)


@pytest.mark.fault(21)
@pytest.mark.usefixtures("adopting")
@pytest.mark.parametrize("file", ["children", "stat", "limits"])
@pytest.mark.parametrize(
    "code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=errno.errorcode.get
)
def test_who_cannot_be_looked_at_for_want_of_descriptors_is_not_let_go(
    monkeypatch: pytest.MonkeyPatch, code: int, file: str
) -> None:
    orphans = Orphans("d", whole_process=True)
    instance, brand = led(orphans)
    with orphans.brands.forking(brand):
        orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with orphan:
        shortage = Shortage(monkeypatch, code, file)
        shortage.left = 2
        if file == "children":
            assert orphans.may_be_left("a#1")
            shortage.left = 2
        try:
            assert hunt.exterminate(instance.left, PATIENCE_S) == []
            assert not shortage.left
            assert os.waitid(os.P_PID, orphan.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            shortage.left = 2
            if file == "children":
                assert not orphans.collect()
            shortage.left = 0
            assert orphans.collect()
            assert orphans.reaped_count == 1
        finally:
            orphan.kill()
            orphan.returncode = 0


def test_a_hunt_of_which_it_is_not_known_whether_it_found_all_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance, _ = led(Orphans("d", whole_process=True))
    Shortage(monkeypatch, errno.EMFILE, "children").left = 1 << 30
    with pytest.raises(hunt.NotKnownError):
        hunt.exterminate(instance.left, 0.0)
