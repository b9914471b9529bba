"""A line that is no JSON is told what is wrong with it, where, and in words of no decoder's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Reason
from protocol.json_line import Fault, read_object

WORDS: dict[bytes, str] = {
    b"got a line": "the line is not JSON",
    b"}": "the line is not JSON",
    b"True": "`True` is not a JSON value",
    b"None": "the line is not JSON: `None` is not a JSON value",
    b"undefined": "`undefined` is not a JSON value",
    b'{"a":NaN}': "`NaN` at byte 5 is not a JSON value",
    b"[object Object]": "`object` at byte 1 is not a JSON value",
    b'{"a":1}\x00': "`\\x00` follows its JSON",
    b'{"a":1},': "`,` follows its JSON",
    b'{"a":1}{"b":2}': '`{"b":2}` follows its JSON',
    b'{"a":"x\ty"}': "it has the control character 0x09 at byte 7, not written as an escape",
    b"\x1fgreen": "it has the control character 0x1f, not written as an escape",
    b"\x1b[32mgreen": "it has the control character 0x1b, not written as an escape",
    b'data: {"a":1}': "`data:` stands before its JSON",
    b"{'a': 1}": "`'a': 1}` at byte 1 is not a key in double quotes",
    b"{ a: 1 }": "`a: 1 }` at byte 2 is not a key in double quotes",
    b"{\"a\":'b'}": "`'b'}` at byte 5 is not in double quotes",
    b'{"a":1,}': "trailing comma in object at byte 7, where `}` stands",
    b"[": "it ends in the middle (printed over several lines? it has to be one)",
    b"null": "the line is JSON null, it must be a JSON object",
    b'{"a":{"b":[1,1e999]}}': 'too large to be kept exactly: `1e999` in "a.b.1"',
    b"-1e999": "too large to be kept exactly: `-1e999`",
    b'{"a":[1e999,': "the line holds a number that is too large to be kept exactly",
    b'\xef\xbb\xbf{"a":1}': "the line begins with a byte order mark (BOM), which JSON does not",
    '{"a":1}'.encode("utf-16"): "the line is not UTF-8: it seems to be UTF-16",
    '{"a":1}'.encode("utf-16-le"): "the line is not UTF-8: it seems to be UTF-16",
    '{"a":1}'.encode("utf-16-be"): "the line is not UTF-8: it seems to be UTF-16",
}


@pytest.mark.parametrize(("line", "words"), WORDS.items(), ids=map(repr, WORDS))
def test_what_is_wrong_is_said_with_what_stands_there(line: bytes, words: str) -> None:
    fault = read_object(line)
    assert isinstance(fault, Fault)
    assert words in fault.message


def test_plain_text_is_told_that_it_is_no_json_and_nothing_else() -> None:
    for line in (b"hello", b"got a line", b"}", "grüße".encode(), b"#!", b"2026-01-01 INFO up"):
        fault = read_object(line)
        assert isinstance(fault, Fault)
        assert fault.message == "the line is not JSON", line


@given(st.binary(min_size=1, max_size=60) | st.text('{}[]":,-+1e9aN \\\t\x00').map(str.encode))
def test_any_line_has_words_of_one_printable_line(line: bytes) -> None:
    fault = read_object(line)
    if isinstance(fault, Fault):
        assert fault.message.isprintable()
        assert fault.message.startswith("the line ")
        assert "$" not in fault.message.split("`")[0]


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":' * 400 + b"1e999" + b"}" * 400,
        b'{"a":[' + b"1," * 4_000_000 + b"1e999]}",
        b"x" * 8_000_000 + b'{"a":1}',
        b'{"' * 1_000_000,
    ],
    ids=["deep", "long", "text", "braces"],
)
def test_a_line_of_any_size_is_told_in_short_words(line: bytes) -> None:
    fault = read_object(line)
    assert isinstance(fault, Fault)
    assert fault.reason is Reason.MALFORMED_JSON
    assert len(fault.message) < MESSAGE_CHARS


MESSAGE_CHARS = 200
