from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.runtime.files import log_files, rotated_file
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.rotated_file import FILES
from tests.factories import none_left, open_files, opened_since


@pytest.fixture
def files(tmp_path: Path) -> Iterator[LogFiles]:
    files = LogFiles(tmp_path / "logs")
    yield files
    files.close()


def tail(files: LogFiles, name: str, lines: int) -> list[bytes]:
    found: list[list[bytes]] = []
    arrived = threading.Event()

    def reply(lines_found: list[bytes]) -> None:
        found.append(lines_found)
        arrived.set()

    files.tail(name, lines, reply)
    assert arrived.wait(60)
    return found[0]


def test_a_tail_sees_all_that_was_written_before_it_was_asked_for(files: LogFiles) -> None:
    for number in range(100):
        files.append("m", b"line %d\n" % number)
    assert tail(files, "m", 3) == [b"line 97", b"line 98", b"line 99"]
    assert len(tail(files, "m", 1000)) == 100
    assert tail(files, "m", 0) == []


@pytest.mark.fault(21)
def test_what_comes_while_the_system_gives_no_thread_is_written_with_what_comes_next(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raised in whoever was about to log: a worker was left without a process, for good."""
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        files.append("m", b"line 1\n")
    files.append("m", b"line 2\n")
    assert tail(files, "m", 10) == [b"line 1", b"line 2"]


@pytest.mark.fault(21)
@pytest.mark.parametrize("more", [b"line 3\n", b""], ids=["one more", "the end"])
def test_a_queue_that_filled_while_there_was_no_thread_is_written_once_there_is_one(
    files: LogFiles, more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "QUEUE_BYTES", 14)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        for line in (b"line 1\n", b"line 2\n"):
            files.append("m", line)
    if more:
        files.append("m", more)
    files.close()
    assert files.path("m").read_bytes() == b"line 1\nline 2\n"
    assert files.dropped_bytes == len(more)


def test_the_tail_of_a_log_that_was_never_written_is_empty(files: LogFiles) -> None:
    assert tail(files, "nobody", 10) == []
    assert not files.folder.exists()


def test_a_file_that_is_full_is_put_aside_and_a_tail_reads_across(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotated_file, "FILE_BYTES", 100)
    monkeypatch.setattr(log_files, "BATCH_BYTES", 10)
    for number in range(40):
        files.append("m", b"line %04d\n" % number)
    last = tail(files, "m", 15)
    assert last == [b"line %04d" % number for number in range(25, 40)]
    names = sorted(path.name for path in files.folder.iterdir())
    assert names == ["m.log", "m.log.1", "m.log.2"]


def test_the_files_of_a_module_are_bounded_whatever_it_writes(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotated_file, "FILE_BYTES", 1000)
    monkeypatch.setattr(log_files, "BATCH_BYTES", 100)
    for _ in range(1000):
        files.append("m", b"x" * 99 + b"\n")
    files.close()
    sizes = [path.stat().st_size for path in files.folder.iterdir()]
    assert len(sizes) <= FILES
    assert all(size <= 1000 + 100 for size in sizes)


def test_a_disk_that_is_far_behind_costs_lines_and_no_memory(
    files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "QUEUE_BYTES", 1000)
    stuck, go_on = threading.Event(), threading.Event()

    def stall(_: list[bytes]) -> None:
        stuck.set()
        go_on.wait(60)

    files.tail("m", 1, stall)
    assert stuck.wait(60)
    for _ in range(100):
        files.append("m", b"x" * 99 + b"\n")
    assert files._waiting == 1000
    assert files.dropped_bytes == 90 * 100
    go_on.set()
    assert len(tail(files, "m", 100)) == 10
    files.append("m", b"again\n")
    assert tail(files, "m", 1) == [b"again"]


def test_a_folder_that_cannot_be_written_degrades_the_logs_and_nothing_else(
    files: LogFiles,
) -> None:
    files.folder.write_text("in the way")
    files.append("m", b"lost\n")
    assert tail(files, "m", 1) == []
    assert files.last_error is not None
    assert str(files.folder) in files.last_error
    assert files.dropped_bytes == 5
    files.folder.unlink()
    files.append("m", b"kept\n")
    assert tail(files, "m", 2) == [b"kept"]
    assert files.last_error is None


def test_the_error_of_a_log_stays_until_that_log_is_written(files: LogFiles) -> None:
    files.path("a").mkdir(parents=True)
    files.path("b").mkdir()
    for name in ("a", "b", "c", "d"):
        files.append(name, b"line\n")
        tail(files, name, 1)
    assert files.last_error is not None
    assert str(files.path("b")) in files.last_error  # the newest
    files.path("b").rmdir()
    files.append("b", b"line\n")
    tail(files, "b", 1)
    assert files.last_error is not None
    assert str(files.path("a")) in files.last_error
    files.path("a").rmdir()
    files.append("a", b"line\n")
    tail(files, "a", 1)
    assert files.last_error is None


def test_the_error_of_a_log_is_forgotten_with_its_module(files: LogFiles) -> None:
    files.path("a").mkdir(parents=True)
    files.append("a", b"the last word\n")
    files.forget("a")
    assert tail(files, "a", 1) == []
    assert files.last_error is None
    files.append("a", b"of another module of that name\n")
    tail(files, "a", 1)
    assert files.last_error is not None


def test_tails_that_nobody_waits_for_any_more_leave_one_entry_while_the_disk_is_stuck(
    files: LogFiles,
) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def stall(_: list[bytes]) -> None:
        stuck.set()
        go_on.wait(60)

    files.tail("m", 1, stall)
    assert stuck.wait(60)
    read: list[list[bytes]] = []
    for _ in range(100):
        files.tail("m", 1, read.append)()
    assert files._queue.qsize() == 1
    files.tail("m", 1, read.append)
    files.append("m", b"line\n")
    files.tail("m", 1, read.append)
    assert files._queue.qsize() == 3  # what comes after a line is read after it
    go_on.set()
    assert tail(files, "m", 1) == [b"line"]
    assert read == [[], [b"line"]]


@pytest.mark.parametrize("name", [".hidden", "ä" * 128, "a b", "x.log", "%2e", "~", "\u202e"])
def test_any_name_of_a_module_is_a_file_in_the_folder(files: LogFiles, name: str) -> None:
    files.append(name, b"line\n")
    assert tail(files, name, 1) == [b"line"]
    path = files.path(name)
    assert path.parent == files.folder
    assert path.is_file()
    assert not path.name.startswith(".")


def test_no_two_names_share_a_file(files: LogFiles) -> None:
    names = [".a", "_a", "%2Ea", "a", "A", "é" * 128, "é" * 127 + "e", "a%", "a "]
    assert len({files.path(name) for name in names}) == len(names)


def test_closing_writes_what_waits_and_ends_the_thread(files: LogFiles) -> None:
    files.append("m", b"last\n")
    files.close()
    assert files.path("m").read_bytes() == b"last\n"
    assert "module-logs" not in [thread.name for thread in threading.enumerate()]
    files.close()


def test_logs_hold_no_file_open_between_lines(files: LogFiles) -> None:
    before = open_files()
    for number in range(50):
        files.append(f"m{number}", b"line\n")
    tail(files, "m49", 1)
    assert not opened_since(before)


def test_folders_that_were_deleted_are_made_again_for_the_owner_alone(tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "data" / "logs")
    for _ in range(2):
        files.append("m", b"secret\n")
        assert tail(files, "m", 1) == [b"secret"]
        for folder in (files.folder, files.folder.parent):
            assert folder.stat().st_mode & 0o777 == 0o700
        shutil.rmtree(tmp_path / "data")
    files.close()
