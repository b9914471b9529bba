"""The schemas of the OpenAPI document: those of `schemas/`, in the words that generators read.

Programs that make types of a document leave `if` and `then` out, and with them which fields go
together. Where such a condition asks for the value of one field, its cases become schemas of their
own, and the whole one of these (`cases`): as strict, and a discriminated union in most languages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import schemas
from protocol.journal_event import REGISTRY

Schema = dict[str, Any]

HERE = "#/components/schemas/"

CASES: Mapping[str, tuple[str, Mapping[Any, str]]] = {
    "response.v1": ("InvokeResponse", {True: "InvokeSuccess", False: "InvokeFailure"}),
    "invoke-reply.v1": ("ModuleReply", {True: "ModuleSuccess", False: "ModuleFailure"}),
    "narratoria-event.v0": (
        "WireEvent",
        {
            "log": "LogEvent",
            "state_patch": "StatePatchEvent",
            "asset": "AssetEvent",
            "ui_event": "UiEvent",
            "error": "ErrorEvent",
            "done": "DoneEvent",
        },
    ),
}
"""The documents with cases: the name of the whole, and of each case by its value."""

WHOLE: Mapping[str, str] = {
    "error.v1": "ErrorV1",
    "health-reply.v1": "Health",
    "describe-reply.v1": "Description",
}
"""Further schemas that routes answer with."""

NAMES = {**WHOLE, **{document: name for document, (name, _) in CASES.items()}}


def components() -> dict[str, Schema]:
    """Return the schemas by the names that routes have for them."""
    found: dict[str, Schema] = within("http-answers.v1")["$defs"]
    found |= {name: within(document) for document, name in WHOLE.items()}
    for document, (name, of_value) in CASES.items():
        found |= cases(within(document), name, of_value)
    found["RegisteredEntry"] = {
        "description": "An entry of the journal with a name of its registry: by `event`.",
        "oneOf": [
            _registered(event, paths, found["JournalEntry"]) for event, paths in REGISTRY.items()
        ],
    }
    return dict(sorted(found.items()))


def within(document: str) -> Schema:
    """Return a document of `schemas/` with the references of an OpenAPI document."""
    whole: Schema = _referring(schemas.load(document))
    return {key: value for key, value in whole.items() if key not in ("$schema", "$id")}


def cases(whole: Schema, name: str, of_value: Mapping[Any, str]) -> dict[str, Schema]:
    """Split a schema with conditions on one field; returns the schema of each case, and the whole.

    The conditions are `if` and its branches, or an `allOf` of such.
    """
    shared = {key: one for key, one in whole.items() if key not in _CONDITIONS}
    found: dict[str, Schema] = {}
    for value, case in of_value.items():
        one = {key: part for key, part in shared.items() if key not in ("title", "description")}
        for part in ({"properties": {_field_of(whole): {"const": value}}}, *_parts(whole, value)):
            one = _both(one, part)
        found[case] = one
    said: Schema = {key: whole[key] for key in ("title", "description") if key in whole}
    return {name: {**said, "oneOf": [{"$ref": HERE + one} for one in found]}, **found}


_CONDITIONS = ("if", "then", "else", "allOf", "$defs")


def _conditions(whole: Schema) -> list[Schema]:
    conditions: list[Schema] = whole.get("allOf", [whole])
    return conditions


def _field_of(whole: Schema) -> str:
    (field,) = _conditions(whole)[0]["if"]["properties"]
    return str(field)


def _parts(whole: Schema, value: Any) -> Iterator[Schema]:
    """Yield the schemas that hold for a value of the field."""
    for one in _conditions(whole):
        ((asked),) = one["if"]["properties"].values()
        part = one.get("then" if asked["const"] == value else "else", {})
        if "$ref" in part:  # to a definition of the document itself
            part = whole["$defs"][part["$ref"].rpartition("/")[2]]
        yield part


def _both(one: Schema, other: Schema) -> Schema:
    """Return the schema of values that fit both; only `const` and `false` need care."""
    properties = dict(one.get("properties", {}))
    for name, field in other.get("properties", {}).items():
        alone = name not in properties or field is False or "const" in field
        properties[name] = field if alone else {**properties[name], **field}
    required = dict.fromkeys([*one.get("required", ()), *other.get("required", ())])
    return {**one, **other, "required": list(required), "properties": properties}


def _referring(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _reference(one) if key == "$ref" else _referring(one) for key, one in value.items()
        }
    return [_referring(one) for one in value] if isinstance(value, list) else value


def _reference(to: str) -> str:
    return HERE + (NAMES[to] if to in NAMES else to.rpartition("/")[2])


def _registered(event: str, paths: tuple[str, ...], entry: Schema) -> Schema:
    """Return the schema of entries of that name, with the fields that the registry requires."""
    fields: Schema = {
        path: entry["properties"][path] for path in paths if not path.startswith("data.")
    }
    data: Schema = {path.removeprefix("data."): {} for path in paths if path.startswith("data.")}
    if data:
        fields["data"] = {"type": "object", "properties": data, "required": list(data)}
    fields["event"] = {"const": event}
    own = {"type": "object", "required": list(fields), "properties": fields}
    return {"allOf": [{"$ref": f"{HERE}JournalEntry"}, own]}
