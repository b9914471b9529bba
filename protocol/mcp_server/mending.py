"""Definitions and results as strict clients take them: one odd field costs itself, no more.

The shapes are those that SDKs hold entries to: for one entry that does not fit, they refuse the
whole list, or the whole result. What fits is returned as it is, the same object.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from protocol.mcp_server.output_schema import output_fault
from protocol.problem import described, quoted

Text = str | UnsetType
Flag = bool | UnsetType
AnyObject = dict[str, Any] | UnsetType


class Shape(msgspec.Struct, rename="camel"):
    """What is checked of an object; all else may be there."""


class Icon(Shape):
    """Of an entry of any list."""

    src: str
    mime_type: Text = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Literal["light", "dark"] | UnsetType = UNSET


class Annotations(Shape):
    """Of a resource, or of content."""

    audience: list[Literal["user", "assistant"]] | UnsetType = UNSET
    priority: Annotated[float, msgspec.Meta(ge=0, le=1)] | UnsetType = UNSET
    last_modified: Annotated[datetime, msgspec.Meta(tz=True)] | UnsetType = UNSET


class Titled(Shape):
    """What entries of all lists may have."""

    title: Text = UNSET
    description: Text = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: AnyObject = msgspec.field(default=UNSET, name="_meta")


class Hints(Shape):
    """The annotations of a tool."""

    title: Text = UNSET
    read_only_hint: Flag = UNSET
    destructive_hint: Flag = UNSET
    idempotent_hint: Flag = UNSET
    open_world_hint: Flag = UNSET


class Execution(Shape):
    """How a tool may be called."""

    task_support: Literal["required", "optional", "forbidden"] | UnsetType = UNSET


class ToolEntry(Titled):
    """A tool, but for its name and schemas."""

    annotations: Hints | UnsetType = UNSET
    execution: Execution | UnsetType = UNSET


class Argument(Shape):
    """Of a prompt."""

    name: str
    title: Text = UNSET
    description: Text = UNSET
    required: Flag = UNSET


class Prompt(Titled):
    """A prompt, but for its name."""

    arguments: list[Argument] | UnsetType = UNSET


class TemplateEntry(Titled, kw_only=True):
    """Resources that are named by a pattern."""

    name: str
    mime_type: Text = UNSET
    annotations: Annotations | UnsetType = UNSET


class Resource(TemplateEntry):
    """A resource, but for its URI."""

    size: int | UnsetType = UNSET


class Top(Shape):
    """The top of a schema of args, but for its type."""

    properties: AnyObject = UNSET
    required: list[str] | UnsetType = UNSET
    schema: Text = msgspec.field(default=UNSET, name="$schema")


class ObjectSchema(Top, kw_only=True):
    """The schema of args, from 2026-07-28 on."""

    type: Literal["object"]
    properties: dict[str, dict[str, Any] | bool] | UnsetType = UNSET


class OlderSchema(Top, kw_only=True):
    """The same before 2026-07-28: `true` and `false` are no schemas of a property."""

    type: Literal["object"]
    properties: dict[str, dict[str, Any]] | UnsetType = UNSET


def fits(value: object, shape: Any) -> bool:
    """Tell whether a value has a shape."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return False
    return True


def mended(value: dict[str, Any], shape: type[Shape], problems: list[str]) -> dict[str, Any]:
    """Return an object without its optional fields that are null or do not fit.

    `problems` are told of these, as clauses. A field that has to be there is left as it is.
    """
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


_fields = cache(msgspec.structs.fields)


def _fitting(value: Any, wanted: Any, problems: list[str]) -> Any:
    """Return a value, perhaps mended, or UNSET."""
    for one in get_args(wanted) if isinstance(wanted, UnionType) else (wanted,):
        if one is UnsetType:
            continue
        if fits(value, one):
            return value
        if isinstance(one, type) and issubclass(one, Shape) and isinstance(value, dict):
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
    found = mended(tool, ToolEntry, problems)
    schema = found.get("inputSchema")
    mended_schema = object_schema(schema, ObjectSchema, "inputSchema", problems)
    if mended_schema is not schema:
        found = {**found, "inputSchema": mended_schema}
    fault = output_fault(found["outputSchema"]) if "outputSchema" in found else None
    if fault is not None:
        problems.append(f"'outputSchema' {fault} and is left out")
        found = {key: value for key, value in found.items() if key != "outputSchema"}
    return found


def older_tool(tool: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return a mended definition, of a tool or what has no schemas, as older revisions have it."""
    found, output = tool, tool.get("outputSchema")
    if "inputSchema" in tool and not fits(tool["inputSchema"], OlderSchema):
        schema = object_schema(tool["inputSchema"], OlderSchema, "inputSchema", problems)
        found = {**found, "inputSchema": schema}
    if output is None or fits(output, OlderSchema):
        return found
    if output.get("type") == "object":
        output = object_schema(output, OlderSchema, "outputSchema", problems)
        return {**found, "outputSchema": output}
    said = described(output["type"]) if "type" in output else "missing"
    problems.append(f"'type' of 'outputSchema' is {said}, so the schema is left out")
    return {key: value for key, value in found.items() if key != "outputSchema"}


def mended_resource(
    resource: dict[str, Any], shape: type[TemplateEntry], problems: list[str]
) -> dict[str, Any]:
    """Return the definition of a resource, or of a template; without a name, it has its URI's."""
    if not isinstance(resource.get("name"), str):
        uri = str(resource.get("uri", resource.get("uriTemplate")))
        name = uri.rstrip("/").rpartition("/")[2] or uri
        problems.append(f"'name' is {described(resource.get('name'))} and becomes {quoted(name)}")
        resource = {**resource, "name": name}
    return mended(resource, shape, problems)


def object_schema(schema: Any, shape: type[Top], name: str, problems: list[str]) -> dict[str, Any]:
    """Return a schema that has `"type": "object"` and, at its top, what a shape wants."""
    if fits(schema, shape):
        return schema  # type: ignore[no-any-return]
    if not isinstance(schema, dict):
        problems.append(f'{name!r} is {described(schema)} and becomes {{"type": "object"}}')
        return {"type": "object"}
    found = mended(schema, Top, problems)
    if found.get("type") != "object":
        said = described(found["type"]) if "type" in found else "missing"
        problems.append(f"'type' of {name!r} is {said} and becomes \"object\"")
        found = {**found, "type": "object"}
    if fits(found, shape):
        return found
    properties: dict[str, Any] = {}
    for key, one in found["properties"].items():
        if isinstance(one, bool) and shape is OlderSchema:
            properties[key] = {} if one else {"not": {}}
        elif isinstance(one, dict | bool):
            properties[key] = one
        else:
            problems.append(f"the property {quoted(key)} is {described(one)} and takes any value")
            properties[key] = {}
    return {**found, "properties": properties}
