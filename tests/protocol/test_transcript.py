from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.connection import Request
from protocol.descriptor.loading import parse_descriptor
from protocol.descriptor.model import Lifecycle
from protocol.errors import Failure, Reason, Success
from protocol.replies import Operation
from protocol.transcript import (
    KEPT_LINE_BYTES,
    Entry,
    EntrySource,
    Header,
    TranscriptError,
    asked,
    descriptor_document,
    descriptor_of,
    encode_record,
    outcome_document,
    read_transcript,
    said,
)
from tests.protocol.wire import Cuts, cuts, pieces
from tests.schemas.local_registry import validator

DESCRIPTOR = {
    "name": "dice",
    "kind": "tool",
    "capabilities": [],
    "transport": {"type": "stdio", "command": ["dice"]},
}
HEADER: dict[str, Any] = {
    "transcript": 1, "module": "dice", "protocol": "module", "lifecycle": "persistent",
    "descriptor": DESCRIPTOR, "recorded": "2026-11-20T20:13:28.000Z", "stdiod": "0.1.0",
}  # fmt: skip
AT: dict[str, Any] = {"at_s": 0.5, "instance": "dice#1"}
LINE = {**AT, "from": "module", "line": "{}"}
REQUEST = {**AT, "from": "host", "request_id": "r1", "operation": "invoke"}
ANSWER = {**AT, "from": "host", "call_id": "c1", "outcome": {"ok": True, "result": {}}}
OUTCOME = {**AT, "from": "host", "request_id": "r1", "operation": "invoke", "outcome": {"ok": True}}
ENDED = {"at_s": 1, "from": "recorder", "event": "ended", "missing_bytes": 0, "why": "Ctrl-C"}
MISSING = {**AT, "from": "recorder", "event": "missing", "bytes": 3, "lines": 0}
EXITED = {**AT, "from": "process", "event": "exited"}
DIGEST = "0" * 64

GOOD = [
    LINE,
    {**LINE, "from": "stderr", "newline": False},
    {**LINE, "from": "host", "later": 1},
    {**AT, "from": "module", "base64": base64.b64encode(b"\xff").decode()},
    {**LINE, "bytes": 2 << 20, "sha256": DIGEST},
    {**REQUEST, "op": "roll", "args": {"dice": "2d6"}, "session_id": "s1"},
    {**REQUEST, "operation": "health"},
    ANSWER,
    {**ANSWER, "request_id": "r1", "outcome": {"ok": False}},
    OUTCOME,
    {**OUTCOME, "op": "roll", "outcome": {"ok": False, "error": {"code": "c", "message": "m"}}},
    {**AT, "from": "process", "event": "spawned", "pid": 7},
    {**AT, "from": "process", "event": "attached", "pid": 7, "mid_line": True},
    {**AT, "from": "process", "event": "stdin_closed"},
    {**AT, "from": "process", "event": "eof"},
    {**EXITED, "exit_code": 0},
    {**EXITED, "signal": 9, "stopped_by_host": True, "limit": {"limit": "memory_bytes"}},
    MISSING,
    {**MISSING, "stream": "stderr"},
    ENDED,
]

FIRST: list[tuple[dict[str, Any], str]] = [
    ({**LINE, "base64": "A", "from": "process"}, 'is from "host", "module" or "stderr"'),
    ({**LINE, "base64": "A", "bytes": 3}, "not both"),
    ({**AT, "from": "module", "base64": "A", "bytes": 3}, "stand together"),
    ({**OUTCOME, "from": "module", "request_id": None, "outcome": {}}, 'is from "host"'),
    ({**OUTCOME, "request_id": None, "outcome": {}}, 'needs "request_id"'),
    ({**EXITED, "from": "recorder"}, 'is from "process"'),
    ({**MISSING, "bytes": None, "from": "process"}, 'is from "recorder"'),
]
"""Entries of two faults, with the one that is told."""

