"""Definitions and results as strict clients accept them: only the odd member is lost.

SDKs refuse a list or result for one object that does not fit its shape. A shape names the members
that have a type, and allows all others; none of them may be null. A type may have a
substitute for a value that cannot be mended: a function of the value (UNSET if it is missing) and
of the URI that was to be read; without a substitute either, it returns UNSET.

A value that fits is returned as the same object. In others, odd members are left out, or become the
substitute of their type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property, partial
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import unquote

import msgspec
from msgspec import UNSET

from protocol.args_schema import TYPES
from protocol.dialects.mcp.vocabulary import MODERN
from protocol.frames import encode
from protocol.problem import described, literal, quoted

MEMBERS: dict[Any, dict[str, tuple[JsonType, bool]]] = {}
"""The members of each shape, and whether they are required."""


class JsonType:
    """A type annotation in its parts."""

    def __init__(self, of: Any) -> None:
        self._whole = of
        self.otherwise = next(filter(callable, getattr(of, "__metadata__", ())), None)
        of = of if self.otherwise is None else of.__origin__
        self.item = JsonType(get_args(of)[0]) if get_origin(of) is list else None
        self.shapes = [one for one in get_args(of) or (of,) if one in MEMBERS]

    @cached_property
    def whole(self) -> Any:
        """A shape with this one member: msgspec analyses types that are no shape at each use."""
        return msgspec.defstruct("Whole", [("value", self._whole)])


def _shape(name: str, needed: Any, *, tag: Any = None, check: Any = None, **optional: Any) -> Any:
    fields: list[Any] = [(re.sub(r"\W", "_", member), of) for member, of in needed.items()]
    fields += [(re.sub(r"\W", "_", member), of, UNSET) for member, of in optional.items()]
    names = dict(zip((one[0] for one in fields), needed | optional, strict=True))
    own: Any = {"tag": tag, "tag_field": tag and "type", "rename": names, "module": __name__}
    own["namespace"] = None if check is None else {"__post_init__": check}
    shape = msgspec.defstruct(name, fields, kw_only=True, **own)
    MEMBERS[shape] = {one: (JsonType(of), one in needed) for one, of in (needed | optional).items()}
    return shape


_list: Any = list  # for types that mypy cannot know


def _listed(of: Any) -> Any:
    return Annotated[_list[of], as_list]


def as_list(value: Any, _: str = "") -> list[Any]:
    """Return an array; None or a single value become one."""
    return value if isinstance(value, list) else [] if value in (None, UNSET) else [value]


def _text(value: Any, _: str = "") -> str:
    """Return the text that a model can read of a value."""
    said = "" if value in (None, UNSET) else value
    return said if isinstance(said, str) else encode(said).decode()


def _properties(said: dict[bool, Any], value: Any, _: str) -> Any:
    if not isinstance(value, dict):
        return UNSET
    return {
        key: said.get(one, one) if isinstance(one, bool) else one if isinstance(one, dict) else {}
        for key, one in value.items()
    }


_URI_FORM = "^[A-Za-z][A-Za-z0-9+.-]*:"
_URI = Annotated[str, msgspec.Meta(pattern=_URI_FORM)]
"""An absolute URI: pydantic's `AnyUrl` refuses others."""
_NAME = Annotated[str, lambda _, uri: uri.rstrip("/").rpartition("/")[2] or uri]

# Definitions, but for the names of tools and prompts, and the URIs of resources.

_ICON = _shape("Icon", {"src": str}, mimeType=str, sizes=list[str], theme=Literal["light", "dark"])
_AUDIENCE = list[Literal["user", "assistant"]]
_PART = Annotated[float, msgspec.Meta(ge=0, le=1)]
_MOMENT = Annotated[datetime, msgspec.Meta(tz=True)]
_NOTES = _shape("Notes", {}, audience=_AUDIENCE, priority=_PART, lastModified=_MOMENT)
_HINTS: Any = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_BEHAVIOUR = _shape("Behaviour", {}, title=str, **dict.fromkeys(_HINTS, bool))
_EXECUTION = _shape("Execution", {}, taskSupport=Literal["required", "optional", "forbidden"])
_ARGUMENT = _shape("Argument", {"name": str}, title=str, description=str, required=bool)
_ENTRY: Any = {"title": str, "description": str, "icons": _list[_ICON], "_meta": dict}
_TEMPLATE = {**_ENTRY, "mimeType": str, "annotations": _NOTES}
_RESOURCE = {**_TEMPLATE, "size": int}
PROMPT = JsonType(_shape("Prompt", {}, **_ENTRY, arguments=_list[_ARGUMENT]))
TEMPLATE = JsonType(_shape("Template", {"name": _NAME}, **_TEMPLATE))
RESOURCE = JsonType(_shape("Resource", {"name": _NAME}, **_RESOURCE))

