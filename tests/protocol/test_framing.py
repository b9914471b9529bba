from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.framing import BOM, EXCERPT_BYTES, Line, LineSplitter, Overlong
from tests.protocol.wire import Cuts, cuts, pieces

LIMIT = 8

fragments = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"\r\n",
        b" ",
        b"\t",
        BOM,
        BOM[:1],
        BOM[:2],
        b"\0",
        b"{}",
        b"x",
        b"y" * LIMIT,
        b"\n" + b"z" * (LIMIT + 1) + b"\n",
    ]
)
streams = st.lists(fragments, max_size=30).map(b"".join)


def read(stream: bytes, lengths: Cuts = (), limit: int = LIMIT) -> tuple[list[Line], Line | None]:
    splitter = LineSplitter(limit)
    lines = [line for piece in pieces(stream, lengths) for line in splitter.feed(piece)]
    return lines, splitter.finish()


def reference(stream: bytes, limit: int = LIMIT) -> tuple[list[Line], bytes | None]:
    """Say the same in the simplest words, with the whole stream at hand."""
    *whole, tail = [re.sub(b"\\A(?:%b)+" % BOM, b"", one) for one in stream.split(b"\n")]
    lines: list[Line] = []
    remainder: bytes | None = None
    for raw in (*whole, tail):
        text = raw.removesuffix(b"\r")
        if len(text) > limit:
            lines.append(Overlong(limit, text[: min(limit, EXCERPT_BYTES)]))
        elif text.strip():
            lines.append(text)
    if lines and tail.strip() and not isinstance(lines[-1], Overlong):
        last = lines.pop()
        assert isinstance(last, bytes)
        remainder = last
    return lines, remainder


@given(streams, cuts, st.integers(2, LIMIT))
@example(b"x" * LIMIT + b"\r\n{}\n", [LIMIT + 1], LIMIT)
@example(BOM + b"{}", [1, 1], 2)
@example(b"\n{}\r\n", [], LIMIT)
@example(b"\n" + b"x" * (LIMIT + 1) + b"\n", [], LIMIT)
def test_a_stream_gives_the_same_lines_however_it_is_cut(
    stream: bytes, lengths: Cuts, limit: int
) -> None:
    assert read(stream, lengths, limit) == reference(stream, limit)


@given(st.binary(max_size=60), cuts)
def test_any_bytes_at_all_give_the_lines_of_the_reference(stream: bytes, lengths: Cuts) -> None:
    assert read(stream, lengths) == reference(stream)


@given(streams)
def test_one_byte_at_a_time_is_a_cut_like_any_other(stream: bytes) -> None:
    assert read(stream, [1] * len(stream)) == reference(stream)


@pytest.mark.fault(9)
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_more_than_the_limit_and_a_carriage_return_is_ever_held(chunks: list[bytes]) -> None:
    splitter = LineSplitter(LIMIT)
    for chunk in chunks:
        splitter.feed(chunk)
        assert splitter.pending_bytes <= LIMIT + 1


def test_an_endless_line_is_reported_once_and_takes_no_memory() -> None:
    splitter = LineSplitter(1000)
    reported = [line for _ in range(1000) for line in splitter.feed(b"x" * 700)]
    assert reported == [Overlong(1000, b"x" * EXCERPT_BYTES)]
    assert splitter.pending_bytes == 0
    assert splitter.finish() is None


@pytest.mark.fault(9)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("lengths", [[], [1] * 40, [LIMIT], [LIMIT + 1], [LIMIT + 2]])
@pytest.mark.parametrize("length", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_the_limit_counts_the_line_without_its_ending(
    length: int, lengths: Cuts, ending: bytes
) -> None:
    lines, remainder = read(b"x" * length + ending + b"{}\n", lengths)
    expected: Line = b"x" * length if length <= LIMIT else Overlong(LIMIT, b"x" * LIMIT)
    assert lines == [expected, b"{}"]
    assert remainder is None


def test_a_line_is_reported_as_soon_as_it_passes_the_limit() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"x" * LIMIT) == []
    assert splitter.feed(b"\r") == []
    assert splitter.feed(b"x") == [Overlong(LIMIT, b"x" * LIMIT)]
    assert splitter.feed(b"more of it\nnext\n") == [b"next"]


def test_two_overlong_lines_in_a_row_are_two_reports() -> None:
    bad = b"x" * 20 + b"\n"
    lines, _ = read(bad + bad + b"ok\n", [9, 9, 9])
    assert lines == [Overlong(LIMIT, b"x" * LIMIT)] * 2 + [b"ok"]


@pytest.mark.parametrize("lengths", [[], [1], [2], [1, 1], [1, 1, 1], [3]])
def test_byte_order_marks_are_skipped_at_the_beginning_of_each_line(lengths: Cuts) -> None:
    stream = BOM + b"{}\n" + BOM + BOM + b"[" + BOM + b"]\n" + BOM + b"\r\n" + BOM + b"x"
    assert read(stream, lengths) == ([b"{}", b"[" + BOM + b"]"], b"x")


def test_a_byte_order_mark_does_not_count_towards_the_limit() -> None:
    full = b"x" * LIMIT
    for lengths in ([1, 1], [], [LIMIT]):
        stream = b"{}\n" + BOM + full + b"\n"
        assert read(stream, lengths) == ([b"{}", full], None)


def test_what_only_begins_like_a_byte_order_mark_is_content() -> None:
    assert read(BOM[:2] + b"x\n", [1, 1]) == ([BOM[:2] + b"x"], None)
    assert read(BOM[:2], [1]) == ([], BOM[:2])


def test_blank_lines_are_skipped_and_other_control_bytes_are_content() -> None:
    stream = b"\n\r\n  \t\n\0\na\rb\nc\r\r\n"
    assert read(stream) == ([b"\0", b"a\rb", b"c\r"], None)


@pytest.mark.parametrize(
    ("stream", "remainder"),
    [(b"", None), (b"{}\n", None), (b"{}", b"{}"), (b"a\n{", b"{"), (b"{}\r", b"{}"), (b" ", None)],
)
def test_the_end_gives_what_stands_after_the_last_newline(
    stream: bytes, remainder: bytes | None
) -> None:
    assert read(stream)[1] == remainder


class Counted(bytes):
    """Bytes that count how many of them are looked through for a newline."""

    looked_at = 0

    def partition(self, sep: Any, /) -> tuple[bytes, bytes, bytes]:
        head, newline, rest = super().partition(sep)
        Counted.looked_at += len(head) + len(newline)
        return head, newline, Counted(rest)

    def split(self, sep: Any = None, maxsplit: Any = -1) -> list[bytes]:
        Counted.looked_at += len(self)
        return super().split(sep, maxsplit)


@pytest.mark.parametrize("step", [1, 7, 5000])
def test_each_byte_is_searched_once_however_long_its_line_grows(step: int) -> None:
    # A splitter that searches what it holds anew looks at 50 million bytes here, cut in ones.
    stream = b"x" * 10_000 + b"\n" + b"y" * 10_000
    splitter = LineSplitter(1 << 20)
    splitter.feed(b"{}\n")
    Counted.looked_at = 0
    for start in range(0, len(stream), step):
        splitter.feed(Counted(stream[start : start + step]))
    assert Counted.looked_at == len(stream)
    assert splitter.pending_bytes == 10_000
