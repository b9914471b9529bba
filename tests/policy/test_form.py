"""A form that a person fills in: what is one, and what an answer comes to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.policy.form import FIELDS, FORM_BYTES, filled, form_problem


def form(*required: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required)}


TEXT = {"type": "string"}
COLOURS = ["red", "green"]
TITLED = [{"const": one, "title": one.upper()} for one in COLOURS]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, '"properties"'),
        ({"type": "array", "properties": {}}, '"type" "object"'),
        (form(a={"type": "object"}), "one of the types"),
        (form(a={"type": ["string"]}), "one of the types"),
        (form(a=True), "one of the types"),
        (form(a={"$ref": "http://far.example"}), "one of the types"),
        (form(a={"type": "array"}), "has none"),
        (form(a={"type": "array", "items": {"type": "object"}}), "has none"),
        (form("b", a=TEXT), '"required"'),
        ({**form(a=TEXT), "required": "a"}, '"required"'),
        (form(**{f"f{n}": TEXT for n in range(FIELDS + 1)}), "a form has at most"),
        (form(a={**TEXT, "title": "x" * FORM_BYTES}), "a form takes at most"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_is_no_form_is_named(document: Any, words: str) -> None:
    assert words in str(form_problem(document))


@pytest.mark.parametrize(
    ("field", "given", "read"),
    [
        (TEXT, "x", "x"),
        ({**TEXT, "format": "email"}, "a@b.c", "a@b.c"),
        ({**TEXT, "format": "uri"}, "https://x.y", "https://x.y"),
        ({**TEXT, "format": "date"}, "2026-11-22", "2026-11-22"),
        ({**TEXT, "format": "date-time"}, "2026-11-22T17:10:00Z", "2026-11-22T17:10:00Z"),
        ({**TEXT, "format": "unheard"}, "x", "x"),
        ({**TEXT, "enum": COLOURS}, "red", "red"),
        ({**TEXT, "oneOf": TITLED}, "green", "green"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "7", 7),
        ({"type": "integer"}, 7.0, 7),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, False, False),
        ({"type": "array", "items": {"enum": COLOURS}}, "red, green", COLOURS),
        ({"type": "array", "items": {"anyOf": TITLED}}, ["red"], ["red"]),
    ],
    ids=str,
)
def test_what_is_typed_is_read_as_what_its_field_wants(field: Any, given: Any, read: Any) -> None:
    wanted = form("a", a=field)
    assert form_problem(wanted) is None
    found = filled(wanted, {"a": given})
    assert found == {"a": read}
    assert type(found["a"]) is type(read)


@pytest.mark.parametrize(
    ("field", "given", "words"),
    [
        (TEXT, 3, "a text"),
        ({**TEXT, "minLength": 2}, "x", "at least 2"),
        ({**TEXT, "maxLength": 2}, "xyz", "at most 2"),
        ({**TEXT, "format": "email"}, "a.b", "an address"),
        ({**TEXT, "format": "uri"}, "x.y", "a URI"),
        ({**TEXT, "format": "date"}, "22.11.2026", "a date"),
        ({**TEXT, "format": "date-time"}, "now", "a time"),
        ({**TEXT, "enum": COLOURS}, "blue", '"red", "green"'),
        ({**TEXT, "enum": COLOURS}, [], '"red", "green"'),
        ({"type": "integer"}, "7.5", "a whole number"),
        ({"type": "integer"}, True, "a whole number"),
        ({"type": "number"}, "nan", "a number"),
        ({"type": "number"}, "1e999", "a number"),
        ({"type": "number", "minimum": 3}, "2", "at least 3"),
        ({"type": "number", "maximum": 3}, "4", "at most 3"),
        ({"type": "boolean"}, "maybe", "yes or no"),
        ({"type": "boolean"}, 1, "yes or no"),
        ({"type": "array", "items": {"enum": COLOURS}}, "blue", "some of"),
        ({"type": "array", "items": {"enum": COLOURS}, "minItems": 1}, "", "at least 1"),
        ({"type": "array", "items": {"enum": COLOURS}, "maxItems": 1}, "red,green", "at most 1"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_with_what_would(field: Any, given: Any, words: str) -> None:
    assert words in str(filled(form(a=field), {"a": given}))


def test_a_default_stands_in_for_what_is_left_out_if_it_fits() -> None:
    wanted = form("a", a={**TEXT, "default": "x"}, b=TEXT, c={"type": "integer", "default": "?"})
    assert filled(wanted, {}) == {"a": "x"}
    assert filled(form("a", a=TEXT), {}) == 'the form wants "a" too'
    assert "did you mean 'colour'?" in str(filled(form(colour=TEXT), {"color": "red"}))


@pytest.mark.fault(29)
def test_an_answer_has_no_more_choices_than_there_are() -> None:
    field = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    form = {"type": "object", "properties": {"c": field}}
    assert filled(form, {"c": ["b", "b"]}) == {"c": ["b", "b"]}
    for many in (["a"] * 3, "a,b,a", "a," * FORM_BYTES):
        assert "it must be some of" in str(filled(form, {"c": many}))


def test_a_form_has_64_fields_in_64_kib() -> None:
    assert form_problem(form(**{f"f{n}": TEXT for n in range(64)})) is None
    many = form(**{f"f{n}": TEXT for n in range(65)})
    assert form_problem(many) == "a form has at most 64 fields"
    size = len(msgspec.json.encode(form(a={**TEXT, "title": ""})))
    assert form_problem(form(a={**TEXT, "title": "x" * (65_536 - size)})) is None
    large = form(a={**TEXT, "title": "x" * (65_537 - size)})
    assert form_problem(large) == "a form takes at most 65536 bytes"


REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    (TEXT, 3, "is 3, it must be a text"),
    ({**TEXT, "minLength": 2}, "x", 'is "x", it must be a text of at least 2 characters'),
    ({**TEXT, "maxLength": 2}, "xyz", 'is "xyz", it must be a text of at most 2 characters'),
    ({**TEXT, "enum": COLOURS}, "blue", 'is "blue", it must be one of "red", "green"'),
    ({**TEXT, "format": "email"}, "@", 'is "@", it must be an address such as a@example.org'),
    ({**TEXT, "format": "uri"}, "x", 'is "x", it must be a URI such as https://example.org'),
    ({"type": "integer"}, 7.5, "is 7.5, it must be a whole number"),
    ({"type": "integer"}, "x", 'is "x", it must be a whole number'),
    ({"type": "number"}, "x", 'is "x", it must be a number'),
    ({"type": "number"}, True, "is true, it must be a number"),
    ({"type": "number"}, None, "is null, it must be a number"),
    ({"type": "number", "minimum": 3}, 2.9, "is 2.9, it must be at least 3"),
    ({"type": "number", "maximum": 3}, 3.1, "is 3.1, it must be at most 3"),
    ({"type": "boolean"}, "maybe", 'is "maybe", it must be yes or no'),
    (
        {"type": "array", "items": {"enum": COLOURS}, "minItems": 2},
        ["red"],
        'is an array, it must be at least 2 of "red", "green"',
    ),
    (
        {"type": "array", "items": {"enum": COLOURS}, "maxItems": 1},
        COLOURS,
        'is an array, it must be at most 1 of "red", "green"',
    ),
    (
        {"type": "array", "items": {"enum": COLOURS}},
        ["red", 3],
        'is an array, it must be some of "red", "green"',
    ),
]


@pytest.mark.parametrize(("field", "given", "words"), REFUSED, ids=str)
def test_what_does_not_fit_is_told_in_these_words(field: Any, given: Any, words: str) -> None:
    assert filled(form(a=field), {"a": given}) == f'"a" {words}'


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ({**TEXT, "minLength": 2}, "xy"),
        ({**TEXT, "maxLength": 2}, "xy"),
        ({"type": "number", "minimum": 3}, 3),
        ({"type": "number", "maximum": 3}, 3.0),
        ({"type": "array", "items": {"enum": COLOURS}, "minItems": 2}, COLOURS),
        ({"type": "array", "items": {"enum": COLOURS}, "maxItems": 2}, COLOURS),
        ({"type": "array", "items": {"enum": COLOURS}}, []),
    ],
    ids=str,
)
def test_what_is_just_at_a_bound_of_its_field_fits(field: Any, given: Any) -> None:
    assert filled(form(a=field), {"a": given}) == {"a": given}


def test_what_a_form_does_not_have_is_told_with_what_it_has() -> None:
    assert filled(form(a=TEXT, b=TEXT), {"zzzzz": 1}) == (
        'the form has no field "zzzzz"; there are "a", "b"'
    )
    assert filled(form("a", "b", a=TEXT, b=TEXT), {}) == 'the form wants "a", "b" too'
    assert form_problem(form(a={"type": "null"})) == (
        'the field "a" of a form has one of the types string, number, integer, boolean, array'
    )
    assert (
        form_problem(form(a={"type": "array"})) == 'the field "a" is a list of choices and has none'
    )
