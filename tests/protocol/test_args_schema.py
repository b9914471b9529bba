"""What the host says about args before a module is bothered, and what it accepts as a schema."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from protocol.args_schema import ArgsValidator, op_schemas, ops_problems
from protocol.bounded_pattern import bounded
from protocol.plain_args import MOST_PATTERNS, MOST_STEPS, MOST_VALUES, TYPES, is_plain
from protocol.schema_check import CompiledSchema

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


def said(args: Any, schema: Any = ROLL) -> str:
    return str(CompiledSchema(schema).problem(args))


def test_a_validator_knows_its_ops() -> None:
    validator = ArgsValidator({"roll": ROLL, "flip": True})
    assert list(validator.ops) == ["roll", "flip"]
    assert validator.knows("roll")
    assert not validator.knows("rol")
    assert not validator.acceptance("rol")({})
    assert list(validator.accepting) == []
    assert validator.acceptance("flip")({})
    assert list(validator.accepting) == ["flip"]
    assert validator.schema("flip").json == b"true"
    with pytest.raises(KeyError):
        validator.schema("rol")


def test_good_args_have_no_problem() -> None:
    compiled = CompiledSchema(ROLL)
    args = {"sides": 20, "label": "d", "mode": "sum", "tags": ["x", None], "exact": 7}
    assert compiled.problem(args) is None
    assert compiled.problem({"sides": 6}) is None


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
        ({"sides": 6, "never": 1}, "1 is not allowed"),
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
    assert "'y'" in said({"y": 1}, schema)


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


@pytest.mark.parametrize("schema", [True, {}])
def test_a_schema_that_allows_everything_accepts_everything_at_once(schema: Any) -> None:
    assert ArgsValidator({"op": schema}).accepts("op", {"any": "thing"})


def test_args_too_deep_for_a_recursive_schema_are_a_problem_and_no_crash() -> None:
    schema = {"properties": {"x": {"$ref": "#"}}}
    args: dict[str, Any] = {}
    for _ in range(5_000):
        args = {"x": args}
    assert said(args, schema) == "is nested too deeply to be validated"


@pytest.mark.parametrize("schema", [{"multipleOf": 0.1}, {"items": {"multipleOf": 0.1}}])
def test_an_integer_that_no_double_can_hold_is_a_problem_and_no_crash(schema: Any) -> None:
    args = 10**400 if "multipleOf" in schema else [10**400]
    assert said(args, schema) == "holds a number too large to be validated by `multipleOf`"


def test_a_schema_that_refers_only_to_itself_is_a_problem_and_no_crash() -> None:
    assert said({}, {"$ref": "#"}) == "is nested too deeply to be validated"


def test_a_schema_of_an_older_draft_is_read_as_the_present_one() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": {"$ref": "#"}, "b": {"type": "null"}},
    }
    assert not ops_problems({"op": schema}, "")
    assert said({"a": {"b": 1}}, schema) == "/a/b: 1 is not null"


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
        ({"pattern": "("}, '/op/pattern: "(" is not a regular expression'),
        ({"$ref": "#/$defs/x"}, '/op/$ref: "#/$defs/x" leads to nothing in this schema'),
        ({"$ref": "#nowhere"}, "leads to nothing in this schema"),
        ({"$ref": "#/type/x", "type": "null"}, "leads to nothing in this schema"),
        ({"$ref": "#/minimum/0", "minimum": 3}, "leads to nothing in this schema"),
        ({"$ref": "#/type", "type": "null"}, "does not lead to a schema: is a string"),
        ({"$ref": "#/x", "x": {"type": "strin"}}, "does not lead to a schema: /type"),
        ({"$ref": "#/x", "x": {"$ref": "#/y"}}, '"#/y" leads to nothing'),
        ({"$ref": "https://example.com/s"}, "is elsewhere, and nothing is fetched"),
        ({"items": {"allOf": [{"$ref": "file:///s"}]}}, '/op/items/allOf/0/$ref: "file:///s" is'),
        ({"$dynamicRef": "http://example.com/s"}, "is elsewhere, and nothing is fetched"),
        ({"$id": "http://[", "$ref": "x"}, "Invalid IPv6 URL"),
        ({"not": {"$schema": "http://json-schema.org/draft-03/schema#"}}, "/op/not/$schema: is"),
    ],
)  # fmt: skip
def test_an_unusable_schema_is_explained(schema: Any, words: str) -> None:
    found = ops_problems({"op": schema}, "")
    assert words in "\n".join(map(str, found))


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
    CompiledSchema(schema).problem({})


def test_a_schema_too_deep_to_check_is_refused() -> None:
    schema: Any = {}
    for _ in range(5_000):
        schema = {"not": schema}
    assert [str(p) for p in ops_problems({"op": schema}, "")] == [
        "/op: is nested too deeply to be checked"
    ]


@pytest.mark.parametrize(
    "inputs", [None, [], {}, {"type": "object", "properties": {}}, {"required": []}, {"roll": 3}]
)
def test_described_inputs_that_are_no_map_of_schemas_are_not_used(inputs: object) -> None:
    assert op_schemas(inputs) is None


def test_described_inputs_that_may_be_used_are_returned_as_they_are() -> None:
    inputs = {"roll": ROLL, "flip": {}, "spin": {"type": "strin"}}
    assert op_schemas(inputs) is inputs


@pytest.mark.fault(29)
def test_what_nobody_vouches_for_accepts_only_by_what_is_certainly_a_schema() -> None:
    inputs = {"plain": PLAIN_ROLL, "wrong": {"type": "strin"}, "pattern": {"pattern": "^a"}}
    validator = ArgsValidator(inputs, vouched=False)
    accepted = [op for op in inputs if validator.accepts(op, {"sides": 6})]
    assert accepted == ["plain"]
    assert [validator.schema(op).vouched for op in inputs] == [False] * 3


@pytest.mark.fault(29)
def test_nobody_checks_a_described_schema_where_others_wait() -> None:
    program = (
        "import sys; from protocol.args_schema import ArgsValidator, op_schemas; "
        "inputs = op_schemas({'op': {'allOf': [{'pattern': '^a'}]}}); "
        "assert not ArgsValidator(inputs, vouched=False).accepts('op', {}); "
        "assert 'jsonschema' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_plain_schemas_need_no_jsonschema() -> None:
    program = (
        "import sys; from protocol.args_schema import ops_problems; "
        "assert not ops_problems({'op': {'type': 'object', 'properties': {'a': {}}}}, ''); "
        "assert 'jsonschema' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


REFERENCES = ("#", "#/$defs/a", "#/x/0", "#a", "a", "http://[", "http://e.x/y")
WORDS = st.sampled_from(("string", "object", "strin", "", *REFERENCES))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(-2, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=5,
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
        "$schema",
        "$defs",
        "allOf",
        "not",
        "if",
        "x",
        "uniqueItems",
        "dependentSchemas",
        "definitions",
        "dependencies",
        "$recursiveRef",
    ]
)
SCHEMAS = st.recursive(
    VALUES,
    lambda inner: (
        st.dictionaries(KEYWORDS, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "x"]), inner, max_size=2)
        | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_a_schema_that_looks_plain_is_valid(schema: Any) -> None:
    if is_plain(schema):
        Draft202012Validator.check_schema(schema)


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, VALUES)
def test_a_schema_that_passes_is_valid_and_using_it_never_raises(schema: Any, args: Any) -> None:
    found = ops_problems({"op": schema}, "")
    if found:
        assert all(problem.pointer.startswith("/op") for problem in found)
    else:
        Draft202012Validator.check_schema(schema)
        CompiledSchema(schema).problem(args)


@settings(max_examples=100, deadline=None)
@given(SCHEMAS)
def test_an_invalid_schema_never_passes(schema: Any) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        assert ops_problems({"op": schema}, "")


NUMBERS = st.integers(-2, 3) | st.sampled_from([0.5, 1.0, 2**70, -(2.0**70)])
PLAIN_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "a", "ab"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PLAIN_SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.just({}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES)
            | st.lists(st.sampled_from(TYPES), min_size=1, max_size=2, unique=True),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "pattern": st.sampled_from(["^a", "b$", "^[a-z]{2,}$", "^(a+)+$", r"^a(?=b)"]),
            "format": st.sampled_from(["date", "a"]),
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "required": st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "enum": st.lists(PLAIN_VALUES, max_size=3),
            "const": PLAIN_VALUES,
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "title": st.just("a"),
        },
    ),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(PLAIN_SCHEMAS, PLAIN_VALUES)
def test_what_is_accepted_without_jsonschema_is_valid(schema: Any, args: Any) -> None:
    if ArgsValidator({"op": schema}).accepts("op", args):
        assert Draft202012Validator(schema).is_valid(args)


PLAIN_ROLL = {
    "type": "object",
    "properties": {
        "sides": {"type": "integer", "minimum": 2, "maximum": 1000, "exclusiveMaximum": 900},
        "weight": {"type": "number", "exclusiveMinimum": 0},
        "label": {"type": "string", "minLength": 1, "maxLength": 3},
        "mode": {"enum": ["sum", "each", None]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "exact": {"const": True},
        "spin": {"type": "boolean"},
        "none": {"type": "null"},
    },
    "required": ["sides"],
    "additionalProperties": {"type": "object"},
}


@pytest.mark.parametrize(
    "args",
    [
        {"sides": 20},
        {"sides": 2, "weight": 0.5, "label": "d", "mode": "sum", "tags": ["x"]},
        {"sides": 2, "weight": 2, "mode": None, "exact": True, "spin": False, "none": None},
        {"sides": 2, "other": {}},
    ],
)
def test_everyday_args_are_accepted_without_jsonschema(args: Any) -> None:
    assert ArgsValidator({"roll": PLAIN_ROLL}).accepts("roll", args)


@pytest.mark.parametrize(
    "bad",
    [
        {"sides": 1},
        {"sides": 900},
        {"sides": True},
        {"weight": 0},
        {"label": ""},
        {"label": "long"},
        {"mode": "both"},
        {"tags": []},
        {"tags": [1]},
        {"tags": ["a", "b", "c"]},
        {"exact": 1},
        {"spin": 0},
        {"none": 0},
        {"other": 1},
    ],
)
def test_args_that_are_not_valid_are_not_accepted(bad: Any) -> None:
    validator = ArgsValidator({"roll": PLAIN_ROLL})
    args = {"sides": 6, **bad}
    assert not validator.accepts("roll", args)
    assert CompiledSchema(PLAIN_ROLL).problem(args) is not None


@pytest.mark.parametrize("one", [True, {"type": "object"}], ids=str)
@pytest.mark.parametrize(
    "within",
    [
        lambda schema: schema,
        lambda schema: {"properties": {"sides": schema, "more": True}},
        lambda schema: {"additionalProperties": schema},
    ],
)
def test_sixteen_schemas_are_applied_to_a_value_and_no_more(one: Any, within: Any) -> None:
    for others, accepted in ((15, True), (16, False)):
        schema = within({"anyOf": [one] * others})
        assert ArgsValidator({"roll": schema}).accepts("roll", {"sides": {}}) is accepted


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    "schema",
    [
        ROLL,  # uniqueItems compares each with each
        {"properties": {"sides": {"pattern": "^(a+)+$"}}},
        {"properties": {"sides": {"pattern": r"^(a*)\1$"}}},
        {"items": {"anyOf": [{"items": {"anyOf": [{"type": "null"}] * 5}}] * 5}},
        {"$ref": "#/$defs/a", "$defs": {"a": True}},
        {"properties": {f"p{n}": {"pattern": f"^a{n}$"} for n in range(MOST_PATTERNS + 1)}},
        {"allOf": [True]},
        {"oneOf": [True]},
        {"patternProperties": {"^a": True}},
        {"propertyNames": True},
        {"contains": True},
        {"not": False},
        {"dependentSchemas": {"a": True}},
    ],
)
def test_nothing_is_accepted_for_a_schema_that_nothing_bounds(schema: Any) -> None:
    assert not ArgsValidator({"roll": schema}).accepts("roll", {"sides": 6})
    assert CompiledSchema(schema).problem({"sides": 6}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["object", "null"], "properties": {"name": {"pattern": "^[a-z0-9_-]{1,64}$"}}},
        {"properties": {"name": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"properties": {"name": {"type": "string", "format": "date"}}, "$comment": "a"},
    ],
)
def test_what_people_write_is_accepted_without_jsonschema(schema: Any) -> None:
    assert ArgsValidator({"roll": schema}).accepts("roll", {"name": "a-name"})


@pytest.mark.fault(29)
def test_patterns_stop_accepting_when_their_steps_are_spent_and_begin_anew_with_each_check() -> (
    None
):
    schema = {"items": {"pattern": "^[a-z]+$"}}
    proof = bounded("^[a-z]+$")
    assert proof is not None
    most = MOST_STEPS // proof.steps
    validator = ArgsValidator({"op": schema})
    for _ in range(2):
        assert validator.accepts("op", ["a"] * most)
        assert not validator.accepts("op", ["a"] * (most + 1))


INTEGER = {"type": "integer", "minimum": 0, "maximum": 9}
EITHER = {"anyOf": [{"type": "string"}, INTEGER]}


def members(count: int) -> dict[str, int]:
    return {str(number): 1 for number in range(count)}


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    ("schema", "each", "of_one"),
    [
        ({"items": INTEGER}, 1, lambda count: [1] * count),
        ({"items": {"type": "array", "items": INTEGER}}, 3, lambda count: [[1, 1]] * count),
        ({"items": EITHER}, 3, lambda count: [1] * count),
        ({"additionalProperties": INTEGER}, 2, members),
        ({"items": {"properties": {"a": INTEGER}}}, 3, lambda count: [{"a": 1}] * count),
        ({"anyOf": [{"items": {"type": "null"}}, {"items": INTEGER}]}, 2, lambda n: [1] * n),
    ],
)  # fmt: skip
def test_args_are_looked_at_value_by_value_up_to_a_bound_and_each_check_begins_anew(
    schema: Any, each: int, of_one: Callable[[int], Any]
) -> None:
    validator, most = ArgsValidator({"op": schema}), MOST_VALUES // each
    for _ in range(2):
        assert validator.accepts("op", of_one(most))
        assert not validator.accepts("op", of_one(most + 1))
    asked = calls(lambda: validator.accepts("op", of_one(130_000)))
    assert asked < 10 * MOST_VALUES


def test_what_a_schema_says_nothing_of_is_not_looked_at_however_much_it_is() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {}}, "b": INTEGER}}
    validator = ArgsValidator({"op": schema})
    args = {**dict.fromkeys(map(str, range(60_000)), 1), "a": [1] * 60_000}
    assert calls(lambda: validator.accepts("op", args)) < 100
    assert validator.accepts("op", args)
    assert not validator.accepts("op", {**args, "b": -1})


def calls(function: Callable[[], object]) -> int:
    """Return how many functions of Python's were called meanwhile."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
