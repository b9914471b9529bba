from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.merge_patch import (
    copied,
    encoded_bytes,
    has_more_members,
    merge_into,
    merged,
    without_nulls,
)
from protocol.weight import is_deeper

# RFC 7396 appendix A, in its order: original, patch, result.
APPENDIX_A: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
_NAMES = st.sampled_from("abcd")
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(_NAMES, VALUES, max_size=4)
STATES = OBJECTS.map(without_nulls)


def has_null_member(value: Any) -> bool:
    """Whether an object that is not inside of an array has a member that is null."""
    return isinstance(value, dict) and any(
        member is None or has_null_member(member) for member in value.values()
    )


def as_the_rfc_writes_it(target: Any, patch: Any) -> Any:
    """The pseudo-code of RFC 7396 section 2, line by line."""
    if isinstance(patch, dict):
        if not isinstance(target, dict):
            target = {}
        for name, value in patch.items():
            if value is None:
                if name in target:
                    del target[name]
            else:
                target[name] = as_the_rfc_writes_it(target.get(name), value)
        return target
    return patch


@pytest.mark.parametrize(("original", "patch", "result"), APPENDIX_A)
def test_each_case_of_appendix_a_gives_its_result(original: Any, patch: Any, result: Any) -> None:
    assert merged(original, patch) == result
    if isinstance(original, dict) and isinstance(patch, dict):
        merge_into(original, patch)
        assert original == result


@given(VALUES, VALUES)
def test_a_merge_does_what_the_pseudo_code_of_the_rfc_does(target: Any, patch: Any) -> None:
    assert merged(target, patch) == as_the_rfc_writes_it(copy.deepcopy(target), patch)


@given(OBJECTS, OBJECTS)
def test_a_merge_in_place_gives_the_same_and_leaves_the_patch_as_it_is(
    target: dict[str, Any], patch: dict[str, Any]
) -> None:
    before, patch_before = copy.deepcopy(target), copy.deepcopy(patch)
    expected = merged(target, patch)
    assert target == before
    merge_into(target, patch)
    assert target == expected
    assert patch == patch_before


@given(OBJECTS)
def test_a_first_state_is_the_patch_of_an_empty_one(value: dict[str, Any]) -> None:
    assert without_nulls(value) == as_the_rfc_writes_it({}, value)


@given(STATES, OBJECTS)
def test_a_patch_that_comes_twice_changes_nothing_more(
    state: dict[str, Any], patch: dict[str, Any]
) -> None:
    once = merged(state, patch)
    assert merged(once, patch) == once


@given(STATES, OBJECTS)
def test_no_null_of_a_patch_becomes_a_member(state: dict[str, Any], patch: dict[str, Any]) -> None:
    assert not has_null_member(merged(state, patch))


@given(STATES, st.lists(VALUES, max_size=4))
def test_an_array_replaces_what_was_there_whole(state: dict[str, Any], array: list[Any]) -> None:
    assert merged(state, {"a": array})["a"] == array


@given(OBJECTS, OBJECTS, OBJECTS)
def test_later_patches_are_not_seen_in_a_copy_nor_in_the_patches_before(
    state: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    first_before = copy.deepcopy(first)
    merge_into(state, first)
    other = copied(state)
    before = copy.deepcopy(other)
    merge_into(state, second)
    assert other == before
    assert first == first_before


@given(STATES, OBJECTS)
def test_a_state_grows_by_no_more_than_the_size_of_the_patch(
    state: dict[str, Any], patch: dict[str, Any]
) -> None:
    grown = encoded_bytes(merged(state, patch)) - encoded_bytes(state)
    assert grown <= encoded_bytes(patch)


def levels(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 0
    return 1 + max(map(levels, value), default=0)


@given(VALUES, st.integers(0, 6))
def test_depth_is_counted_in_objects_and_arrays(value: Any, limit: int) -> None:
    assert is_deeper(value, limit) == (levels(value) > limit)


@given(STATES, OBJECTS)
def test_a_merge_is_no_deeper_than_the_deeper_of_the_two(
    state: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert levels(merged(state, patch)) <= max(levels(state), levels(patch))


def test_bytes_are_those_of_compact_utf_8() -> None:
    assert encoded_bytes({"a": "ü"}) == len('{"a":"ü"}'.encode())
    assert encoded_bytes({"n": 2**70}) == len(msgspec.json.encode({"n": 2**70}))


@pytest.mark.parametrize(
    ("patch", "members"),
    [
        ({}, 0),
        ({"a": 1, "b": None}, 2),
        ({"a": {"b": {"c": 1}}}, 3),
        ({"a": {}, "b": {"c": 1}, "d": {"e": 1, "f": 2}}, 6),
        ({"a": [{"b": 1}, {"c": 1}]}, 1),
    ],
)
def test_the_members_of_all_objects_count_and_those_in_arrays_do_not(
    patch: dict[str, Any], members: int
) -> None:
    assert [has_more_members(patch, most) for most in range(8)] == [
        most < members for most in range(8)
    ]
