from __future__ import annotations

import gc
import json
import re
import sys
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.connection import Answered, Events, Request, Violated
from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Reason, Success
from protocol.framing import EXCERPT_BYTES, LineSplitter, Overlong
from protocol.json_line import MOST_HALVES, without_lone_surrogates
from protocol.replies import Operation
from protocol.weight import LONG_BYTES, MOST_VALUES
from tests.protocol.wire import (
    connected,
    descriptor,
    module,
)

LINE_BYTES = 1 << 20

ANSWERS_IN_A_LINE = [name for name in DIALECTS if name != "exec"]
"""The other one's answer is all that was printed, told at the end (test_exec_dialect)."""

DENSE = [b"{}", b"[]", b"[[]]", b'{"a":1}', b'{"a":{}}', b"{},[]", b'[""]', b'[{"":[]}]']
LEGITIMATE = [b"1", b"12345", b"-1.5e10", b"null", b"true", b'"a sentence of some words"']

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(alphabet='{["\\:,]}a\u20ac', max_size=9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='"\\:{a', max_size=4), inner),
)


def array(item: bytes, size: int) -> bytes:
    return b"[" + b",".join([item] * ((size - 64) // (len(item) + 1))) + b"]"


def answer(dialect: str, result: bytes) -> bytes:
    if dialect == "mcp":
        head = b'{"jsonrpc":"2.0","id":1,"result":{"structuredContent":'
        return head + result + b"}}\n"
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


def plain_count(line: bytes) -> int:
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line)
    slow = 2 * len(re.findall(rb"\d{20}", outside)) + line.count(b"\\") // 32
    return sum(map(outside.count, (b",", b"[", b"{"))) + slow


@pytest.mark.fault(29)
@given(
    # No limit is where a line of four bytes for each value has too many: both would be right.
    st.sampled_from(DENSE),
    st.integers(1, 1 << 19),
    st.sampled_from([9 << 16, 1 << 20, 1 << 22]),
)
@settings(max_examples=20, deadline=None)
def test_too_many_values_are_refused_in_the_same_way_however_the_line_is_cut(
    item: bytes, cut: int, limit: int
) -> None:
    line = array(item, LINE_BYTES) + b"\n"
    whole = LineSplitter(limit).feed(line)
    splitter = LineSplitter(limit)
    pieces = [line[at : at + cut] for at in range(0, len(line), cut)]
    assert [one for piece in pieces for one in splitter.feed(piece)] == whole
    assert whole == [Overlong(MOST_VALUES, line[:EXCERPT_BYTES], "values")]
    assert splitter.feed(b"next\n") == [b"next"]


@pytest.mark.fault(29)
@pytest.mark.parametrize("item", DENSE)
@pytest.mark.parametrize("dialect", ANSWERS_IN_A_LINE)
def test_of_a_line_of_too_many_values_none_is_made(dialect: str, item: bytes) -> None:
    received, most_bytes = reply(dialect, answer(dialect, array(item, LINE_BYTES)))
    [refused] = received
    assert isinstance(refused, Answered | Violated)
    fault = refused.fault
    assert fault is not None
    assert fault.reason is Reason.LINE_TOO_LONG
    assert f"more than {MOST_VALUES} values" in fault.message
    # It takes up to 3.9 times as much to count them, and from 14 to 19 to make them.
    assert most_bytes < LINE_BYTES * 8


@pytest.mark.parametrize("item", LEGITIMATE)
@pytest.mark.parametrize("dialect", ANSWERS_IN_A_LINE)
def test_a_line_of_few_values_may_be_as_long_as_the_limit(dialect: str, item: bytes) -> None:
    result = array(item, min(LINE_BYTES, MOST_VALUES * (len(item) + 1)))
    received, most_bytes = reply(dialect, answer(dialect, result))
    assert received == [Answered("r1", Success(json.loads(result)))]
    assert most_bytes < LINE_BYTES * 12


@pytest.mark.parametrize("dialect", ANSWERS_IN_A_LINE)
def test_json_within_a_string_is_a_string(dialect: str) -> None:
    text = '[{"a":[]},"\\\\"]' * (LINE_BYTES // 26)
    received, _ = reply(dialect, answer(dialect, json.dumps(text).encode()))
    assert received == [Answered("r1", Success(text))]


def test_a_dense_line_without_its_newline_is_refused_before_its_end() -> None:
    connection = module(descriptor(line_bytes=LINE_BYTES))
    connection.ask(Request("r1", Operation.INVOKE, "run"))
    line = answer("module", array(b"{}", LINE_BYTES)).rstrip(b"\n")
    [refused] = connection.receive_data(line)
    assert not connection.receive_eof()
    assert isinstance(refused, Answered)
    assert isinstance(refused.outcome, Failure)
    assert refused.outcome.details["reason"] == Reason.LINE_TOO_LONG


@pytest.mark.parametrize("dialect", ANSWERS_IN_A_LINE)
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


SLOW = {
    "integers of 4300 digits": array(b"7" * 4300, 3 << 20),
    "floats of 700 digits": array(b"1." + b"7" * 700 + b"e-300", 3 << 20),
    "integers of 40 digits": array(b"7" * 40, 3 << 20),
    "escapes": b'"' + b"\\n" * (5 << 20) + b'"',
    "halves of characters": b'"' + b"\\ud800" * (5 << 20) + b'"',
}


@pytest.mark.fault(39)
@pytest.mark.parametrize("value", SLOW.values(), ids=SLOW)
@pytest.mark.parametrize("dialect", ANSWERS_IN_A_LINE)
def test_what_is_short_to_write_and_slow_to_build_is_not_built(dialect: str, value: bytes) -> None:
    connection = connected(dialect, descriptor(line_bytes=64 << 20, stdout="strict"))
    connection.ask(Request("r1", Operation.INVOKE, "run"))
    [refused] = connection.receive_data(answer(dialect, value))
    assert isinstance(refused, Answered | Violated)
    assert refused.fault is not None
    assert refused.fault.reason is Reason.LINE_TOO_LONG
    words = "values (ten digits of a long number count as one, and so do 32 escapes)"
    assert f"more than {MOST_VALUES} {words}" in refused.fault.message


@pytest.mark.parametrize(
    "item", [b"1790000000123", b"0.12345678901234567", b"18446744073709551615"]
)
def test_numbers_of_up_to_twenty_digits_are_no_slow_ones(item: bytes) -> None:
    whole = array(item[:19], LINE_BYTES)
    assert LineSplitter(LINE_BYTES).feed(whole + b"\n") == [whole]


@pytest.mark.fault(39)
def test_a_line_of_many_halves_of_characters_is_not_mended() -> None:
    def line(count: int) -> bytes:
        return b'{"a":"' + b"\\ud800" * count + b'"}'

    assert without_lone_surrogates(line(MOST_HALVES)) == line(MOST_HALVES).replace(
        b"\\ud800", b"\\ufffd"
    )
    assert without_lone_surrogates(line(MOST_HALVES + 1)) is None
