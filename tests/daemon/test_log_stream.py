"""The daemon's own log where it cannot be written: lines are lost and counted, nothing waits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from supervisor.daemon.log_stream import LogStream


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

    def drain(self, size: int) -> None:
        while size > 0:
            size -= len(os.read(self.reading, size))


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


def test_lines_are_written_as_they_are(pipe: Pipe) -> None:
    stream = LogStream(pipe.writing, notice)
    assert stream.write("one\n") == 4
    stream.write("tw\udcffo\n")
    stream.flush()
    assert os.read(pipe.reading, 100) == b"one\ntw\\udcffo\n"


def test_a_full_disk_loses_lines_and_says_how_many_once_there_is_room(
    pipe: Pipe, tmp_path: Path
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    stream = LogStream(full, notice)
    stream.write("lost\n")
    stream.write("lost too\n")
    assert stream.lost_lines == 2
    os.dup2(pipe.writing, full)  # the disk has room again
    stream.write("kept\n")
    os.close(full)
    assert os.read(pipe.reading, 100) == b"2 lost: No space left on device\nkept\n"
    assert stream.lost_lines == 0


def test_a_reader_that_went_away_fails_nothing(pipe: Pipe) -> None:
    os.close(pipe.reading)
    stream = LogStream(pipe.writing, notice)
    stream.write("lost\n")
    assert stream.lost_lines == 1


def test_a_descriptor_that_was_closed_fails_nothing(pipe: Pipe) -> None:
    os.close(pipe.writing)
    stream = LogStream(pipe.writing, notice)
    stream.write("lost\n")
    assert stream.lost_lines == 1


def test_a_reader_that_does_not_read_is_not_waited_for(pipe: Pipe) -> None:
    stream = LogStream(pipe.writing, notice)
    filled = pipe.fill()
    for _ in range(1000):  # were each one waited for, this test would take its time
        stream.write("lost\n")
    pipe.drain(filled)
    stream.write("kept\n")
    assert os.read(pipe.reading, 100) == b"1000 lost: its reader does not read\nkept\n"


def test_a_line_that_was_torn_ends_before_the_next_one(pipe: Pipe) -> None:
    stream = LogStream(pipe.writing, notice)
    filled = pipe.fill()
    pipe.drain(8192)
    stream.write("y" * 20_000 + "\n")
    assert stream.lost_lines == 1
    pipe.drain(filled - 8192)
    stream.write("kept\n")
    rest = os.read(pipe.reading, 100_000)
    assert rest == b"y" * 8192 + b"\n1 lost: its reader does not read\nkept\n"