_PROPERTIES: Any = Annotated[dict[str, dict[str, Any] | bool], partial(_properties, {})]
_OBJECT: Any = Annotated[Literal["object"], lambda *_: "object"]
_DEFS: Any = {"$defs": dict, "definitions": dict, "additionalProperties": dict | bool}
_TOP: Any = {"properties": _PROPERTIES, "required": list[str], "$schema": str, **_DEFS}
_TOP |= {"title": str, "description": str}
_INPUT: Any = Annotated[_shape("Input", {"type": _OBJECT}, **_TOP), lambda *_: {"type": "object"}]
_TOOL: Any = {"outputSchema": dict, "annotations": _BEHAVIOUR, "execution": _EXECUTION}
TOOL = JsonType(_shape("Tool", {"inputSchema": _INPUT}, **_ENTRY, **_TOOL))

_OLDER: Any = Annotated[
    dict[str, dict[str, Any]], partial(_properties, {True: {}, False: {"not": {}}})
]
_OLDER_SCHEMA = _shape("OlderSchema", {"type": Literal["object"]}, properties=_OLDER)
_OLDER_TOOL = JsonType(
    _shape("OlderTool", {}, inputSchema=_OLDER_SCHEMA, outputSchema=_OLDER_SCHEMA)
)
"""Further demands on a tool in revisions before 2026-07-28, beside those of `TOOL`."""

# Results, by the method.


def _block(value: Any, _: str) -> Any:
    if isinstance(value, dict) and "type" not in value and "text" in value:
        return {"type": "text", **value}
    return UNSET if value in (None, UNSET) else {"type": "text", "text": _text(value)}


def _contents(value: Any, _: str) -> Any:
    if isinstance(value, dict) and isinstance(value.get("blob"), str):
        return value
    said = value if isinstance(value, dict) else {"text": value}
    return {**said, "text": _text(said.get("text", said))}


def _need_body(contents: Any) -> None:
    if contents.text is contents.blob is UNSET:
        raise ValueError("no text, and no blob")


_READ_URI: Any = Annotated[
    _URI, lambda own, uri: own if isinstance(own, str) and not re.match(_URI_FORM, uri) else uri
]
_BODY: Any = {"text": str, "blob": str, "mimeType": str, "_meta": dict}
_CONTENTS: Any = Annotated[
    _shape("Contents", {"uri": _READ_URI}, **_BODY, check=_need_body), _contents
]
_ANY: Any = {"annotations": _NOTES, "_meta": dict}
_DATA = {"data": str, "mimeType": Annotated[str, lambda *_: "application/octet-stream"]}
_BLOCK: Any = Annotated[
    _shape("Text", {"text": Annotated[str, _text]}, tag="text", **_ANY)
    | _shape("Image", _DATA, tag="image", **_ANY)
    | _shape("Audio", _DATA, tag="audio", **_ANY)
    | _shape("Embedded", {"resource": _CONTENTS}, tag="resource", **_ANY)
    | _shape("Link", {"uri": _URI, "name": _NAME}, tag="resource_link", **_RESOURCE),
    _block,
]
_ROLE: Any = Annotated[Literal["user", "assistant"], lambda *_: "user"]
_MESSAGE: Any = Annotated[
    _shape("Message", {"role": _ROLE, "content": _BLOCK}),
    lambda value, _: UNSET if isinstance(value, dict | None) else {"content": value},
]
_VALUES: Any = _shape("Values", {"values": _listed(str)}, total=int, hasMore=bool)
_COMPLETION: Any = Annotated[_VALUES, lambda *_: {"values": []}]
_TASK: Any = {"progressToken": str | int, "io.modelcontextprotocol/related-task": dict}
_META: Any = {"_meta": _shape("Meta", {}, **_TASK)}
RESULTS = {
    "tools/call": JsonType(_shape("Called", {"content": _listed(_BLOCK)}, isError=bool, **_META)),
    "prompts/get": JsonType(
        _shape("Got", {"messages": _listed(_MESSAGE)}, description=str, **_META)
    ),
    "resources/read": JsonType(_shape("Read", {"contents": _listed(_CONTENTS)}, **_META)),
    "completion/complete": JsonType(_shape("Completed", {"completion": _COMPLETION}, **_META)),
}

