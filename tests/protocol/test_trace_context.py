"""`traceparent` by the rules of W3C Trace Context."""

from __future__ import annotations

import pytest

from protocol.trace_context import EXAMPLE, is_traceparent, traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "value",
    [
        3,
        None,
        "",
        TRACE,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_none_is_not_taken(value: object) -> None:
    assert not is_traceparent(value)
    assert is_traceparent(EXAMPLE)


def test_spans_of_one_trace_differ_in_their_parents_only() -> None:
    first, child, other = (
        traceparent("a-1", "a-1", None),
        traceparent("a-2", "a-1", None),
        traceparent("a-3", "a-3", None),
    )
    assert all(map(is_traceparent, (first, child, other)))
    assert first[:35] == child[:35] != other[:35]
    assert first[36:52] != child[36:52]


def test_the_trace_of_a_caller_goes_on_with_its_flags() -> None:
    found = traceparent("a-1", "a-1", f"00-{TRACE}-{SPAN}-00")
    assert is_traceparent(found)
    assert (found[:36], found[-2:]) == (f"00-{TRACE}-", "00")
    assert SPAN not in found
