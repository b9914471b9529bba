from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, Reason
from protocol.framing import EXCERPT_BYTES, Overlong
from protocol.json_line import (
    Fault,
    excerpt,
    is_readable,
    is_utf8,
    overlong_fault,
    passes_unread,
    read_object,
    shown_id,
)

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


def test_a_line_of_too_many_bytes_or_values_is_told_apart_with_its_bound_and_beginning() -> None:
    dropped = Overlong(1024, b"x" * EXCERPT_BYTES)
    assert overlong_fault(dropped) == Fault(
        Reason.LINE_TOO_LONG,
        "a line is longer than 1024 bytes (limits.line_bytes) and was dropped",
        "x" * EXCERPT_BYTES,
    )
    assert overlong_fault(dropped, "").message == "a line is longer than 1024 bytes and was dropped"
    assert overlong_fault(Overlong(9, b"[[", "values")) == Fault(
        Reason.LINE_TOO_LONG,
        "a line holds more than 9 values and was dropped; send it in several lines",
        "[[",
    )


def test_an_excerpt_has_200_bytes_and_an_ellipsis_for_the_rest() -> None:
    assert excerpt(b"x" * 200) == "x" * 200
    assert excerpt(b"x" * 201) == "x" * 200 + "…"
    assert excerpt(b"\x1b" + b"x" * 200) == "\ufffd" + "x" * 199 + "…"


def test_a_number_is_passed_unread_only_if_it_surely_fits_in_a_double() -> None:
    for fits in (b"1e99", b"[1E+10,-1.5]", b"9" * 199, b"9" * 199 + b"e99"):
        assert passes_unread(fits)
        assert is_readable(fits)
    for unsure in (b"1e100", b"1E+100", b"9" * 200, b'"3e500"'):
        assert not passes_unread(unsure)
    for too_large in (b"1e309", b"[1E+400]"):
        assert not is_readable(too_large)


@pytest.mark.parametrize("size", [512, 513, 4096, 5000, 10_000])
def test_a_value_is_readable_or_not_whatever_its_length(size: int) -> None:
    dense = b"[" + b"1," * (size // 2)
    assert is_readable(dense + b"1]")
    assert not is_readable(dense + b"1e400]")
    assert not is_readable(b"[" + b" " * size + b"1e400]")


def test_the_id_of_an_unreadable_line_is_read_up_to_128_characters() -> None:
    assert shown_id(b'{"requestId" : "%b"' % (b"r" * 128)) == "r" * 128
    assert shown_id(b'{"requestId":"%b"' % (b"r" * 129)) is None
    assert shown_id(b'{"requestId":""') is None


WHERE: dict[bytes, str] = {
    b'{"a":{"b":[0,1e999]}}': '`1e999` in "a.b.1"',
    b'{"a":{"b":{"c":{"d":1e999}}}}': '`1e999` in "a.b.c.d"',
    b'{"a":{"b":{"c":{"d":[1e999]}}}}': ' in "a.b.c.d"',
    b"1e999": "`1e999`",
    b'{"%b":1e999}' % (b"k" * 80): '`1e999` in "' + "k" * 80 + '"',
    b'{"%b":1e999}' % (b"k" * 81): '`1e999` in "' + "k" * 79 + '…"',
    b'{"a":1%be999}' % (b"0" * 15): '`1000000000000000e999` in "a"',
    b'{"a":1%be999}' % (b"0" * 16): '`10000000000000000e99…` in "a"',
    b'{"a":-1e999}': '`-1e999` in "a"',
    b'{"a":1e999%b}' % (b" " * (65_536 - 11)): '`1e999` in "a"',
    b'{"a":1e999%b}' % (b" " * (65_537 - 11)): "",
}


@pytest.mark.parametrize(("line", "where"), WHERE.items(), ids=lambda one: repr(one)[:40])
def test_a_number_that_is_too_large_is_shown_where_it_stands(line: bytes, where: str) -> None:
    fault = read_object(line)
    assert isinstance(fault, Fault)
    words = "the line holds a number that is too large to be kept exactly"
    colon = ": " if where.startswith("`") else ""
    assert fault.message == f"{words}{colon}{where}"


NO_OBJECTS = {
    b"[]": "is a JSON array, it must be a JSON object",
    b'"x"': "is a JSON string, it must be a JSON object",
    b"1": "is a JSON number, it must be a JSON object",
    b"1.5": "is a JSON number, it must be a JSON object",
    b"true": "is a JSON boolean, it must be a JSON object",
    b"null": "is JSON null, it must be a JSON object",
    b"\xff\xfe{\0": "is not UTF-8: it seems to be UTF-16; encode what is printed as UTF-8",
    b"{\0}\0": "is not UTF-8: it seems to be UTF-16; encode what is printed as UTF-8",
    b'{"\xfc"': "is not UTF-8: byte 0xfc at position 2; encode what is printed as UTF-8",
    b'{"a":"\\udc00"}': "holds half of a surrogate pair, such as \\ud800, which is no character",
    b"[" * 100_000: "holds JSON that is nested too deeply",
}


@pytest.mark.parametrize(("line", "words"), NO_OBJECTS.items(), ids=lambda one: repr(one)[:40])
def test_why_a_line_is_no_object_is_told_in_these_words(line: bytes, words: str) -> None:
    fault = read_object(line)
    assert isinstance(fault, Fault)
    assert fault.message == f"the line {words}"


def test_half_of_a_surrogate_pair_is_looked_for_in_lines_of_up_to_128_kib() -> None:
    for size, named in ((131_072, True), (131_073, False)):
        line = b'{"a":"\\ud800' + b"x" * (size - 14) + b'"}'
        assert len(line) == size
        fault = read_object(line)
        assert isinstance(fault, Fault)
        assert ("half of a surrogate pair" in fault.message) is named
