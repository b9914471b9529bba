"""A line that is no JSON is read where it is clear what is meant, in bounded time, else not."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.dialects.mcp.odd_lines import mended
from protocol.json_line import MENDED_BYTES, Fault, read_object

HALF, BYTES = "half characters as \\ufffd", "bytes that are no UTF-8 as Windows-1252"
CONTROL, NAN = "control characters as they stand there", "NaN and Infinity as null"

READ: dict[bytes, tuple[Any, list[str]]] = {
    b'{"a":NaN}': ({"a": None}, [NAN]),
    b'{"a":[{"b":-Infinity},Infinity,"NaN -Infinity"]}': (
        {"a": [{"b": None}, None, "NaN -Infinity"]},
        [NAN],
    ),
    b'{"\\ud83d":"\\udc00\\ud83d\\ude00\\\\ud800"}': (
        {"\ufffd": "\ufffd\U0001f600\\ud800"},
        [HALF],
    ),
    b'{"a":"b\tc\x00d\x1b"}': ({"a": "b\tc\0d\x1b"}, [CONTROL]),
    b'{"a\t":1,"b":NaN}': ({"a\t": 1, "b": None}, [CONTROL, NAN]),
    b'\t{"a":"\x80\xe9\x81"}\r': ({"a": "\u20ac\xe9\ufffd"}, [BYTES]),
    b'{"a":"\xc3\xa9 \xe9"}': ({"a": "\xe9 \xe9"}, [BYTES]),
    b'{"a":"\xff\\ud800\t","b":NaN}': (
        {"a": "\xff\ufffd\t", "b": None},
        [HALF, BYTES, CONTROL, NAN],
    ),
    b'[{"id":1},NaN]': ([{"id": 1}, None], [NAN]),
    b'{"id":1,"id":2,"a":NaN}': ({"id": 2, "a": None}, [NAN]),
    b'{"a":123456789012345678901234567890,"b":NaN}': (
        {"a": 123456789012345678901234567890, "b": None},
        [NAN],
    ),
}

UNREAD = [
    b"{'a': 1}",
    b"{a: 1}",
    b'{"a":1,}',
    b'{"a":nan}',
    b'{"a":+Infinity}',
    b'{"a":True}',
    b'{"a":"b',
    b'{"a":1}{"b":2}',
    b'{"a":1e999,"b":NaN}',
    b'{"a":NaN,"b":' + b"1" * 5000 + b"}",
    b'{"a":' + b"[" * 100_000,
    '{"a":NaN}'.encode("utf-16"),
    b'{"a":NaN,"b":"' + b"x" * MENDED_BYTES + b'"}',
    b"",
]


@pytest.mark.parametrize(("line", "found"), READ.items(), ids=lambda one: repr(one)[:40])
def test_what_is_clear_is_read_and_said(line: bytes, found: tuple[Any, list[str]]) -> None:
    assert isinstance(read_object(line), Fault)
    assert mended(line) == found


@pytest.mark.parametrize("line", UNREAD, ids=lambda one: repr(one)[:40])
def test_what_is_not_is_left_alone(line: bytes) -> None:
    assert mended(line) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def without_nan(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list():
            return [without_nan(one) for one in value]
        case dict():
            return {key: without_nan(one) for key, one in value.items()}
    return value


@given(values)
def test_python_prints_nothing_that_is_not_read(value: Any) -> None:
    found = mended(json.dumps(value, ensure_ascii=False).encode())
    assert found is not None
    assert found[0] == without_nan(value)
    assert found[1] in ([], [NAN])


@given(st.binary(max_size=60) | st.text('{}[]":,-1e9aN \\ud8\t\x00\xff').map(str.encode))
def test_any_bytes_are_read_or_not_and_raise_nothing(line: bytes) -> None:
    found = mended(line)
    assert found is None or found[1] == [] or isinstance(read_object(line), Fault)
