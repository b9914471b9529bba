"""The rung that is taken, and the words about those that are not."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
import trio

from supervisor.kernel.kernel import Kernel
from supervisor.policy.findings import Found
from supervisor.runtime.containment import cgroup2, ladder, procfs
from supervisor.runtime.containment.data_dir import DataInUseError, lock_data_dir
from supervisor.runtime.containment.ladder import ContainmentError
from supervisor.runtime.containment.orphans import Orphans, is_subreaper


def orphans() -> Orphans:
    return Orphans("daemon", whole_process=False)


def test_the_rung_that_is_asked_for_is_taken(rung: str) -> None:
    before = is_subreaper()
    chosen = ladder.choose(rung, "daemon-uuid", orphans())
    assert chosen.rung.name == rung
    assert is_subreaper() is (before or rung != "process_group")
    assert (chosen.why_not_higher is None) is (rung == "cgroup2")
    chosen.rung.close()
    assert is_subreaper() is before


def test_an_unknown_containment_is_refused_by_name() -> None:
    with pytest.raises(ContainmentError, match=r"no containment 'docker'; there are cgroup2, sub"):
        ladder.choose("docker", "daemon", orphans())


def test_without_cgroups_the_next_rung_is_taken_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> str:
        raise OSError("cgroup v2 is not mounted here")

    monkeypatch.setattr(cgroup2, "own_folder", refuse)
    chosen = ladder.choose(None, "daemon", orphans())
    assert chosen.rung.name == "subreaper"
    assert chosen.why_not_higher == "cgroup2: cgroup v2 is not mounted here"
    chosen.rung.close()
    with pytest.raises(ContainmentError, match="'cgroup2' was asked for and cannot be had here"):
        ladder.choose("cgroup2", "daemon", orphans())


def test_a_probe_says_what_a_daemon_would_get_and_leaves_nothing(rung: str) -> None:
    before = is_subreaper()
    name, why_not_higher = ladder.probe(rung)
    assert name == rung
    assert (why_not_higher is None) is (rung == "cgroup2")
    assert is_subreaper() is before
    if rung == "cgroup2":
        me = procfs.stat(os.getpid())
        assert me is not None
        parent = Path(cgroup2.own_folder())
        assert not list(parent.glob(f"{cgroup2.PREFIX}{me.pid}.{me.start}.*"))


def test_a_folder_that_is_no_cgroup_is_refused_and_left_clean(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cgroup2, "own_folder", lambda: str(tmp_path))
    with pytest.raises(ContainmentError, match=r"no cgroup\.kill"):
        ladder.choose("cgroup2", "daemon", orphans())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("mountinfo", "cgroup", "folder"),
    [
        (
            b"30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            b"0::/user.slice/a.service\n",
            "/sys/fs/cgroup/user.slice/a.service",
        ),
        (
            (
                b"33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
                b"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
            ),
            b"4:memory:/box\n0::/\n",
            "/sys/fs/cgroup/unified",
        ),
        (
            b"41 31 0:38 /box/1 /sys/fs/my\\040cgroup rw shared:1 - cgroup2 none rw\n",
            b"0::/box/1/inner\n",
            "/sys/fs/my cgroup/inner",
        ),
    ],
)
def test_the_own_cgroup_is_found_through_mountinfo(
    monkeypatch: pytest.MonkeyPatch, mountinfo: bytes, cgroup: bytes, folder: str
) -> None:
    files = {"/proc/self/mountinfo": mountinfo, "/proc/self/cgroup": cgroup}
    monkeypatch.setattr(procfs, "read_bytes", lambda path: files[path])
    assert cgroup2.own_folder() == folder


@pytest.mark.parametrize(
    ("mountinfo", "cgroup", "words"),
    [
        (b"", b"0::/\n", "not mounted"),
        (b"", b"4:memory:/\n", "no cgroup v2"),
        (b"41 31 0:38 /box /sys/fs/cgroup rw - cgroup2 none rw\n", b"0::/\n", "not mounted"),
    ],
)
def test_why_the_own_cgroup_is_not_found(
    monkeypatch: pytest.MonkeyPatch, mountinfo: bytes, cgroup: bytes, words: str
) -> None:
    files = {"/proc/self/mountinfo": mountinfo, "/proc/self/cgroup": cgroup}
    monkeypatch.setattr(procfs, "read_bytes", lambda path: files[path])
    with pytest.raises(OSError, match=words):
        cgroup2.own_folder()


def test_folders_of_dead_daemons_are_removed_and_those_of_living_ones_are_not(
    tmp_path: Path,
) -> None:
    names = {"stdiod.1.77.aaaa": False, "stdiod.1.78.bbbb": True, "other": True}
    for name in names:
        (tmp_path / name / "dice#1").mkdir(parents=True)
    # Of a daemon in another PID namespace nobody here has the number: its lock says that it lives.
    lock = os.open(tmp_path / "stdiod.1.78.bbbb", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        cgroup2.remove_stale(str(tmp_path))
    finally:
        os.close(lock)
    assert {path.name for path in tmp_path.iterdir()} == {n for n, kept in names.items() if kept}


async def test_a_daemon_does_not_start_without_the_containment_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> str:
        raise OSError("cgroup v2 is not mounted here")

    monkeypatch.setattr(cgroup2, "own_folder", refuse)
    with pytest.raises(ContainmentError, match="cgroup v2 is not mounted here"):
        async with Kernel(Found(), data_dir=tmp_path, containment="cgroup2"):
            pytest.fail("it started")
    # And it lets go of the data directory.
    (await trio.to_thread.run_sync(lock_data_dir, tmp_path)).close()


async def test_a_second_daemon_on_the_same_data_is_refused_with_the_pid_of_the_first(
    tmp_path: Path,
) -> None:
    async with Kernel(Found(), data_dir=tmp_path):
        with pytest.raises(DataInUseError, match=r"in use by the daemon with pid \d+"):
            await trio.to_thread.run_sync(lock_data_dir, tmp_path)