# JSON Schema, as far as clients have to compile it: they do so with each output schema (ajv,
# without its meta-schema) when they get a list, or at each call.

_ESCAPE = (
    r"\\(?:[dDwWsSbBfnrtv\d^$\\.*+?()\[\]{}|/]|c[a-zA-Z]|x[\da-fA-F]{2}|u[\da-fA-F]{4}"
    r"|u\{[\da-fA-F]+\}|[pP]\{\w[^{}]*\}|k<\w+>)"
)
_CLASS = rf"\[(?:(?!\\[dDwWsSpP](?:\{{[^{{}}]*\}})?-[^\]])(?:{_ESCAPE}|\\-|[^\\\]]))*+\]"
_QUOTED = re.compile(f"{_ESCAPE}|{_CLASS}")
_PATTERN = re.compile(
    rf"(?:(?:{_ESCAPE}|{_CLASS}|\)|[^\\\[\](){{}}*+?|^$])(?:(?:[*+?]|\{{\d+(?:,\d*)?\}})\??)?"
    r"|\((?:\?(?:[:=!]|<[=!]|<\w+>))?|[|^$])*+"
)
"""ECMA-262 with the flag `u`. Compiling a pattern would tell more, and takes far longer."""


def _can_be_compiled(schema: Any) -> None:
    patterns = [*(schema.patternProperties or ()), *([schema.pattern] if schema.pattern else [])]
    for one in patterns:
        # In this order: where no `]` closes them, a search for classes takes quadratic time.
        good = _PATTERN.fullmatch(one) is not None
        plain = _QUOTED.sub("", one) if good else ""
        if not good or plain.count("(") != plain.count(")"):
            raise ValueError(f"the pattern {described(one)} is none of JavaScript's")
    if schema.nullable is not UNSET and schema.type is UNSET:
        raise ValueError("nullable without a type")


def _json_schema(name: str, items: str) -> Any:
    one, number, types = f"{name} | bool", int | float, Literal[TYPES]
    many, named = f"list[{one}]", f"dict[str, {one}]"
    return _shape(
        name,
        {},
        check=_can_be_compiled,
        items=f"{one}{items}",
        type=types | _list[types],
        enum=Annotated[list, msgspec.Meta(min_length=1)],
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), many),
        **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), named),
        **dict.fromkeys(("$defs", "definitions"), named),
        **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames"), one),
        **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "unevaluatedItems"), one),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), number),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "multipleOf"), number),
        **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), number),
        **dict.fromkeys(("$id", "$anchor", "$ref", "$dynamicRef", "format", "pattern"), str),
        **dict.fromkeys(("dependencies", "dependentRequired"), dict),
        **dict.fromkeys(("uniqueItems", "nullable"), bool),
        required=list,
    )


Newest = _json_schema("Newest", "")
Older = _json_schema("Older", " | list[Older | bool]")
"""Before 2020-12, where `items` may be the schemas of a tuple."""

_DIALECT = re.compile(r"(https?://json-schema\.org/draft(-0[67]|/20(19-09|20-12))/schema#?)?")
_REFERENCE = re.compile(rb'"\$(ref|id|anchor)":("(?:[^"\\]|\\.)*+")')


def _fits(value: Any, kind: JsonType) -> bool:
    try:
        msgspec.convert({"value": value}, kind.whole)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def mended(value: Any, kind: JsonType, uri: str = "") -> Any:
    """Return a value mended to a kind, or UNSET; `uri` is the one that was read."""
    if _fits(value, kind):
        return value
    found = _mended_inside(value, kind, uri)
    if found is not value and _fits(found, kind):
        return found
    return _mended_inside(kind.otherwise(value, uri), kind, uri) if kind.otherwise else UNSET


