"""The daemon's own log where it cannot be written: lines are lost and counted, nobody waits."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from supervisor.daemon import log_stream
from supervisor.daemon.log_stream import SLOW, LogStream
from supervisor.runtime.files import rotated_file
from supervisor.runtime.held_bytes import ALL_BYTES, ARGS, Account, HeldBytes
from supervisor.runtime.threads import Threads
from tests.bounds import WAIT_S, until
from tests.factories import none_left


class Pipe(NamedTuple):
    reading: int
    writing: int

    def fill(self) -> int:
        """Write until it is full; returns how many bytes that took."""
        os.set_blocking(self.writing, False)
        written = 0
        try:
            while True:
                written += os.write(self.writing, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(self.writing, True)
            return written

    def read(self, size: int) -> bytes:
        """Read so much, or until nothing more comes."""
        found = b""
        while len(found) < size and select.select([self.reading], [], [], WAIT_S)[0]:
            data = os.read(self.reading, size - len(found))
            if not data:
                break
            found += data
        return found


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(*os.pipe())
    yield made
    for descriptor in made:
        try:
            os.close(descriptor)
        except OSError:
            continue


def notice(lines: int, words: str) -> str:
    return f"{lines} lost: {words}\n"


def stream_to(descriptor: int, clock: float = 0.0) -> LogStream:
    return LogStream(partial(os.write, descriptor), notice, Threads(lambda: clock))


def test_lines_are_written_as_they_are_and_all_of_them_by_the_end(pipe: Pipe) -> None:
    stream = stream_to(pipe.writing)
    assert stream.write("one\n") == 4
    stream.write("tw\udcffo\n")
    stream.flush()
    stream.close()
    assert os.read(pipe.reading, 100) == b"one\ntw\\udcffo\n"
    assert stream.status() == {"lost_lines": 0, "problem": None}


def test_a_full_disk_loses_lines_and_says_how_many_once_there_is_room(pipe: Pipe) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    stream = stream_to(full)
    stream.write("lost\n")
    until(lambda: stream.lost_lines == 1, "a line being lost")
    stream.write("lost too\n")
    until(lambda: stream.lost_lines == 2, "another one being lost")
    assert stream.status()["problem"] == "No space left on device"
    os.dup2(pipe.writing, full)  # the disk has room again
    stream.write("kept\n")
    stream.close()
    os.close(full)
    assert os.read(pipe.reading, 100) == b"2 lost: No space left on device\nkept\n"
    assert stream.status() == {"lost_lines": 2, "problem": None}


@pytest.mark.parametrize("end", ["reading", "writing"])
def test_a_reader_that_went_away_and_a_descriptor_that_was_closed_fail_nothing(
    pipe: Pipe, end: str
) -> None:
    os.close(getattr(pipe, end))
    stream = stream_to(pipe.writing)
    stream.write("lost\n")
    stream.close()
    assert stream.lost_lines == 1


@pytest.mark.fault(36)
def test_what_does_not_take_lines_holds_nobody_up_is_named_and_what_was_lost_is_said(
    pipe: Pipe,
) -> None:
    now = 0.0
    threads = Threads(lambda: now)
    stream = LogStream(partial(os.write, pipe.writing), notice, threads)
    filled = pipe.fill()
    line = "y" * 999 + "\n"
    fitting = log_stream.QUEUE_BYTES // len(line)
    for _ in range(fitting + 500):
        stream.write(line)
    until(lambda: threads._at_work, "the thread being at work")
    now = 100.0
    assert [one.doing for one in threads.stuck()] == ["writing the daemon's own log"]
    assert stream.status() == {"lost_lines": 500, "problem": SLOW}
    assert len(pipe.read(filled)) == filled
    assert pipe.read(fitting * len(line)) == line.encode() * fitting
    stream.write("kept\n")
    expected = f"500 lost: {SLOW}\nkept\n".encode()
    assert pipe.read(len(expected)) == expected
    assert threads.stuck() == []
    stream.close()


@pytest.mark.fault(30)
def test_what_waits_is_in_the_ledger_and_is_not_lost_for_what_others_hold(pipe: Pipe) -> None:
    stream = stream_to(pipe.writing)
    ledger = HeldBytes()
    stream.hold_in(Account(ledger, "the daemon's log"))
    filled = pipe.fill()
    line = "y" * 999 + "\n"
    stream.write(line)
    assert ledger.total == len(line)
    others = Account(ledger, "others")
    others.add(ARGS, ALL_BYTES)
    fitting = log_stream.QUEUE_BYTES // len(line)
    for _ in range(fitting + 10):
        stream.write(line)
    assert ledger.total == ALL_BYTES + fitting * len(line)
    assert stream.status() == {"lost_lines": 11, "problem": SLOW}
    writer = threading.Thread(target=stream.write, args=["from elsewhere\n"])
    writer.start()
    writer.join()
    assert ledger.total == ALL_BYTES + fitting * len(line)
    others.close()
    assert len(pipe.read(filled)) == filled
    said = f"11 lost: {SLOW}\nfrom elsewhere\n".encode()
    assert pipe.read(fitting * len(line) + len(said)).endswith(said)
    stream.close()
    stream.status()
    assert ledger.total == 0


def test_the_end_waits_for_what_does_not_answer_no_longer_than_it_has_to(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "CLOSE_S", 0.001)
    stream = stream_to(pipe.writing)
    pipe.fill()
    stream.write("late\n")
    stream.close()
    # The thread ends, too, before another test has a descriptor of the same number.
    while not os.read(pipe.reading, 1 << 20).endswith(b"late\n"):
        pass


def test_a_line_that_was_torn_ends_before_the_next_one() -> None:
    written: list[bytes] = []
    room = [3, 0, 100, 100]

    def put(data: bytes) -> int:
        if not (take := room.pop(0)):
            raise OSError(28, "No space left on device")
        written.append(data[:take])
        return len(data[:take])

    stream = LogStream(put, notice, Threads())
    stream.write("torn\n")
    until(lambda: stream.lost_lines == 1, "a line being lost")
    stream.write("kept\n")
    stream.close()
    assert b"".join(written) == b"tor\n1 lost: No space left on device\nkept\n"


@pytest.mark.fault(21)
def test_a_line_that_comes_while_the_system_gives_no_thread_is_written_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    stream = LogStream(partial(rotated_file.append, path), notice, Threads())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        stream.write("line 1\n")
    stream.write("line 2\n")
    stream.close()
    assert path.read_text() == "line 1\nline 2\n"


@pytest.mark.fault(21)
@pytest.mark.parametrize("more", ["line 3\n", ""], ids=["one more", "the end"])
def test_a_queue_that_filled_while_there_was_no_thread_is_written_once_there_is_one(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "QUEUE_BYTES", 14)
    path = tmp_path / "log"
    stream = LogStream(partial(rotated_file.append, path), notice, Threads())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        for line in ("line 1\n", "line 2\n"):
            stream.write(line)
    if more:
        stream.write(more)
    stream.close()
    assert path.read_text().startswith("line 1\nline 2\n")
    assert stream.lost_lines == (1 if more else 0)


def test_a_file_is_private_and_put_aside_when_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotated_file, "FILE_BYTES", 10)
    path = tmp_path / "log"
    stream = LogStream(partial(rotated_file.append, path), notice, Threads())
    for number in range(4):
        stream.write(f"line {number}, long\n")
    stream.close()
    aside = [rotated_file.numbered(path, number).read_text() for number in (1, 2)]
    assert aside == ["line 3, long\n", "line 2, long\n"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log.1", "log.2"]
    assert path.with_name("log.1").stat().st_mode & 0o777 == 0o600
