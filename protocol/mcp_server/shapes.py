"""The shapes that SDKs check: for one object that does not fit, they refuse its list or result.

A shape names the members that have a type, and allows all others. None of them may be null. With a
type may stand what takes the place of a value that cannot be mended: a function of it (UNSET if it
is missing) and of the URI that was to be read; where that has nothing either, it returns UNSET.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import cached_property, partial
from types import GenericAlias
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import UNSET

from protocol.frames import encode
from protocol.plain_schema import TYPES
from protocol.problem import described

MEMBERS: dict[Any, dict[str, tuple[Kind, bool]]] = {}
"""The members of each shape, and whether they are needed."""


class Kind:
    """A type, taken apart."""

    def __init__(self, of: Any) -> None:
        self._whole = of
        self.otherwise = next(filter(callable, getattr(of, "__metadata__", ())), None)
        of = of if self.otherwise is None else of.__origin__
        self.item = Kind(get_args(of)[0]) if get_origin(of) is list else None
        self.shapes = [one for one in get_args(of) or (of,) if one in MEMBERS]

    @cached_property
    def whole(self) -> Any:
        """A shape of it alone: msgspec takes all other types apart each time."""
        return msgspec.defstruct("Whole", [("value", self._whole)])


def _shape(name: str, needed: Any, *, tag: Any = None, check: Any = None, **optional: Any) -> Any:
    fields: list[Any] = [(re.sub(r"\W", "_", member), of) for member, of in needed.items()]
    fields += [(re.sub(r"\W", "_", member), of, UNSET) for member, of in optional.items()]
    names = dict(zip((one[0] for one in fields), needed | optional, strict=True))
    own: Any = {"tag": tag, "tag_field": tag and "type", "rename": names, "module": __name__}
    own["namespace"] = None if check is None else {"__post_init__": check}
    shape = msgspec.defstruct(name, fields, kw_only=True, **own)
    MEMBERS[shape] = {one: (Kind(of), one in needed) for one, of in (needed | optional).items()}
    return shape


def _list(of: Any) -> Any:
    return GenericAlias(list, (of,))


def _listed(of: Any) -> Any:
    return Annotated[_list(of), _as_list]


def _as_list(value: Any, _: str) -> list[Any]:
    return value if isinstance(value, list) else [] if value in (None, UNSET) else [value]


def _text(value: Any, _: str = "") -> str:
    """Return what a model can read of a value."""
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
"""An absolute one: pydantic's `AnyUrl` refuses others."""
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
_ENTRY: Any = {"title": str, "description": str, "icons": _list(_ICON), "_meta": dict}
_TEMPLATE = {**_ENTRY, "mimeType": str, "annotations": _NOTES}
_RESOURCE = {**_TEMPLATE, "size": int}
PROMPT = Kind(_shape("Prompt", {}, **_ENTRY, arguments=_list(_ARGUMENT)))
TEMPLATE = Kind(_shape("Template", {"name": _NAME}, **_TEMPLATE))
RESOURCE = Kind(_shape("Resource", {"name": _NAME}, **_RESOURCE))

_PROPERTIES: Any = Annotated[dict[str, dict[str, Any] | bool], partial(_properties, {})]
_OBJECT: Any = Annotated[Literal["object"], lambda *_: "object"]
_TOP: Any = {"properties": _PROPERTIES, "required": list[str], "$schema": str}
_INPUT: Any = Annotated[_shape("Input", {"type": _OBJECT}, **_TOP), lambda *_: {"type": "object"}]
_TOOL: Any = {"outputSchema": dict, "annotations": _BEHAVIOUR, "execution": _EXECUTION}
TOOL = Kind(_shape("Tool", {"inputSchema": _INPUT}, **_ENTRY, **_TOOL))

_OLDER: Any = Annotated[
    dict[str, dict[str, Any]], partial(_properties, {True: {}, False: {"not": {}}})
]
_OLDER_SCHEMA = _shape("OlderSchema", {"type": Literal["object"]}, properties=_OLDER)
OLDER_TOOL = Kind(_shape("OlderTool", {}, inputSchema=_OLDER_SCHEMA, outputSchema=_OLDER_SCHEMA))
"""What a tool that fits `TOOL` has to be before 2026-07-28."""

# Results, by the method.


def _block(value: Any, _: str) -> Any:
    if isinstance(value, dict) and "type" not in value and "text" in value:
        return {"type": "text", **value}
    return UNSET if value is None else {"type": "text", "text": _text(value)}


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
    lambda value, _: UNSET if isinstance(value, dict) else {"content": value},
]
_VALUES: Any = _shape("Values", {"values": _listed(str)}, total=int, hasMore=bool)
_COMPLETION: Any = Annotated[_VALUES, lambda *_: {"values": []}]
_TASK: Any = {"progressToken": str | int, "io.modelcontextprotocol/related-task": dict}
_META: Any = {"_meta": _shape("Meta", {}, **_TASK)}
RESULTS = {
    "tools/call": Kind(_shape("Called", {"content": _listed(_BLOCK)}, isError=bool, **_META)),
    "prompts/get": Kind(_shape("Got", {"messages": _listed(_MESSAGE)}, description=str, **_META)),
    "resources/read": Kind(_shape("Read", {"contents": _listed(_CONTENTS)}, **_META)),
    "completion/complete": Kind(_shape("Completed", {"completion": _COMPLETION}, **_META)),
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
"""Of ECMA-262 with the flag `u`. To compile a pattern would tell more, and takes far longer."""


def _can_be_compiled(schema: Any) -> None:
    patterns = [*(schema.patternProperties or ()), *([schema.pattern] if schema.pattern else [])]
    for one in patterns:
        plain = _QUOTED.sub("", one)
        if not _PATTERN.fullmatch(one) or plain.count("(") != plain.count(")"):
            raise ValueError(f"the pattern {described(one)} is none of JavaScript's")
    if schema.nullable is not UNSET and schema.type is UNSET:
        raise ValueError("nullable without a type")


_TYPE: Any = Literal[TYPES]


def _json_schema(name: str, items: str) -> Any:
    one, number = f"{name} | bool", int | float
    many, named = f"list[{one}]", f"dict[str, {one}]"
    return _shape(
        name,
        {},
        check=_can_be_compiled,
        items=f"{one}{items}",
        type=_TYPE | _list(_TYPE),
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


NEWEST_SCHEMA = _json_schema("NEWEST_SCHEMA", "")
OLDER_DIALECT = _json_schema("OLDER_DIALECT", " | list[OLDER_DIALECT | bool]")
"""Before 2020-12, where `items` may be those of a tuple."""
