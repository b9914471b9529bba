"""What the host says about args before a module is bothered, and what it accepts as a schema."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError

from protocol.args_schema import (
    DEPTH,
    KEPT,
    LEFT_OUT,
    MOST_PARTS,
    ArgsSchema,
    ArgsValidator,
    op_schemas,
    ops_problems,
)
from protocol.args_work import ARGS_DEPTH, MOST_WORK, STRING_CHARS
from protocol.problem import Problem

ROLL = {
    "type": "object",
    "properties": {
        "sides": {"type": "integer", "minimum": 2, "maximum": 1000},
        "label": {"type": "string", "pattern": "^[a-z]*$"},
        "mode": {"enum": ["sum", "each"]},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}, "uniqueItems": True},
        "exact": {"const": 7},
        "never": False,
    },
    "required": ["sides"],
    "additionalProperties": False,
}
TOO_MUCH = "would take too much work to be validated by this schema"
REGEX = "is not a regular expression that can be used here"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def said(args: Any, schema: Any = ROLL) -> str:
    return str(ArgsSchema(schema).fault(args))


def fits(args: Any, schema: Any) -> bool:
    return ArgsSchema(schema).fault(args) is None


def left_out(schema: Any) -> list[str]:
    return [str(problem) for problem in ArgsSchema(schema).left_out]


def test_args_are_held_to_the_schema_of_their_op() -> None:
    validator = ArgsValidator({"roll": ROLL, "flip": True})
    assert list(validator.ops) == ["roll", "flip"]
    assert validator.fault("roll", {"sides": 6}) is None
    assert validator.fault("flip", {"any": "thing"}) is None
    assert validator.fault("roll", {}) == Problem("/sides", "is missing")
    with pytest.raises(KeyError):
        validator.fault("rol", {})


def test_a_schema_whose_place_another_took_is_compiled_again() -> None:
    told: list[str] = []
    inputs = {str(number): {"type": "strin"} for number in range(KEPT + 1)}
    validator = ArgsValidator(inputs, lambda op, problem: told.append(op))
    for op in ("0", *inputs, "0"):
        assert validator.fault(op, {}) is None
    assert told == [*inputs, "0"]


def test_good_args_have_no_problem() -> None:
    assert fits({"sides": 20, "label": "d", "mode": "sum", "tags": ["x", None], "exact": 7}, ROLL)
    assert fits({"sides": 6}, ROLL)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"sides": 1.5}, "/sides: 1.5 is not an integer"),
        ({"sides": True}, "/sides: true is not an integer"),
        ({}, "/sides: is missing"),
        ({"side": 6}, '/sides: is missing; it has "side", is that meant?'),
        ({"sides": 1}, "/sides: 1 is less than the minimum of 2"),
        ({"sides": 6, "labl": ""}, "/labl: is not known; did you mean 'label'?"),
        ({"sides": 6, "x/y~z": 1}, "/x~1y~0z: is not known"),
        ({"sides": 6, "mode": "sun"},
         "/mode: \"sun\" is not one of \"sum\", \"each\"; did you mean 'sum'?"),
        ({"sides": 6, "mode": 3}, '/mode: 3 is not one of "sum", "each"'),
        ({"sides": 6, "tags": [None, 3]}, "/tags/1: 3 is not a string or null"),
        ({"sides": 6, "exact": 8}, "/exact: 8 is not 7"),
        ({"sides": 6, "never": 1}, "/never: 1 is not allowed"),
        ({"sides": 6, "label": "D\n"}, "/label: \"D\\n\" does not match '^[a-z]*$'"),
        ([], "an array is not an object"),
    ],
)  # fmt: skip
def test_a_problem_names_the_place_and_the_fault(args: Any, words: str) -> None:
    assert said(args) == words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"const": {"a": [1]}}, 'an object is not {"a": [1]}'),
        ({"enum": [["ä"], {}]}, 'an object is not one of ["ä"], {}'),
        ({"const": ["x" * 100]}, f'an object is not ["{"x" * 57}…'),
    ],
)
def test_what_would_be_right_is_shown_and_not_only_its_type(schema: Any, words: str) -> None:
    assert said({"b": 1}, schema) == words


def test_of_several_faults_the_most_useful_one_is_told() -> None:
    schema = {
        "anyOf": [
            {"type": "string"},
            {"properties": {"a": {"properties": {"b": {"type": "null"}}}}},
        ]
    }
    assert said({"a": {"b": 1}}, schema) == "/a/b: 1 is not null"


def test_extra_members_beside_patterns_are_named() -> None:
    schema = {"patternProperties": {"^x-": True}, "additionalProperties": False}
    assert said({"y": 1}, schema) == "/y: is not known"


@pytest.mark.parametrize(
    "args",
    [
        {"sides": "x" * 1_000_000},
        {"sides": 10**4000},
        {"sides": 6, "tags": [1] * 100_000},
        {"sides": 6, "tags": "\x00\u202e\n" * 100_000},
        {"sides": 6, "label": "A" * 1_000_000},
        {"sides": 6, "k" * 1_000_000: 1},
        {"sides": 6, "mode": {"k": ["v" * 1000] * 1000}},
    ],
)
def test_a_problem_stays_short_and_printable_however_large_the_value_is(args: Any) -> None:
    words = said(args)
    assert 10 < len(words) < 500
    assert words.isprintable()


@pytest.mark.parametrize(
    ("schema", "args", "words"),
    [
        ({"minLength": 1}, "", '"" should be non-empty'),
        ({"minLength": 2}, "a", '"a" is too short'),
        ({"maxItems": 0}, [1], "an array is expected to be empty"),
        ({"maxItems": 1}, [1, 2], "an array is too long"),
        ({"minProperties": 2}, {"a": 1}, "an object does not have enough properties"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "an object has too many properties"),
        ({"multipleOf": 2}, 3, "3 is not a multiple of 2"),
        ({"uniqueItems": True}, [1, 1], "an array has non-unique elements"),
        ({"not": {"type": "null"}}, None, 'null should not be valid under {"type": "null"}'),
        ({"oneOf": [True, True]}, 1, "1 is valid under more than one of the given schemas"),
        ({"anyOf": [{"type": "null"}, {"const": 2}]}, 1, "1 is not 2"),
        ({"anyOf": [{"type": "null"}, {"type": "array"}]}, 1, "1 is not valid under any of the"),
        ({"contains": {"type": "null"}}, [1], "an array does not contain items matching"),
        ({"propertyNames": {"maxLength": 1}}, {"abc": 1}, '"abc" is too long'),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "/b: is missing"),
        ({"prefixItems": [True], "items": False}, [1, 2], "/1: 2 is not allowed"),
        ({"patternProperties": {"^x-": True}, "additionalProperties": False}, {"y": 1}, "/y: is"),
        ({"unevaluatedProperties": False}, {"a": 1}, "Unevaluated properties are not allowed"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1, "1 is not null"),
        ({"$id": "http://e.org/r", "$ref": "p", "$defs": {"p": {"$id": "p", "enum": [2]}}}, 1,
         "1 is not one of 2"),
        (False, 1, "1 is not allowed"),
    ],
)  # fmt: skip
def test_each_keyword_has_words(schema: Any, args: Any, words: str) -> None:
    assert said(args, schema).startswith(words)


def test_a_schema_that_refers_only_to_itself_holds_args_to_nothing() -> None:
    assert fits({}, {"$ref": "#"})


def test_half_of_a_pair_of_surrogates_is_a_problem_and_no_crash() -> None:
    assert said("\ud800", {"type": "string"}) == "cannot be validated: UnicodeEncodeError"


def nested(levels: int, innermost: Any = None) -> Any:
    for _ in range(levels):
        innermost = {"x": innermost}
    return innermost


def test_args_too_deep_for_a_recursive_schema_are_a_problem_and_no_crash() -> None:
    schema = {"properties": {"x": {"$ref": "#"}}}
    assert fits(nested(128), schema)
    assert said(nested(5000), schema) == "is nested too deeply to be validated"
    assert fits(nested(5000), {"required": ["x"]}), "of what is deeper the schema says nothing"
    assert fits(nested(ARGS_DEPTH, 1), schema)


# Where the work is bounded.


@pytest.mark.fault(29)
@pytest.mark.fault(39)
@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ({"items": {"enum": [{"a": number} for number in range(1500)]}}, [{"a": 1499}] * 2000),
        ({"items": {"enum": [number + 0.5 for number in range(4000)]}}, [1.25] * 2000),
        ({"items": {"minimum": 0.5}}, [1e-300] * 2000),
        ({"items": {"minimum": 0.5}}, [10**4000] * 100),
        ({"uniqueItems": True}, [2**70 + number for number in range(2000)]),
        ({"items": {"pattern": "^(?=a)(a*)*\\1$"}}, ["a" * 50] * 2000),
        ({"pattern": "(?=a).*b"}, "a" * 100_000),
        ({"items": {"patternProperties": {f"(?=a)a{n}": True for n in range(9)}}}, [{"a": 1}] * 99),
        ({"items": {"anyOf": [{"const": {"a": number}} for number in range(500)]}}, [0] * 1000),
    ],
)
def test_what_would_hold_others_up_is_refused_in_words(schema: Any, args: Any) -> None:
    assert left_out(schema) == []
    assert said(args, schema) == TOO_MUCH


UNIONS: dict[str, Any] = {"$defs": {"a0": {"type": "string"}}}
for number in range(1, 31):
    below = {"$ref": f"#/$defs/a{number - 1}"}
    UNIONS["$defs"][f"a{number}"] = {"anyOf": [{"items": below}, {"items": below, "minItems": 1}]}


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    "schema",
    [
        {**UNIONS, "$ref": "#/$defs/a30"},
        {"anyOf": [{"type": "array", "items": {"$ref": "#"}}] * 2},
        {"$id": "http://e.org", "anyOf": [{"items": {"$ref": "#a"}}] * 2, "$anchor": "a"},
        {"$dynamicAnchor": "a", "anyOf": [{"items": {"$dynamicRef": "#a"}}] * 2},
        {"allOf": [{"$ref": f"#/$defs/a{n}"} for n in (0, 0)],
         "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(400)}
         | {"a400": {"type": "null"}}},
    ],
)  # fmt: skip
def test_alternatives_within_alternatives_are_counted_as_often_as_they_are_tried(
    schema: Any,
) -> None:
    args: Any = 3
    for _ in range(30):
        args = [args]
    assert left_out(schema) == []
    assert said(args, schema) == TOO_MUCH


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ({"items": {"type": "integer", "minimum": 0}}, [1] * 100_000),
        ({"items": {"enum": [str(number) for number in range(4000)]}}, ["3999"] * 100_000),
        ({"items": {"type": "number", "minimum": 0.0, "maximum": 1.0}}, [0.5] * 10_000),
        ({"properties": {"a": {"type": "array"}}}, {"a": [[[2**70, 1e-300]] * 1000] * 1000}),
        ({"items": {"pattern": "^[a-z]+$"}}, ["abc"] * 100_000),
        ({"pattern": "^(a+)+$"}, "a" * 1_000_000),
    ],
)
def test_what_is_only_long_is_checked(schema: Any, args: Any) -> None:
    assert fits(args, schema)


def test_a_filter_that_holds_filters_is_checked() -> None:
    filters = {
        "anyOf": [
            {
                "type": "object",
                "properties": {"and": {"items": {"$ref": "#"}}},
                "required": ["and"],
            },
            {"type": "object", "properties": {"not": {"$ref": "#"}}, "required": ["not"]},
            {"type": "object", "properties": {"is": {"type": "string"}}, "required": ["is"]},
        ]
    }
    one: Any = {"is": "a"}
    assert fits({"and": [{"not": one}, {"and": [one, {"not": {"and": [one] * 20}}]}]}, filters)
    assert not fits({"and": [{"not": {"is": 1}}]}, filters)


@pytest.mark.parametrize("number", [1e-300, 1e300, 10**400, 2**70, 0.1])
@pytest.mark.parametrize("keyword", ["const", "minimum", "multipleOf", "exclusiveMaximum"])
def test_one_odd_number_is_checked_against_another(keyword: str, number: float) -> None:
    assert said(number, {keyword: number}) != TOO_MUCH


def test_a_string_counts_by_its_length_only_where_patterns_are() -> None:
    long = "a" * (MOST_WORK * STRING_CHARS)
    assert fits(long, {"type": "string", "minLength": 1})
    assert said(long, {"pattern": "^a"}) == TOO_MUCH
    assert said({long: 1}, {"propertyNames": {"minLength": 1}}) == TOO_MUCH


@pytest.mark.fault(29)
def test_of_many_faults_in_a_union_only_the_fact_is_told() -> None:
    schema = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    assert said([1], schema) == "/0: 1 is not a string"
    assert said([1] * 5000, schema) == "is not valid, and too large for its schema to say where"
    assert said([1] * 5000, schema["anyOf"][0]) == "/0: 1 is not a string"


@pytest.mark.fault(29)
def test_a_pattern_at_its_limit_says_so() -> None:
    words = said("a" * 50 + "b", {"pattern": "^(?=a)(a*)*\\1$"})
    assert words.endswith('takes too many steps to be matched with "^(?=a)(a*)*\\\\1$"')


# What can be compiled, and what is left out.


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (3, "/op: is a number, must be the JSON Schema of an op: an object, true or false"),
        ({"type": "strin"}, "/op/type: is not a JSON Schema type"),
        ({"type": "strin"}, "did you mean 'string'?"),
        ({"type": ["string", "string"]}, "/op/type"),
        ({"properties": {"a/b": {"minLength": -1}}}, "/op/properties/a~1b/minLength: -1 is less"),
        ({"required": "a"}, '/op/required: "a" is not an array'),
        ({"required": ["a", "a"]}, "/op/required: an array has non-unique elements"),
        ({"pattern": "("}, f'/op/pattern: "(" {REGEX}'),
        ({"pattern": "[\\w-.]"}, REGEX),
        ({"pattern": "a\\Z"}, REGEX),
        ({"pattern": "^.{1,10000}x$"}, REGEX),
        ({"patternProperties": {"(": True}}, f'/op/patternProperties/(: "(" {REGEX}'),
        ({"$schema": "http://e.org/mine"}, '/op/$schema: "http://e.org/mine" is no known draft'),
        ({"$ref": "#/$defs/x"}, '/op/$ref: "#/$defs/x" leads to nothing in this schema'),
        ({"$ref": "#nowhere"}, "leads to nothing in this schema"),
        ({"$ref": "#/type/x", "type": "null"}, "leads to nothing in this schema"),
        ({"$ref": "#/x", "x": {"type": "strin"}}, "/op/x/type: is not a JSON Schema type"),
        ({"$ref": "#/x", "x": {"$ref": "#/y"}}, '/op/x/$ref: "#/y" leads to nothing'),
        ({"$ref": "https://example.com/s"}, "is elsewhere, and nothing is fetched"),
        ({"items": {"allOf": [{"$ref": "file:///s"}]}}, '/op/items/allOf/0/$ref: "file:///s" is'),
        ({"$dynamicRef": "http://example.com/s"}, "is elsewhere, and nothing is fetched"),
        ({"$id": "http://[", "$ref": "x"}, "Invalid URI reference"),
        ({"enum": ["\ud800"]}, "surrogates not allowed"),
        ({"properties": {str(n): {"type": "null"} for n in range(MOST_PARTS)}}, "4000 parts"),
    ],
)  # fmt: skip
def test_an_unusable_schema_is_explained(schema: Any, words: str) -> None:
    found = ops_problems({"op": schema}, "")
    assert words in "\n".join(map(str, found))
    assert found == ops_problems({"op": schema}, "")


def test_all_faults_of_a_schema_are_told_at_once() -> None:
    few = {str(number): {"type": "strin"} for number in range(LEFT_OUT)}
    assert len(left_out({"properties": few})) == LEFT_OUT
    many = {**few, "a": {"pattern": "("}, "b": {"pattern": "("}}
    assert left_out({"properties": many})[LEFT_OUT:] == ["has more faults"]


def test_a_schema_too_deep_to_check_is_refused() -> None:
    schema: Any = {}
    for _ in range(5_000):
        schema = {"not": schema}
    assert left_out(schema) == ["is nested too deeply to be checked"]
    assert left_out(nested(DEPTH - 1, True)) == []


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ({"properties": {"a": {"type": "any"}, "b": {"pattern": "("}}}, {"a": 1, "b": 1}),
        ({"properties": {"a": 3}, "additionalProperties": False}, {"a": 1}),
        ({"patternProperties": {"(": True}, "additionalProperties": False}, {"a": 1}),
        ({"not": {"pattern": "("}}, "a"),
        ({"if": {"pattern": "("}, "then": False}, "a"),
        ({"oneOf": [{"pattern": "("}, {"type": "string"}]}, "a"),
        ({"contains": {"pattern": "("}, "maxContains": 0}, ["a"]),
        ({"allOf": [{"$ref": "http://e.org/a"}], "unevaluatedProperties": False}, {"a": 1}),
        ({"dependentSchemas": {"a": 3}, "dependentRequired": {"a": "b"}}, {"a": 1}),
        ({"prefixItems": [{"type": "strin"}, {"minimum": "a"}]}, [1, 2]),
        ({"properties": {"a": {"type": "string", "required": True}}}, {"a": "x"}),
        ({"exclusiveMinimum": True, "minimum": 3}, 3),
        ({"type": "object", "properties": []}, {}),
        ({"$schema": 3}, {}),
    ],
)
def test_without_what_is_left_out_more_is_allowed_and_never_less(schema: Any, args: Any) -> None:
    assert left_out(schema) != []
    assert fits(args, schema)


def test_the_rest_of_a_schema_still_holds() -> None:
    schema = {"properties": {"a": {"type": "any", "maximum": 3}}, "required": ["a"]}
    assert said({"a": 4}, schema) == "/a: 4 is greater than the maximum of 3"
    assert said({}, schema) == "/a: is missing"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
        {"$ref": "#a", "$defs": {"b": {"$anchor": "a"}}},
        {"$id": "https://example.com/root", "$ref": "part", "$defs": {"p": {"$id": "part"}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": {"$ref": {"type": "string"}, "$id": True, "enum": {"$ref": "#"}}},
        {"enum": [{"$ref": "https://example.com/data-not-schema"}]},
    ],
)
def test_a_reference_inside_of_the_schema_is_usable(schema: dict[str, Any]) -> None:
    assert ops_problems({"op": schema}, "") == []
    ArgsSchema(schema).fault({})


@pytest.mark.parametrize(
    "inputs", [None, [], {}, {"type": "object", "properties": {}}, {"required": []}, {"roll": 3}]
)
def test_described_inputs_that_are_no_map_of_schemas_are_not_used(inputs: object) -> None:
    assert op_schemas(inputs) is None


def test_described_inputs_that_may_be_used_are_returned_as_they_are() -> None:
    inputs = {"roll": ROLL, "flip": {}, "spin": {"type": "strin"}}
    assert op_schemas(inputs) is inputs


def test_a_module_without_inputs_needs_no_library() -> None:
    program = (
        "import sys; from protocol.args_schema import ArgsValidator, op_schemas, ops_problems; "
        "ops_problems({}, ''); ArgsValidator({'op': {}}); assert 'jsonschema_rs' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# Beside jsonschema.

NUMBERS = st.integers(-2, 3) | st.sampled_from([0.5, 1.0, 2**70, -(2.0**70), 10**400])
NAMES = st.sampled_from(["a", "b", "c"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
PATTERNS = st.sampled_from(["^a", "b$", "^[a-z]{2,}$", "^(a+)+$", r"^a(?=b)", r"^\\w+$"])
COUNTS = st.integers(0, 2)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.booleans()
    | st.just({})
    | st.sampled_from([{"items": {"$ref": "#"}}, {"$ref": "#/$defs/a"}]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            **dict.fromkeys(["anyOf", "oneOf", "allOf"], st.lists(inner, min_size=1, max_size=2)),
            **dict.fromkeys(["not", "if", "then", "else", "contains", "items"], inner),
            **dict.fromkeys(["additionalProperties", "unevaluatedItems"], inner),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "pattern": PATTERNS,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=1),
            "format": st.sampled_from(["date", "a"]),
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "dependentRequired": st.just({"a": ["b"]}),
            "enum": st.lists(VALUES, max_size=3),
            "const": VALUES,
            **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum"], NUMBERS),
            **dict.fromkeys(["minLength", "maxLength", "minItems", "maxProperties"], COUNTS),
            "uniqueItems": st.booleans(),
        },
    ),
    max_leaves=5,
)


def with_definitions(schema: Any) -> Any:
    return schema if isinstance(schema, bool) else {**schema, "$defs": {"a": {"type": "string"}}}


@settings(max_examples=300, deadline=None)
@given(SCHEMAS.map(with_definitions), VALUES)
def test_what_is_allowed_is_what_jsonschema_allows(schema: Any, args: Any) -> None:
    compiled = ArgsSchema(schema)
    assert compiled.left_out == []
    fault = compiled.fault(args)
    assume(str(fault) != TOO_MUCH)
    assert (fault is None) is Draft202012Validator(schema).is_valid(args), fault


WORDS = st.sampled_from(
    ("string", "object", "strin", "", "#", "#/$defs/a", "#/x/0", "a", "http://[")
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "minimum",
        "maxLength",
        "title",
        "default",
        "examples",
        "$ref",
        "$dynamicRef",
        "$id",
        "$anchor",
        "$defs",
        "allOf",
        "not",
        "if",
        "x",
        "uniqueItems",
        "dependentSchemas",
        "definitions",
        "dependencies",
    ]
)
ODD_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(-2, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=5,
)
ODD_SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    ODD_VALUES,
    lambda inner: (
        st.dictionaries(KEYWORDS, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "x"]), inner, max_size=2)
        | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(ODD_SCHEMAS, ODD_VALUES)
def test_an_invalid_schema_is_told_and_using_it_never_raises(schema: Any, args: Any) -> None:
    compiled = ArgsSchema(schema)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        assert compiled.left_out
    compiled.fault(args)


@pytest.mark.parametrize(
    ("schema", "args", "allowed", "jsonschema_allows"),
    [
        # JSON has no NaN, so no clause says; it is no number here.
        ({"type": "number"}, float("nan"), False, True),
        # An integer is any number without a fraction (validation 6.1.1).
        ({"type": "integer"}, 1.0, True, True),
        ({"type": "integer"}, 2**70, True, True),
        ({"maximum": 2**70}, 2**70 + 1, False, False),
        ({"const": 2**70}, 2**70 + 1, False, False),
        # Numbers are equal by their mathematical value (core 4.2.2); doubles are only near.
        ({"const": 2**70}, 2.0**70, True, True),
        ({"multipleOf": 0.1}, 0.3, True, False),
        # `\d` and `\w` are ASCII in ECMA-262 (core 6.4); in Python they are not.
        ({"pattern": r"^\d$"}, "\u0663", False, True),
        ({"pattern": r"^\w$"}, "\u00e9", False, True),
        # `$` is the end in ECMA-262, and not before a last newline.
        ({"pattern": "^a$"}, "a\n", False, True),
        # `format` is an annotation (validation 7.2.1).
        ({"format": "date"}, "tomorrow", True, True),
        # A `$ref` has siblings since 2019-09 (core 10.2); in draft-07 they are ignored (8.3).
        ({"$ref": "#/$defs/a", "$defs": {"a": True}, "type": "null"}, 1, False, False),
        ({"$schema": DRAFT_7, "properties": {"a": {"$ref": "#/definitions/b", "type": "null"}},
          "definitions": {"b": True}}, {"a": 1}, True, True),
        ({"$schema": DRAFT_7, "items": [{"type": "null"}], "additionalItems": False}, [None, 1],
         False, False),
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {"a": 1}, False, False),
        ({"$schema": DRAFT_4, "minimum": 3, "exclusiveMinimum": True}, 3, False, False),
        ({"properties": {"a": False}}, {"a": 1}, False, False),
        ({"additionalProperties": {"type": "null"}}, {"a": 1}, False, False),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"c": 1}, False, False),
    ],
)  # fmt: skip
def test_where_it_differs_from_jsonschema_it_is_right(
    schema: Any, args: Any, allowed: bool, jsonschema_allows: bool
) -> None:
    drafts = {DRAFT_7: Draft7Validator, DRAFT_4: Draft4Validator}
    theirs = drafts.get(schema.get("$schema"), Draft202012Validator)(schema)
    assert theirs.is_valid(args) is jsonschema_allows
    assert fits(args, schema) is allowed


TALKS = Path(__file__).parents[1] / "conformance" / "transcripts"
SERVERS = ("everything", "fetch", "filesystem", "git", "memory", "time")


def tools(server: str) -> Iterator[dict[str, Any]]:
    for line in (TALKS / f"mcp_server_{server}.jsonl").read_text(encoding="utf-8").splitlines():
        said = json.loads(line).get("line", "")
        if said.startswith("{") and "inputSchema" in said:
            yield from json.loads(said)["result"]["tools"]


@pytest.mark.parametrize("server", SERVERS)
@settings(max_examples=20, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_tools_of_servers_of_others_take_what_jsonschema_allows(
    server: str, values: list[Any]
) -> None:
    listed = list(tools(server))
    assert listed
    for tool in listed:
        schema = tool["inputSchema"]
        compiled = ArgsSchema(schema)
        assert compiled.left_out == []
        draft = Draft7Validator if "draft-07" in schema.get("$schema", "") else Draft202012Validator
        names = [*schema.get("properties", {}), "other"]
        for value in (*values, "2026-01-01", 1, {}, ["a"]):
            for args in (dict.fromkeys(names, value), dict.fromkeys(names[:-1], value), {}):
                assert (compiled.fault(args) is None) is draft(schema).is_valid(args)
