"""Definitions as strict clients take them: one odd field costs itself, and no list.

What fits is returned as it is, the same object. What was done to all else is added to `problems`,
as clauses.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin

import msgspec
from msgspec import UNSET

from protocol.mcp_server.output_schema import output_fault
from protocol.mcp_server.shapes import OLDER_SCHEMA, SCHEMA, TOOL, TOP
from protocol.problem import described, quoted

_fields = cache(msgspec.structs.fields)


def fits(value: object, shape: Any) -> bool:
    """Tell whether a value has a shape."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return False
    return True


def mended(value: dict[str, Any], shape: Any, problems: list[str]) -> dict[str, Any]:
    """Return an object without its optional fields that are null or do not fit."""
    if fits(value, shape):
        return value
    found = dict(value)
    for field in _fields(shape):
        name = field.encode_name
        if name not in value:
            continue
        one = _fitting(value[name], field.type, problems)
        if one is not UNSET:
            found[name] = one
        elif not field.required:
            problems.append(f"{name!r} is {described(value[name])} and is left out")
            del found[name]
    return found


def _fitting(value: Any, wanted: Any, problems: list[str]) -> Any:
    """Return a value, perhaps mended, or UNSET."""
    if fits(value, wanted):
        return value
    for one in get_args(wanted) if isinstance(wanted, UnionType) else (wanted,):
        if isinstance(value, dict) and hasattr(one, "__struct_fields__"):
            found = mended(value, one, problems)
            return found if fits(found, one) else UNSET
        if isinstance(value, list) and get_origin(one) is list:
            fitting = (_fitting(each, get_args(one)[0], problems) for each in value)
            kept = [each for each in fitting if each is not UNSET]
            if len(kept) < len(value):
                problems.append(f"{described(value)} is left with {len(kept)} of {len(value)}")
            return kept
    return UNSET


def mended_tool(tool: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return the definition of a tool as clients of the newest revision take it."""
    found = mended(tool, TOOL, problems)
    schema = found.get("inputSchema")
    if not fits(schema, SCHEMA):
        found = {**found, "inputSchema": _object_schema(schema, SCHEMA, problems)}
    fault = output_fault(found["outputSchema"]) if "outputSchema" in found else None
    return found if fault is None else _without_output(found, fault, problems)


def older_tool(tool: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return a mended definition, of a tool or what has no schemas, as older revisions have it."""
    for name in ("inputSchema", "outputSchema"):
        if name not in tool or fits(tool[name], OLDER_SCHEMA):
            continue
        of = tool[name].get("type")
        if name == "outputSchema" and of != "object":
            fault = f"has {'no type' if of is None else 'the type ' + described(of)}"
            return _without_output(tool, fault, problems)
        tool = {**tool, name: _object_schema(tool[name], OLDER_SCHEMA, problems)}
    return tool


def _without_output(tool: dict[str, Any], fault: str, problems: list[str]) -> dict[str, Any]:
    problems.append(f"'outputSchema' {fault} and is left out")
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def mended_resource(resource: dict[str, Any], shape: Any, problems: list[str]) -> dict[str, Any]:
    """Return the definition of a resource, or of a template; without a name, it has its URI's."""
    if not isinstance(resource.get("name"), str):
        uri = str(resource.get("uri", resource.get("uriTemplate")))
        name = uri.rstrip("/").rpartition("/")[2] or uri
        problems.append(f"'name' is {described(resource.get('name'))} and becomes {quoted(name)}")
        resource = {**resource, "name": name}
    return mended(resource, shape, problems)


def _object_schema(schema: Any, shape: Any, problems: list[str]) -> dict[str, Any]:
    """Return a schema of a tool with the type `object` and, at its top, what a shape wants."""
    if not isinstance(schema, dict):
        problems.append(f'\'inputSchema\' is {described(schema)} and becomes {{"type": "object"}}')
        return {"type": "object"}
    found = mended(schema, TOP, problems)
    if found.get("type") != "object":
        said = described(found["type"]) if "type" in found else "missing"
        problems.append(f"'type' of 'inputSchema' is {said} and becomes \"object\"")
        found = {**found, "type": "object"}
    if fits(found, shape):
        return found
    properties = {}
    for key, one in found["properties"].items():
        properties[key] = one if isinstance(one, dict | bool) else {}
        if properties[key] is not one:
            problems.append(f"the property {quoted(key)} is {described(one)} and takes any value")
        if isinstance(one, bool) and shape is OLDER_SCHEMA:
            properties[key] = {} if one else {"not": {}}
    return {**found, "properties": properties}
