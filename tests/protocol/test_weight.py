from __future__ import annotations

import gc
import json
import re
import sys
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import weight
from protocol.connection import Answered, Events, Request, Violated
from protocol.dialects import DIALECTS
from protocol.errors import Failure, Reason, Success
from protocol.framing import DECODED_FACTOR
from protocol.replies import Operation
from protocol.weight import LONG_BYTES, is_heavier
from tests.protocol.wire import (
    connected,
    descriptor,
    module,
)

LINE_BYTES = 1 << 20

DENSE = [b"{}", b"[]", b"[[]]", b'{"a":1}', b'{"a":{}}', b"{},[]", b'[""]', b'[{"":[]}]']
LEGITIMATE = [b"1", b"12345", b"-1.5e10", b"null", b"true", b'"a sentence of some words"']

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(alphabet='{["\\:,]}a\u20ac', max_size=9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='"\\:{a', max_size=4), inner),
)


def array(item: bytes, size: int) -> bytes:
    return b"[" + b",".join([item] * ((size - 64) // (len(item) + 1))) + b"]"


def answer(dialect: str, result: bytes) -> bytes:
    head = b'"version":"0","type":"done",' if dialect == "narratoria" else b""
    return b"{" + head + b'"ok":true,"result":' + result + b"}\n"


def reply(dialect: str, line: bytes) -> tuple[Events, int]:
    """Return what a dialect makes of a line, and the most memory it took, beside the line."""
    connection = connected(dialect, descriptor(line_bytes=LINE_BYTES, stdout="strict"))
    connection.ask(Request("r1", Operation.INVOKE, "run"))
    tracemalloc.start()
    try:
        received = connection.receive_data(line)
        return received, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def plain_weight(line: bytes) -> int:
    strings = re.findall(rb'"(?:[^"\\]|\\.)*"', line)
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line)
    fields = outside.count(b":")
    return (
        outside.count(b"{") * weight.OBJECT_BYTES
        + outside.count(b"[") * weight.ARRAY_BYTES
        + fields * weight.FIELD_BYTES
        + (len(strings) - fields) * weight.STRING_BYTES
        + max(outside.count(b",") - fields, 0) * weight.PLACE_BYTES
    )


@given(json_values, st.integers(1, 40))
def test_a_line_weighs_the_same_however_it_is_cut(value: Any, window: int) -> None:
    line = json.dumps(value, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight, "_WINDOW_BYTES", window)
        whole = plain_weight(line)
        assert not is_heavier(line, whole)
        assert is_heavier(line, whole - 1)


def decoded_bytes(line: bytes) -> int:
    """Return how much memory a line becomes."""
    tracemalloc.start()
    try:
        value = msgspec.json.decode(line)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert value
    return size


RECORD = b'{"id":12345,"name":"abcdef","value":1.5}'


@pytest.mark.parametrize("item", [*DENSE, b'"ab"', b"0", b"-1", b"null", b"0,0,0,[]", RECORD])
def test_what_a_line_becomes_is_no_more_than_twice_its_weight(item: bytes) -> None:
    line = array(item, LINE_BYTES // 16)
    assert is_heavier(line, decoded_bytes(line) // 2)


@pytest.mark.parametrize("item", [b"-9", b"257", b"1e1", b"12345", b"-1.5e10"])
def test_no_array_of_numbers_becomes_more_than_fourteen_times_its_size(item: bytes) -> None:
    line = array(item, LINE_BYTES // 16)
    assert decoded_bytes(line) < len(line) * 14


def test_a_record_weighs_what_its_fields_do() -> None:
    most = weight.OBJECT_BYTES + 3 * weight.FIELD_BYTES + weight.STRING_BYTES
    assert not is_heavier(RECORD, most)
    assert is_heavier(RECORD, most - 1)


@pytest.mark.parametrize("item", DENSE)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_of_a_line_of_too_many_values_none_is_made(dialect: str, item: bytes) -> None:
    received, most_bytes = reply(dialect, answer(dialect, array(item, LINE_BYTES)))
    [refused] = received
    assert isinstance(refused, Answered | Violated)
    fault = refused.fault
    assert fault is not None
    assert fault.reason is Reason.LINE_TOO_LONG
    assert str(LINE_BYTES * DECODED_FACTOR) in fault.message
    assert most_bytes < LINE_BYTES * 4


@pytest.mark.parametrize("item", LEGITIMATE)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_line_of_numbers_or_words_may_be_as_long_as_the_limit(dialect: str, item: bytes) -> None:
    result = array(item, LINE_BYTES)
    received, most_bytes = reply(dialect, answer(dialect, result))
    assert received == [Answered("r1", Success(json.loads(result)))]
    assert most_bytes < LINE_BYTES * (DECODED_FACTOR + 4)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_json_within_a_string_is_a_string(dialect: str) -> None:
    text = '[{"a":[]},"\\\\"]' * (LINE_BYTES // 26)
    received, _ = reply(dialect, answer(dialect, json.dumps(text).encode()))
    assert received == [Answered("r1", Success(text))]


def test_a_dense_line_without_its_newline_is_refused_at_the_end_too() -> None:
    connection = module(descriptor(line_bytes=LINE_BYTES))
    connection.ask(Request("r1", Operation.INVOKE, "run"))
    line = answer("module", array(b"{}", LINE_BYTES)).rstrip(b"\n")
    assert connection.receive_data(line) == []
    [refused] = connection.receive_eof()
    assert isinstance(refused, Answered)
    assert isinstance(refused.outcome, Failure)
    assert refused.outcome.details["reason"] == Reason.LINE_TOO_LONG


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_collector_does_not_look_while_a_long_line_is_decoded(dialect: str) -> None:
    line = answer(dialect, array(b'[],"a long enough string for the weight"', LONG_BYTES * 2))
    connection = connected(dialect, descriptor(line_bytes=LINE_BYTES))
    connection.ask(Request("r1", Operation.INVOKE, "run"))
    rounds: list[str] = []

    def count(phase: str, _: dict[str, int]) -> None:
        rounds.append(phase)

    gc.callbacks.append(count)
    try:
        msgspec.json.decode(line)
        # From 3.12 on the collector looks between two instructions of Python only.
        assert sys.version_info >= (3, 12) or len(rounds) > 16
        gc.collect()
        rounds.clear()
        received = connection.receive_data(line)
        # What is made outside of the decoding may have it look once or twice.
        assert len(rounds) <= 4
    finally:
        gc.callbacks.remove(count)
    assert len(received) == 1
    assert gc.isenabled()
