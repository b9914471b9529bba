from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.weight import is_deeper

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


@given(values, st.integers(0, 6))
def test_deeper_is_what_has_more_levels(value: Any, levels: int) -> None:
    assert is_deeper(value, levels) is (depth(value) > levels)


@given(values, st.integers(0, 6))
def test_what_it_was_read_from_changes_nothing(value: Any, levels: int) -> None:
    text = msgspec.json.encode(value)
    assert is_deeper(value, levels, text) is is_deeper(value, levels)


@pytest.mark.parametrize("empty", [{}, []])
def test_what_is_empty_counts_as_a_level(empty: Any) -> None:
    assert is_deeper([[empty]], 2)
    assert not is_deeper([[empty]], 3)
