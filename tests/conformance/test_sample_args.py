"""Args that are made from a schema fit it, or are not made."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.conformance.sample_args import sample_args


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        (True, {}),
        ({}, {}),
        ({"type": "object", "examples": [{"a": 1}]}, {"a": 1}),
        (
            {
                "properties": {
                    "text": {"type": "string", "minLength": 6},
                    "few": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
                    "left out": {"type": "string"},
                    "even": {"type": "integer", "exclusiveMinimum": 3, "multipleOf": 2},
                    "day": {"type": "string", "format": "date"},
                    "one": {"enum": ["x", "y"]},
                    "either": {"anyOf": [{"type": "null"}, {"type": "number"}]},
                    "below": {"type": "number", "maximum": -3},
                },
                "required": ["text", "few", "even", "day", "one", "either", "below"],
            },
            {
                "text": "textxx",
                "few": [True, True],
                "even": 4,
                "day": "2026-01-31",
                "one": "x",
                "either": None,
                "below": -3,
            },
        ),
        (
            {
                "allOf": [{"$ref": "#/$defs/a"}, {"required": ["b"]}],
                "$defs": {"a": {"properties": {"b": {"const": 7}}}},
            },
            {"b": 7},
        ),
        ({"properties": {"a": {"type": "string", "pattern": "^[0-9]$"}}, "required": ["a"]}, None),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, None),
        (False, None),
    ],
)
def test_the_least_that_a_schema_asks_for_is_made(schema: Any, args: Any) -> None:
    assert sample_args(schema) == args
