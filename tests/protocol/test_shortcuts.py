"""What only the inside shows: the windows that a line is looked through, and what is not done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import json_line, weight
from protocol.framing import LineSplitter
from protocol.json_line import Fault
from protocol.weight import LONG_BYTES, ValueCount
from tests.protocol.test_events import SCHEMA, documents, encode, fast, mutations, said, slow
from tests.protocol.test_weight import json_values, plain_count


@contextmanager
def taken_for_dense() -> Iterator[None]:
    """Have values with a comma be left bytes, within this block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_line, "SMALL_BYTES", 0)
        patch.setattr(json_line, "BYTES_PER_VALUE", 1 << 20)
        yield


@given(documents(), st.booleans())
def test_every_event_of_the_specification_is_read_with_its_values_left_bytes(
    document: dict[str, Any], ascii_only: bool
) -> None:
    line = encode(document, ascii_only=ascii_only)
    with taken_for_dense():
        event = fast(line)
    assert event is not None
    assert said(slow(line)) == said(event)
    assert SCHEMA.is_valid(document)


@given(mutations())
def test_the_paths_and_the_schema_agree_with_values_left_bytes(document: dict[str, Any]) -> None:
    line = encode(document)
    valid = SCHEMA.is_valid(document)
    with taken_for_dense():
        assert (fast(line) is not None) is valid
    assert isinstance(slow(line), Fault) is not valid


@given(json_values, st.lists(st.integers(0, 200)), st.integers(1, 40))
def test_the_count_is_the_same_however_the_line_is_cut(
    value: Any, cuts: list[int], window: int
) -> None:
    line = json.dumps(value, ensure_ascii=False).encode()
    count = ValueCount()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight, "_WINDOW_BYTES", window)
        at = 0
        for cut in (*sorted(cuts), len(line)):
            count.feed(line[at:cut])
            at = max(at, cut)
    assert count.values == plain_count(line)


@pytest.mark.fault(29)
def test_a_line_is_counted_while_it_comes_and_never_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed: list[int] = []
    feed = ValueCount.feed

    def counted(self: ValueCount, piece: bytes | memoryview) -> int:
        fed.append(len(piece))
        return feed(self, piece)

    monkeypatch.setattr(ValueCount, "feed", counted)
    splitter = LineSplitter(8 << 20)
    for _ in range(64):
        assert splitter.feed(b"x" * (1 << 16)) == []
    (line,) = splitter.feed(b"\n")
    assert isinstance(line, bytes)
    assert max(fed) <= LONG_BYTES + (1 << 16)  # the first look
    assert sum(fed) == len(line)
