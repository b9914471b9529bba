"""Which args are accepted without another process: how much, and by which schemas."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.args_schema import ArgsValidator
from protocol.plain_args import has_few_parts, is_plain


def accepts(schema: Any, args: Any) -> bool:
    return ArgsValidator({"op": schema}).accepts("op", args)


INTEGER = {"type": "integer"}
EITHER = {"anyOf": [INTEGER, {"type": "string"}]}
DEEPER = {"anyOf": [EITHER, {"type": "null"}]}


@pytest.mark.parametrize(
    ("each", "most"),
    [
        ({"items": INTEGER}, 5000),
        ({"items": EITHER}, 1666),
        ({"items": DEEPER}, 1000),
    ],
    ids=str,
)
def test_an_array_has_5000_values_once_for_each_schema_that_is_asked(
    each: dict[str, Any], most: int
) -> None:
    assert accepts(each, [1] * most)
    assert not accepts(each, [1] * (most + 1))


@pytest.mark.parametrize(
    ("each", "most"),
    [
        ({"additionalProperties": INTEGER}, 2500),
        ({"additionalProperties": EITHER}, 833),
        ({"additionalProperties": INTEGER, "properties": {"0": EITHER}}, 833),
    ],
    ids=str,
)
def test_a_member_of_an_open_object_counts_twice(each: dict[str, Any], most: int) -> None:
    assert accepts(each, {str(number): 1 for number in range(most)})
    assert not accepts(each, {str(number): 1 for number in range(most + 1)})


def test_values_of_several_parts_are_counted_together_and_anew_for_each_check() -> None:
    schema = {"properties": {"a": {"items": INTEGER}, "b": {"items": INTEGER}}}
    validator = ArgsValidator({"op": schema})
    for _ in range(2):
        assert validator.accepts("op", {"a": [1] * 4000, "b": [1] * 1000})
        assert not validator.accepts("op", {"a": [1] * 4000, "b": [1] * 1001})
    narrow = ArgsValidator({"op": schema}, most_values=3)
    assert narrow.accepts("op", {"a": [1, 2], "b": [3]})
    assert not narrow.accepts("op", {"a": [1, 2], "b": [3, 4]})


def test_sixteen_schemas_may_be_asked_of_one_value() -> None:
    for count, plain in ((15, True), (16, False)):
        schema = {"anyOf": [{"const": number} for number in range(count)]}
        assert accepts(schema, 0) is plain
        assert accepts({"properties": {"a": schema}}, {"a": 0}) is plain
        assert accepts({"items": schema}, [0]) is plain
        assert accepts({"additionalProperties": schema}, {"a": 0}) is plain


def test_sixteen_patterns_are_searched_for() -> None:
    for count, plain in ((16, True), (17, False)):
        properties = {str(number): {"pattern": "^a"} for number in range(count)}
        assert accepts({"properties": properties}, {"0": "a"}) is plain


def test_a_schema_has_5000_parts() -> None:
    for count, few in ((4999, True), (5000, False)):
        schema = {"enum": list(range(count))}
        assert has_few_parts(schema) is few
        assert accepts(schema, 0) is few
    assert has_few_parts(True)


ACCEPTED: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"minimum": 3}, [3, 3.5, "x"], [2, 2.9]),
    ({"maximum": 3}, [3, 2.5, "x"], [4, 3.1]),
    ({"exclusiveMinimum": 3}, [4, 3.1, "x"], [3, 2]),
    ({"exclusiveMaximum": 3}, [2, 2.9, "x"], [3, 4]),
    ({"minLength": 2}, ["ab", 1], ["a"]),
    ({"maxLength": 2}, ["ab", 1], ["abc"]),
    ({"minItems": 2}, [[1, 2], 1], [[1]]),
    ({"maxItems": 2}, [[1, 2], 1], [[1, 2, 3]]),
    ({"type": "integer"}, [1], [True, 1.5, "1", None]),
    ({"type": "number"}, [1, 1.5], [True, "1"]),
    ({"type": ["string", "null"]}, ["", None], [1]),
    ({"type": "boolean", "const": True}, [True], [False, 1]),
    ({"type": "integer", "minimum": 1, "maximum": 2}, [1, 2], [0, 3, "1"]),
    ({"enum": [1, "a", None, True]}, [1, "a", None, True], [1.0, False, [], {}]),
    ({"const": "a"}, ["a"], ["b", ["a"]]),
    ({"pattern": "^a"}, ["a", 1], ["b"]),
    ({"required": ["a"]}, [{"a": 1}, 1], [{}, {"b": 1}]),
    ({"properties": {"a": INTEGER}}, [{"a": 1}, {"b": "x", "c": 1}, 1], [{"a": "x"}]),
    (
        {"properties": {"a": INTEGER}, "additionalProperties": False},
        [{"a": 1}, {}],
        [{"a": 1, "b": 1}, {"b": 1}],
    ),
    (EITHER, [1, "a"], [None, 1.5]),
    ({"items": INTEGER}, [[], [1, 2], 1], [[1, "a"]]),
]


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"), ACCEPTED, ids=[str(one) for one, *_ in ACCEPTED]
)
def test_args_are_accepted_if_each_keyword_surely_holds(
    schema: dict[str, Any], valid: list[Any], invalid: list[Any]
) -> None:
    assert is_plain(schema) or "pattern" in schema
    assert [accepts(schema, one) for one in valid] == [True] * len(valid)
    assert [accepts(schema, one) for one in invalid] == [False] * len(invalid)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        1,
        "x",
        [],
        {"type": "strin"},
        {"type": []},
        {"type": ["string", "string"]},
        {"type": ["string", 1]},
        {"properties": []},
        {"properties": {"a": 1}},
        {"required": "a"},
        {"required": ["a", "a"]},
        {"required": [1]},
        {"items": 1},
        {"items": []},
        {"additionalProperties": "x"},
        {"anyOf": []},
        {"anyOf": {}},
        {"anyOf": [1]},
        {"enum": 1},
        {"minimum": True},
        {"minimum": "1"},
        {"minLength": -1},
        {"minLength": 1.0},
        {"maxItems": None},
        {"title": 1},
        {"examples": 1},
        {"$ref": "#"},
        {"pattern": "a"},
    ],
    ids=str,
)
def test_a_schema_that_is_not_surely_valid_is_not_plain(schema: Any) -> None:
    assert not is_plain(schema)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        False,
        {},
        {"type": "string", "title": "t", "$comment": "c", "description": "d"},
        {"type": ["string", "null"], "default": 1, "examples": [1], "enum": [], "const": None},
        {
            "minLength": 0,
            "maxLength": 0,
            "minItems": 0,
            "maxItems": 0,
            "minimum": 0,
            "maximum": 1.5,
        },
        {"exclusiveMinimum": -1, "exclusiveMaximum": 0.5, "required": [], "anyOf": [True]},
        {"properties": {"a": {"items": False}}, "additionalProperties": False, "required": ["a"]},
    ],
    ids=str,
)
def test_a_schema_of_usual_keywords_is_plain(schema: Any) -> None:
    assert is_plain(schema)
