from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, Reason
from protocol.framing import EXCERPT_BYTES, Overlong
from protocol.json_line import Fault, excerpt, is_utf8, overlong_fault, read_object

DEEP = 100_000

BAD = {
    "bytes that are no UTF-8": (b'{"a":"\xff"}', Reason.INVALID_UTF8),
    "UTF-8 cut off": (b'{"a":"\xc3"}', Reason.INVALID_UTF8),
    "an overlong encoding": (b'{"a":"\xc0\xaf"}', Reason.INVALID_UTF8),
    "a surrogate as bytes": (b'{"a":"\xed\xa0\x80"}', Reason.INVALID_UTF8),
    "UTF-16": ('{"a":1}'.encode("utf-16"), Reason.INVALID_UTF8),
    "a byte order mark inside the stream": (b"\xef\xbb\xbf{}", Reason.MALFORMED_JSON),
    "a lone surrogate": (b'{"a":"\\ud800"}', Reason.MALFORMED_JSON),
    "a lone surrogate in a key": (b'{"\\udc00":1}', Reason.MALFORMED_JSON),
    "NUL before the object": (b"\0{}", Reason.MALFORMED_JSON),
    "NUL in a string": (b'{"a":"\0"}', Reason.MALFORMED_JSON),
    "a carriage return in a string": (b'{"a":"\r"}', Reason.MALFORMED_JSON),
    "NaN": (b'{"a":NaN}', Reason.MALFORMED_JSON),
    "Infinity": (b'{"a":-Infinity}', Reason.MALFORMED_JSON),
    "a number no double can hold": (b'{"a":1e999}', Reason.MALFORMED_JSON),
    "an integer of 5000 digits": (b'{"a":' + b"9" * 5000 + b"}", Reason.MALFORMED_JSON),
    "objects 100,000 deep": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, Reason.MALFORMED_JSON),
    "arrays 100,000 deep": (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", Reason.MALFORMED_JSON),
    "brackets that never close": (b"[" * DEEP, Reason.MALFORMED_JSON),
    "a banner": (b"Starting up...", Reason.MALFORMED_JSON),
    "two objects on a line": (b"{} {}", Reason.MALFORMED_JSON),
    "an object cut off": (b'{"a":', Reason.MALFORMED_JSON),
    "single quotes": (b"{'a':1}", Reason.MALFORMED_JSON),
    "a trailing comma": (b'{"a":1,}', Reason.MALFORMED_JSON),
    "an array": (b"[{}]", Reason.NOT_OBJECT),
    "a string": (b'"done"', Reason.NOT_OBJECT),
    "a number": (b"42", Reason.NOT_OBJECT),
    "a fraction": (b"4.2", Reason.NOT_OBJECT),
    "a boolean": (b"true", Reason.NOT_OBJECT),
    "null": (b"null", Reason.NOT_OBJECT),
}


@pytest.mark.fault(13)
@pytest.mark.clause("N001-2.3-a")
@pytest.mark.clause("N001-2.3-b")
@pytest.mark.parametrize(("line", "reason"), BAD.values(), ids=BAD)
def test_a_line_that_is_no_object_is_refused_by_name(line: bytes, reason: Reason) -> None:
    fault = read_object(line)
    assert isinstance(fault, Fault)
    assert fault.reason is reason
    assert len(fault.excerpt) <= EXCERPT_BYTES + 1


def test_integers_of_any_usual_size_stay_exact() -> None:
    big = 2**64 + 1
    assert read_object(b'{"a":%d,"b":-%d}' % (big, big)) == {"a": big, "b": -big}


def test_of_duplicate_keys_the_last_counts() -> None:
    assert read_object(b'{"a":1,"a":2}') == {"a": 2}


def test_white_space_around_the_object_is_allowed() -> None:
    assert read_object(b' \t{"a": 1} ') == {"a": 1}


def test_escaped_pairs_of_surrogates_are_a_character() -> None:
    assert read_object(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_a_fault_and_nothing_is_raised(line: bytes) -> None:
    assert isinstance(read_object(line), dict | Fault)


@given(st.binary(max_size=40))
def test_utf8_is_told_as_python_tells_it(line: bytes) -> None:
    assert is_utf8(line) is (line.decode(errors="ignore").encode() == line)


@given(st.binary(max_size=EXCERPT_BYTES * 2))
def test_an_excerpt_can_be_printed_anywhere(line: bytes) -> None:
    shown = excerpt(line)
    assert shown.isprintable()
    assert len(shown) <= EXCERPT_BYTES + 1
    assert shown.endswith("…") or len(line) <= EXCERPT_BYTES


def test_a_fault_becomes_a_failure_with_the_excerpt_as_evidence() -> None:
    fault = read_object(b"oops")
    assert isinstance(fault, Fault)
    failure = fault.failure(pid=7)
    assert failure.code == Code.INTERNAL
    assert failure.details == {
        "origin": "host",
        "reason": "malformed_json",
        "line_excerpt": "oops",
        "pid": 7,
    }


def test_a_dropped_line_is_described_with_its_limit() -> None:
    fault = overlong_fault(Overlong(1024, b"xxx"))
    assert fault.reason is Reason.LINE_TOO_LONG
    assert "1024" in fault.message
    assert fault.excerpt.startswith("xxx")
