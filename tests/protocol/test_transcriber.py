from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Failure, Reason, Success
from protocol.transcript import (
    EXCERPT_BYTES,
    KEPT_LINE_BYTES,
    Entry,
    EntrySource,
    Gap,
    Happened,
    Piece,
    Transcriber,
    encode_record,
    outcome_document,
    read_transcript,
)
from tests.protocol.test_transcript import HEADER, lines
from tests.protocol.wire import Cuts, cuts, pieces


def transcribed(data: bytes, lengths: Cuts = ()) -> list[Entry]:
    """Transcribe what a module printed, read back from the lines of a file."""
    transcriber = Transcriber()
    entries = [
        entry
        for piece in pieces(data, lengths)
        for entry in transcriber.take(Piece(0.1, "m#1", EntrySource.MODULE, piece))
    ]
    entries += transcriber.end(0.2, "the test is over")
    written = [encode_record(entry) for entry in entries]
    *read, ended = read_transcript([*lines(HEADER), *written], "t").entries
    assert (ended.event, ended.missing_bytes) == (Happened.ENDED, 0)
    return read


def bytes_of(entries: list[Entry]) -> bytes:
    return b"".join(one.content() + (b"\n" if one.newline else b"") for one in entries)


@given(st.lists(st.sampled_from([b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff\x00", b"{}", "ä".encode(),
                                 b"\x1b[0m", b" ", b"x" * 50])).map(b"".join), cuts)  # fmt: skip
def test_every_byte_survives_however_it_was_cut(data: bytes, lengths: Cuts) -> None:
    assert bytes_of(transcribed(data, lengths)) == data
    assert transcribed(data, lengths) == transcribed(data)


def test_a_line_too_long_to_keep_is_its_beginning_with_length_and_digest() -> None:
    line = b"x" * (KEPT_LINE_BYTES + 1)
    cut, after = transcribed(line + b"\nshort\n", [1000, 70000])
    assert cut.content() == line[:EXCERPT_BYTES]
    assert (cut.size, cut.sha256) == (len(line), hashlib.sha256(line).hexdigest())
    assert not cut.whole
    assert after.line == "short"
    assert transcribed(line[1:] + b"\n")[0].whole


def test_the_end_of_a_process_ends_its_lines() -> None:
    transcriber = Transcriber()
    assert not transcriber.take(Piece(0.1, "m#1", EntrySource.STDERR, b"oh"))
    exited = Entry(
        at_s=0.2, instance="m#1", source=EntrySource.PROCESS, event=Happened.EXITED, exit_code=1
    )
    last, ended = transcriber.take(exited)
    assert (last.source, last.line, last.newline) == (EntrySource.STDERR, "oh", False)
    assert ended is exited


def test_who_attaches_in_the_middle_of_a_line_begins_with_the_next() -> None:
    transcriber = Transcriber()
    attached = Entry(
        at_s=0.1, instance="m#1", source=EntrySource.PROCESS, event=Happened.ATTACHED, mid_line=True
    )
    assert transcriber.take(attached) == [attached]
    (entry,) = transcriber.take(Piece(0.2, "m#1", EntrySource.MODULE, b'true}\n{"ok":true}\n'))
    assert entry.line == '{"ok":true}'
    assert transcriber.missing_bytes == 0


def test_a_gap_counts_what_it_broke_and_the_next_whole_line_is_kept() -> None:
    transcriber = Transcriber()
    transcriber.take(Piece(0.1, "m#1", EntrySource.MODULE, b"abc"))
    (gap,) = transcriber.take(Gap(0.2, "m#1", EntrySource.MODULE, 10, 1, mid_line=True))
    assert (gap.event, gap.size, gap.lines) == (Happened.MISSING, 13, 1)
    (entry,) = transcriber.take(Piece(0.3, "m#1", EntrySource.MODULE, b"rest\nwhole\n"))
    assert entry.line == "whole"
    assert transcriber.end(0.4, "over")[-1].missing_bytes == 17


def test_after_a_gap_of_whole_lines_none_is_skipped() -> None:
    transcriber = Transcriber()
    transcriber.take(Gap(0.2, "m#1", EntrySource.MODULE, 10, 1, mid_line=False))
    (entry,) = transcriber.take(Piece(0.3, "m#1", EntrySource.MODULE, b"whole\n"))
    assert entry.line == "whole"


def test_an_outcome_is_written_as_a_response_has_it() -> None:
    assert outcome_document(Success(4, "rolled")) == {"ok": True, "result": 4, "summary": "rolled"}
    failure = Failure.because(Reason.EXITED, "it exited", pid=7)
    details = {"origin": "host", "reason": "exited", "pid": 7}
    error = {"code": "unreachable", "message": "it exited", "details": details}
    assert outcome_document(failure) == {"ok": False, "error": error}


def test_a_result_too_large_or_too_deep_is_left_out() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * KEPT_LINE_BYTES, deep):
        assert outcome_document(Success(value)) == {"ok": True}


@pytest.mark.parametrize("lengths", [[], [1_048_576], [1_048_577]])
def test_a_line_is_kept_whole_up_to_a_mebibyte_and_4096_bytes_of_a_longer_one(
    lengths: Cuts,
) -> None:
    line = b"x" * 1_048_576
    (whole, cut) = transcribed(line + b"\n" + line + b"y\n", lengths)
    assert (whole.content(), whole.size, whole.sha256) == (line, None, None)
    assert (cut.content(), cut.size) == (b"x" * 4096, 1_048_577)
    assert cut.sha256 == hashlib.sha256(line + b"y").hexdigest()


def test_a_result_is_kept_up_to_a_mebibyte() -> None:
    for size, kept in ((1_048_576, True), (1_048_577, False)):
        text = "x" * (size - 2)
        document = outcome_document(Success(text, "s"))
        assert document == {"ok": True, "summary": "s", **({"result": text} if kept else {})}
        failure = Failure("internal", "m", {"a": "x" * (size - 8)})
        assert outcome_document(failure) == {
            "ok": False,
            "error": {
                "code": "internal",
                "message": "m",
                "details": failure.details if kept else {},
            },
        }
