from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from protocol.events import ErrorEvent, Log
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.module_log import (
    BURST_BYTES,
    LINE_BYTES,
    RING_CHARS,
    TAIL_LINE_CHARS,
    TAIL_LINES,
    LogLine,
    ModuleLog,
    Stderr,
)
from tests.bounds import WAIT_S

SAID = Log(version="0", level="warn", message="two\nlines", fields={"n": 1})
WRONG = ErrorEvent(version="0", error_code="E1", error_message="no")

Clock = trio.testing.MockClock


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ModuleLog]:
    files = LogFiles(tmp_path / "logs")
    yield ModuleLog("m", files, lambda: 1_700_000_000.25)
    files.close()


async def texts(log: ModuleLog, count: int = 100_000) -> list[str]:
    return [line.text for line in await log.last_lines(count)]


async def test_each_line_keeps_its_time_its_instance_and_its_stream(log: ModuleLog) -> None:
    log.stderr_lines("m#1", ["oops"])
    log.log_event("m#1", "info: hello")
    log.events("m#1", [SAID, WRONG])
    log.host_line("m#2", "ready -> down")
    log.host_line(None, "down -> starting")
    assert list(await log.last_lines(10)) == [
        LogLine(1_700_000_000.25, "m#1", "stderr", "oops"),
        LogLine(1_700_000_000.25, "m#1", "log", "info: hello"),
        LogLine(1_700_000_000.25, "m#1", "event", 'warn: two lines {"n":1}'),
        LogLine(1_700_000_000.25, "m#1", "event", "error: E1: no"),
        LogLine(1_700_000_000.25, "m#2", "host", "ready -> down"),
        LogLine(1_700_000_000.25, "m", "host", "down -> starting"),
    ]


async def test_lines_that_nobody_waits_for_any_more_are_not_read(
    log: ModuleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    read: list[int] = []

    def read_tail(_: LogFiles, name: str, lines: int) -> list[bytes]:
        read.append(lines)
        return []

    def hold(_: list[bytes]) -> None:
        go_on.wait(WAIT_S)

    monkeypatch.setattr(LogFiles, "_read_tail", read_tail)
    log._files.tail("stuck", 1, hold)
    with trio.CancelScope() as given_up:
        given_up.cancel()
        await log.last_lines(2)
    go_on.set()
    await log.last_lines(3)
    assert read == [1, 3]


@given(
    st.sampled_from(["m", "a b", "log x", "a host b", "a#1 log b"]),
    st.sampled_from(["", "#1", "#23"]),
    st.sampled_from(["stderr", "log", "event", "host"]),
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))
    | st.sampled_from(["said # stderr x", "a#1 log b", " host ", ""]),
)
def test_a_line_is_read_as_it_was_written(
    module: str, generation: str, stream: str, text: str
) -> None:
    line = LogLine(1_700_000_000.25, module + generation, stream, text)
    assert LogLine.decode(line.encode().removesuffix(b"\n"), module) == line


@pytest.mark.parametrize("line", [b"", b"hello", b"\xff\xfe", b"2020 x", b"2023-11-14T22:13:20Z a"])
def test_a_line_of_another_form_is_all_text(line: bytes) -> None:
    assert LogLine.decode(line, "m") == LogLine(0.0, "", "", line.decode(errors="replace"))


async def test_a_follower_gets_each_line_until_it_has_enough(log: ModuleLog) -> None:
    followed: list[LogLine] = []
    unfollow = log.follow(followed.append)
    log.stderr_lines("m#1", ["one"])
    unfollow()
    unfollow()
    log.stderr_lines("m#1", ["two"])
    assert [line.text for line in followed] == ["one"]


async def test_a_flood_is_cut_off_counted_and_reported(log: ModuleLog, mock_clock: Clock) -> None:
    mock_clock.jump(1000)
    lines = 3 * BURST_BYTES // 1000
    for _ in range(lines):
        log.stderr_lines("m#1", ["x" * 1000])
    left_out = log.left_out_lines
    assert lines // 2 < left_out < lines
    log.stderr_lines("m#1", ["y" * 2000])
    mock_clock.jump(1)
    log.stderr_lines("m#1", ["calm again"])
    log.stderr_lines("m#1", ["and on"])
    assert log.left_out_lines == left_out + 1
    *before, report, calm, on = await texts(log)
    assert len(before) == lines - left_out
    assert report.startswith(f"{left_out + 1} lines were left out: more than ")
    assert (calm, on) == ("calm again", "and on")


async def test_a_follower_is_told_even_what_the_file_leaves_out(
    log: ModuleLog, mock_clock: Clock
) -> None:
    followed: list[LogLine] = []
    log.follow(followed.append)
    for _ in range(BURST_BYTES // 4000 + 100):
        log.stderr_lines("m#1", ["x" * 4000])
    assert log.left_out_lines > 0
    assert len(followed) == BURST_BYTES // 4000 + 100


async def test_stderr_is_cut_into_lines_whatever_the_chunks(log: ModuleLog) -> None:
    stderr = Stderr("m#1", log)
    for chunk in (b"on", b"e\ntwo\r", b"\n\nfour \xff\nfi", b"ve"):
        stderr.feed(chunk)
    assert stderr.tail() == ["one", "two", "", "four \ufffd", "five"]
    stderr.finish()
    stderr.finish()
    assert stderr.tail() == ["one", "two", "", "four \ufffd", "five"]
    assert await texts(log) == ["one", "two", "", "four \ufffd", "five"]


async def test_ten_megabytes_without_a_newline_cost_a_bounded_ring(log: ModuleLog) -> None:
    stderr = Stderr("m#1", log)
    for _ in range(160):
        stderr.feed(b"x" * 65536)
        assert len(stderr._partial) <= LINE_BYTES
        assert stderr._ring_chars <= RING_CHARS
        assert sum(map(len, stderr._ring)) <= RING_CHARS
    stderr.feed(b"the end")
    tail = stderr.tail()
    assert len(tail) <= TAIL_LINES
    assert all(len(line) <= TAIL_LINE_CHARS for line in tail)
    assert tail[-1].endswith("the end")


async def test_the_tail_is_the_last_lines_each_of_bounded_length(log: ModuleLog) -> None:
    stderr = Stderr("m#1", log)
    stderr.feed(b"".join(b"%d\n" % number for number in range(10_000)))
    stderr.feed(b"y" * 8000)
    tail = stderr.tail()
    assert tail[:-1] == [str(number) for number in range(10_000 - TAIL_LINES + 1, 10_000)]
    assert tail[-1] == "y" * TAIL_LINE_CHARS


async def test_empty_lines_do_not_grow_the_ring_without_bound(log: ModuleLog) -> None:
    stderr = Stderr("m#1", log)
    stderr.feed(b"\n" * 100_000)
    assert len(stderr._ring) <= RING_CHARS


async def test_of_a_flood_of_events_as_much_is_written_as_the_rate_lets_through(
    log: ModuleLog,
) -> None:
    count = 300_000
    log.events("m#1", [SAID] * count)
    note, *kept = await texts(log)
    assert note.startswith(f"{log.left_out_lines} lines were left out")
    assert len(kept) + log.left_out_lines == count
    assert len(kept) * 60 < BURST_BYTES
    assert set(kept) == {'warn: two lines {"n":1}'}


async def test_a_long_event_is_cut(log: ModuleLog) -> None:
    log.events("m#1", [Log(version="0", level="info", message="x" * (LINE_BYTES * 2))])
    (kept,) = await texts(log)
    assert len(kept) == LINE_BYTES