BAD: list[tuple[dict[str, Any], str]] = [
    ({"from": "module", "line": "x"}, "at_s"),
    ({**LINE, "at_s": -1}, "at_s"),
    ({**LINE, "at_s": "now"}, "at_s"),
    ({**LINE, "from": "guest"}, "from"),
    ({**LINE, "line": 3}, "line"),
    ({**LINE, "line": "a\nb"}, "newline"),
    ({**LINE, "newline": 1}, "newline"),
    ({**LINE, "base64": "AA=="}, "not both"),
    ({**LINE, "bytes": 3}, '"bytes" and "sha256" stand together'),
    ({**LINE, "sha256": DIGEST}, '"bytes" and "sha256" stand together'),
    ({**LINE, "bytes": 3, "sha256": "short"}, "sha256"),
    ({**LINE, "from": "process"}, 'from "host", "module" or "stderr"'),
    ({**LINE, "event": "eof"}, "one of them"),
    (AT | {"from": "module"}, "one of them"),
    ({"at_s": 0, "from": "module", "line": "x"}, "instance"),
    ({key: value for key, value in REQUEST.items() if key != "request_id"}, "request_id"),
    ({**REQUEST, "from": "module"}, 'from "host"'),
    ({**REQUEST, "args": []}, "args"),
    ({**REQUEST, "line": "x"}, "one of them"),
    ({**ANSWER, "from": "module"}, 'from "host"'),
    ({**ANSWER, "outcome": {}}, '"ok"'),
    ({**MISSING, "stream": "guest"}, "stream"),
    ({**MISSING, "stream": "recorder"}, '"stream" is "host"'),
    ({**OUTCOME, "outcome": {}}, '"ok"'),
    ({**OUTCOME, "outcome": {"ok": 1}}, '"ok"'),
    ({**OUTCOME, "from": "module"}, 'from "host"'),
    ({**OUTCOME, "operation": "roll"}, "operation"),
    ({key: value for key, value in OUTCOME.items() if key != "request_id"}, "request_id"),
    (EXITED, '"exit_code" or "signal"'),
    ({**EXITED, "exit_code": 0, "signal": 9}, '"exit_code" or "signal"'),
    ({**EXITED, "exit_code": 0, "from": "recorder"}, 'is from "process"'),
    ({**AT, "from": "process", "event": "reborn"}, "event"),
    ({**AT, "from": "process", "event": "spawned", "pid": -1}, "pid"),
    ({**MISSING, "from": "process"}, 'is from "recorder"'),
    ({key: value for key, value in MISSING.items() if key != "lines"}, '"bytes" and "lines"'),
    ({key: value for key, value in ENDED.items() if key != "why"}, '"missing_bytes" and "why"'),
]

BAD_HEADERS: list[tuple[dict[str, Any], str]] = [
    *(({k: v for k, v in HEADER.items() if k != missing}, missing) for missing in HEADER
      if missing != "transcript"),
    ({**HEADER, "transcript": 2}, "transcript"),
    ({**HEADER, "lifecycle": "eternal"}, "lifecycle"),
    ({**HEADER, "descriptor": []}, "descriptor"),
]  # fmt: skip


def lines(*documents: Any) -> list[bytes]:
    return [json.dumps(one).encode() + b"\n" for one in documents]


@pytest.mark.parametrize("document", [HEADER, {**HEADER, "source": "/m/dice.json"}, *GOOD])
def test_reader_and_schema_accept_the_same_good_lines(document: dict[str, Any]) -> None:
    validator("transcript.v1").validate(document)
    given = [document] if "transcript" in document else [HEADER, document]
    read_transcript(lines(*given), "t.jsonl")


@pytest.mark.parametrize(("document", "named"), BAD)
def test_reader_and_schema_refuse_the_same_bad_entries(
    document: dict[str, Any], named: str
) -> None:
    assert not validator("transcript.v1").is_valid(document)
    with pytest.raises(TranscriptError) as caught:
        read_transcript(lines(HEADER, LINE, document), "t.jsonl")
    assert str(caught.value).startswith("t.jsonl: line 3: ")
    assert named in str(caught.value)


@pytest.mark.parametrize(("document", "named"), FIRST)
def test_of_two_faults_of_an_entry_the_first_is_told(document: dict[str, Any], named: str) -> None:
    with pytest.raises(TranscriptError) as caught:
        read_transcript(lines(HEADER, document), "t.jsonl")
    assert str(caught.value).startswith("t.jsonl: line 2: ")
    assert named in str(caught.value)


@pytest.mark.parametrize(("document", "named"), BAD_HEADERS)
def test_reader_and_schema_refuse_the_same_bad_headers(
    document: dict[str, Any], named: str
) -> None:
    assert not validator("transcript.v1").is_valid(document)
    with pytest.raises(TranscriptError) as caught:
        read_transcript(lines(document), "t.jsonl")
    assert str(caught.value).startswith("t.jsonl: line 1: ")
    assert named in str(caught.value)


def test_what_is_written_of_a_line_that_is_read_is_the_same_line() -> None:
    for entry, document in zip(
        read_transcript(lines(HEADER, *GOOD), "t").entries, GOOD, strict=True
    ):
        written = json.loads(msgspec.json.encode(entry))
        assert written == {key: value for key, value in document.items() if key != "later"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"at_s":1,\n', "the JSON ends in the middle"),
        (b"\xff\n", "is not UTF-8"),
        (b"hello\n", "is not JSON"),
        (b"[]\n", "Expected `object`"),
    ],
)
def test_a_line_that_is_no_json_is_named_with_its_number(line: bytes, words: str) -> None:
    with pytest.raises(TranscriptError, match=f"^t.jsonl: line 2: .*{words}"):
        read_transcript([*lines(HEADER), line, *lines(ENDED)], "t.jsonl")


