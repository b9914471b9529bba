"""Make args for an op from its JSON Schema: the least that it asks for.

The schema's own `examples`, `default`, `const` and `enum` come first. The result is checked by the
whole schema in `args_schema`, so a keyword that is not understood here (`pattern`, `not`) leads to
no args, never to wrong ones.
"""

from __future__ import annotations

from typing import Any

from protocol.args_schema import ArgsSchema
from protocol.descriptor.model import Hook

DEPTH = 16
"""A schema that refers to itself again and again is left at this depth."""

_OF_FORMAT = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "somebody@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
    "hostname": "example.org",
}


def sample_args(schema: Any) -> dict[str, Any] | None:
    root = schema if isinstance(schema, dict) else {}
    made = _sample({"type": "object", **root}, root, DEPTH)
    if not isinstance(made, dict) or ArgsSchema(schema).fault(made) is not None:
        return None
    return made


def sample_event(hook: Hook) -> dict[str, Any]:
    if not hook.gate:
        name = hook.observe[0].replace("*", "invoke")
        return {"event": name, "data": {"id": "1", "ts": 0, "event": name, "component": "check"}}
    call = {"tool_name": "dice", "op": "roll", "tool_input": {"dice": "2d6"}}
    outcomes: dict[str, dict[str, Any]] = {
        "tool:post": {"result": {"rolls": [3, 4], "total": 7}},
        "tool:error": {"error": {"code": "internal", "message": "no dice", "details": {}}},
    }
    whence = {"session_id": None, "request_id": "r1"}
    event = str(hook.gate[0])
    return {"event": event, "data": {**call, **outcomes.get(event, {}), **whence}}


def _sample(schema: Any, root: dict[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth == 0:
        return "text"
    for keyword in ("examples", "enum"):
        if schema.get(keyword):
            return schema[keyword][0]
    for keyword in ("default", "const"):
        if keyword in schema:
            return schema[keyword]
    if "$ref" in schema:
        return _sample(_resolved(schema["$ref"], root), root, depth - 1)
    merged = dict(schema)
    for keyword in ("anyOf", "oneOf"):
        if schema.get(keyword):
            merged = _merged(merged, schema[keyword][0], root)
    for one in schema.get("allOf", ()):
        merged = _merged(merged, one, root)
    return _of_type(merged, root, depth)


def _of_type(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind is None:
        kind = "object" if "properties" in schema or "required" in schema else "string"
    match kind:
        case "object":
            known = schema.get("properties", {})
            return {
                name: _sample(known.get(name, True), root, depth - 1)
                for name in schema.get("required", ())
            }
        case "array":
            first = schema.get("prefixItems", [])
            items = [_sample(one, root, depth - 1) for one in first]
            while len(items) < min(schema.get("minItems", 0), 1000):
                items.append(_sample(schema.get("items", True), root, depth - 1))
            return items
        case "integer" | "number":
            return _number(schema, whole=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case _:
            text = _OF_FORMAT.get(schema.get("format", ""), "text")
            text = text.ljust(schema.get("minLength", 0), "x")
            return text[: schema.get("maxLength", len(text))]


def _number(schema: dict[str, Any], *, whole: bool) -> float:
    step = schema.get("multipleOf", 1)
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    if least is None:
        most = schema.get("maximum", schema.get("exclusiveMaximum"))
        if most is None or most > step:
            return 1 if step == 1 else step
        least = most - step if "maximum" not in schema else most
    if "minimum" not in schema and "exclusiveMinimum" in schema:
        number = (least // step + 1) * step
    else:
        number = -(-least // step) * step
    return int(number) if whole else number


def _merged(schema: dict[str, Any], other: Any, root: dict[str, Any]) -> dict[str, Any]:
    if isinstance(other, dict) and "$ref" in other:
        other = _resolved(other["$ref"], root)
    if not isinstance(other, dict):
        return schema
    merged = {**schema, **other}
    merged["properties"] = {**schema.get("properties", {}), **other.get("properties", {})}
    merged["required"] = [*schema.get("required", ()), *other.get("required", ())]
    return merged


def _resolved(reference: str, root: dict[str, Any]) -> Any:
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found