def _mended_inside(value: Any, kind: JsonType, uri: str) -> Any:
    if isinstance(value, list) and kind.item is not None:
        each = (mended(one, kind.item, uri) for one in value)
        return [one for one in each if one is not UNSET]
    if not isinstance(value, dict) or not kind.shapes:
        return value
    found = dict(value)
    for shape in kind.shapes:
        if shape.__struct_config__.tag in (None, value.get("type")):
            if "name" in MEMBERS[shape]:  # which its own URI has
                uri = str(value.get("uri", value.get("uriTemplate", "")))
            for name, (of, is_needed) in MEMBERS[shape].items():
                if is_needed or name in value:
                    found[name] = mended(value.get(name, UNSET), of, uri)
                    if found[name] is UNSET:
                        del found[name]
    return found


def changes(before: Any, after: Any, at: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            one, other = before.get(key, UNSET), after.get(key, UNSET)
            if one is not other:
                yield from changes(one, other, f"{at}.{key}" if at else key)
    elif after is not UNSET and type(before) is not bool:  # which says the same, as a schema
        said = "missing" if before is UNSET else literal(before)
        yield f"'{at}' is {said} and becomes {literal(after)}"
    elif after is UNSET:
        why = output_fault(before) if at == "outputSchema" and isinstance(before, dict) else None
        yield f"'{at}' is {literal(before)} and is left out{f': {why}' if why else ''}"


def strict_definition(entry: dict[str, Any], kind: JsonType) -> dict[str, Any]:
    """Return a definition as clients of the newest revision accept it."""
    found: dict[str, Any] = mended(entry, kind)
    if kind is TOOL and "outputSchema" in found and output_fault(found["outputSchema"]):
        return {key: value for key, value in found.items() if key != "outputSchema"}
    return found


def definition_for(revision: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return a definition of the newest revision in the form of another one."""
    found: dict[str, Any] = entry if revision == MODERN else mended(entry, _OLDER_TOOL)
    return found


def output_fault(output: dict[str, Any]) -> str | None:
    """Return why clients cannot compile an output schema, as a clause; None if they can."""
    dialect = output.get("$schema", "")
    if not isinstance(dialect, str) or not _DIALECT.fullmatch(dialect):
        return f"no client knows the dialect {literal(dialect)}"
    try:
        msgspec.convert(output, Newest if "2020" in dialect or not dialect else Older)
        found = [
            (kind, msgspec.json.decode(one)) for kind, one in _REFERENCE.findall(encode(output))
        ]
    except (msgspec.ValidationError, RecursionError) as error:
        return str(error)
    names = {"", *(one for kind, one in found if kind != b"ref")}
    for kind, one in found:
        if kind == b"ref" and not _leads(output, one, names):
            return f"the reference {quoted(one)} leads nowhere"
    return None


def _leads(at: Any, reference: str, names: set[str]) -> bool:
    base, _, fragment = reference.partition("#")
    if base not in names or not fragment.startswith("/"):
        return base in names and fragment in names
    try:
        for step in unquote(fragment).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            at = at[int(name) if isinstance(at, list) else name]
    except (LookupError, TypeError, ValueError):
        return False
    return True


def strict_result(method: str, result: Mapping[str, Any], uri: object = "") -> Mapping[str, Any]:
    """Return the result of a method as strict clients accept it; `uri` is the one that was read."""
    kind = RESULTS.get(method)
    if kind is None or _fits(result, kind):
        return result
    found: dict[str, Any] = _mended_inside(result, kind, str(uri or ""))
    return found


# Answers in older revisions: content without a form there becomes words, or is left out.
# Structured content and output schemas that are of no object, and true and false as schemas of a
# property, came with 2026-07-28.

_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}

OLDEST_WITH_ALL = max(_SINCE.values())


def result_for(revision: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
    if revision == MODERN:
        return result
    if not isinstance(result.get("structuredContent", {}), dict):
        result = {key: value for key, value in result.items() if key != "structuredContent"}
    if revision >= OLDEST_WITH_ALL:
        return result
    content, messages = result.get("content"), result.get("messages")
    if isinstance(content, list):
        result = {**result, "content": [_block_for(revision, one) for one in content]}
    if isinstance(messages, list):
        result = {**result, "messages": [_message_for(revision, one) for one in messages]}
    return result


def _message_for(revision: str, message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {**message, "content": _block_for(revision, message.get("content"))}


def _block_for(revision: str, block: Any) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in _SINCE or revision >= _SINCE[kind]:
        return block
    named = block.get("uri") or block.get("mimeType") or "of no type"
    words = f"({kind}: {named}; the revision {revision} of MCP has no form for it)"
    return {"type": "text", "text": words}