def test_base64_that_is_none_is_refused() -> None:
    bad = {**AT, "from": "module", "base64": "=?"}
    with pytest.raises(TranscriptError, match=r"line 2: .base64. is not valid base64"):
        read_transcript(lines(HEADER, bad), "t.jsonl")


def test_an_empty_file_is_told_how_a_transcript_begins() -> None:
    with pytest.raises(TranscriptError, match=r"a transcript begins with \{.transcript.:1"):
        read_transcript([], "t.jsonl")


def test_a_whole_transcript_has_no_flaw() -> None:
    assert read_transcript(lines(HEADER, LINE, ENDED), "t").flaws == ()


def test_what_is_not_whole_says_why() -> None:
    cut = read_transcript([*lines(HEADER, LINE), b'{"at_s":0.7,"fr'], "t")
    assert cut.flaws == (
        "line 3, the last one, is cut off",
        "it has no end: the recorder went away",
    )
    assert len(cut.entries) == 1
    attached = {**AT, "from": "process", "event": "attached"}
    lossy = read_transcript(lines(HEADER, attached, MISSING, {**ENDED, "missing_bytes": 5}), "t")
    assert [flaw.split(":")[0] for flaw in lossy.flaws] == [
        "5 bytes are missing",
        "it begins in the middle of dice#1",
    ]


def bytes_of(entries: Sequence[Entry]) -> bytes:
    return b"".join(one.content() + (b"\n" if one.newline else b"") for one in entries)


@given(st.lists(st.sampled_from([b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff\x00", b"{}", "ä".encode(),
                                 b"\x1b[0m", b" ", b"x" * 50])).map(b"".join), cuts)  # fmt: skip
def test_every_byte_survives_however_it_was_cut_and_lines_are_put_together(
    data: bytes, lengths: Cuts
) -> None:
    entries = [
        entry
        for piece in pieces(data, lengths)
        for entry in said(0.1, "m#1", EntrySource.MODULE, piece)
    ]
    written = [encode_record(entry) for entry in entries]
    transcript = read_transcript([*lines(HEADER), *written], "t")
    assert bytes_of(transcript.entries) == data
    joined = transcript.instances().get("m#1", [])
    assert bytes_of(joined) == data
    assert len(joined) == len(data.removesuffix(b"\n").split(b"\n")) if data else not joined


def test_lines_end_with_their_process_and_what_a_gap_broke_is_left_out() -> None:
    piece = {**LINE, "newline": False}
    stderr = {**piece, "from": "stderr", "line": "oh"}
    gap = {**MISSING, "stream": "module"}
    exited = {**EXITED, "exit_code": 1}
    given = (HEADER, piece, stderr, gap, {**LINE, "line": "whole"}, piece, exited, ENDED)
    entries = read_transcript(lines(*given), "t").instances()["dice#1"]
    said = [(one.source, one.line) for one in entries if one.is_line]
    assert said == [("module", "whole"), ("module", "{}"), ("stderr", "oh")]
    assert entries[-1].event == "exited"


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


def test_a_result_is_kept_up_to_a_mebibyte() -> None:
    for size, kept in ((1_048_576, True), (1_048_577, False)):
        text = "x" * (size - 2)
        document = outcome_document(Success(text, "s"))
        assert document == {"ok": True, "summary": "s", **({"result": text} if kept else {})}
        failure = Failure("internal", "m", {"a": "x" * (size - 8)})
        details = failure.details if kept else {}
        error = {"code": "internal", "message": "m", "details": details}
        assert outcome_document(failure) == {"ok": False, "error": error}


def test_args_that_cannot_be_written_are_left_out_of_a_request() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    made = asked(0, "m#1", Request("r1", Operation.INVOKE, "roll", {"deep": deep}))
    assert (made.op, made.args) == ("roll", None)


def test_a_descriptor_survives_the_header() -> None:
    document = {
        **DESCRIPTOR,
        "inputs": {"roll": {"type": "object", "default": None}},
        "transport": {"type": "stdio", "command": ["dice"], "protocol": "narratoria"},
        "supervision": {"restart_on": [3, "SIGSEGV"], "timeouts": {"silence_s": None}},
    }
    before = parse_descriptor(json.dumps(document).encode(), "/modules/dice.json")
    header = Header(
        transcript=1, module="dice", protocol="narratoria", lifecycle=Lifecycle.PER_INVOCATION,
        descriptor=descriptor_document(before), recorded="", stdiod="", source=before.source,
    )  # fmt: skip
    after = descriptor_of(header, "t.jsonl")
    assert msgspec.structs.replace(after, digest=before.digest) == before


def test_a_bad_descriptor_is_named_by_its_place() -> None:
    bad = {**HEADER, "descriptor": {**DESCRIPTOR, "kind": "toll", "name": 3}}
    header = read_transcript(lines(bad), "t.jsonl").header
    with pytest.raises(TranscriptError, match=r"^t.jsonl: line 1: /descriptor/kind: "):
        descriptor_of(header, "t.jsonl")
