"""What holds for any bytes and any document: words instead of crashes, and one verdict."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.descriptor.loading import DescriptorError
from tests.protocol.descriptor_documents import (
    COMPLETE,
    GATE,
    SMALL,
    VALUES,
    encoded,
    refusal,
    spoilt_documents,
    verdict,
)
from tests.schemas.local_registry import validator


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | VALUES.map(encoded))
@example(b"{" * 5000)
def test_any_bytes_are_refused_in_words_and_nothing_else_is_raised(data: bytes) -> None:
    error = refusal(data)
    assert error.problems
    assert str(error).isprintable() or len(error.problems) > 1


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_bytes_never_raise_anything_but_a_descriptor_error(data: st.DataObject) -> None:
    whole = bytearray(encoded(data.draw(st.sampled_from([SMALL, COMPLETE, GATE]))))
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(whole) - 1))
        whole[index : index + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    result = verdict(bytes(whole))
    if isinstance(result, DescriptorError):
        assert result.problems
        assert list(result.problems) == sorted(result.problems)
        assert all(line.isprintable() for line in str(result).splitlines())
    else:
        msgspec.json.encode(result)


# What a schema cannot say, and the loader must therefore say alone.
_LOADER_ALONE = (
    "a service is not a process of this machine",
    "it is not for a descriptor to say",
    "none can wait for itself",
    "such an end is either restarted or never",
    "must be at most max",
    "has as many as its concurrency says",
    "nothing is fetched",
    "leads to n",
    "does not lead to a schema",
    "not a regular expression",
    "not a URI",
    "must be left out inside of a schema",
)


@settings(max_examples=150, deadline=None)
@given(spoilt_documents())
def test_the_loader_and_the_schema_agree_on_every_document(document: dict[str, Any]) -> None:
    result = verdict(encoded(document))
    told = result.problems if isinstance(result, DescriptorError) else ()
    told_by_schema_too = [
        problem for problem in told if not any(words in problem.message for words in _LOADER_ALONE)
    ]
    assert validator("stdiod-descriptor.v1").is_valid(document) is not bool(told_by_schema_too)
