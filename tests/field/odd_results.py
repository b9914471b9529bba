"""Servers whose definitions and results are odd in more ways than those of `servers.py`."""

# ruff: noqa: N801, RUF012 - the words are names, and what a server offers is fixed

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # it is run with -I

from tests.field import servers

OBJECT: dict[str, Any] = {"type": "object"}
TEXT = {"type": "text", "text": "t"}
PNG = servers.PNG
LONG = "QUJD" * 40
URLSAFE = "_-8" * 8


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": name, "inputSchema": OBJECT, **fields}


def properties(value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": value}


TOOLS = [
    tool("good"),
    tool("top_array", inputSchema={"type": "array"}),
    tool("one_of", inputSchema={"oneOf": [{"type": "object"}, {"type": "object"}]}),
    tool("schema_list", inputSchema=[]),
    tool("schema_text", inputSchema="object"),
    tool("props_list", inputSchema=properties([])),
    tool("props_null", inputSchema=properties(None)),
    tool("props_text", inputSchema=properties("none")),
    tool("prop_null", inputSchema=properties({"a": None, "b": {"type": "string"}})),
    tool("prop_list", inputSchema=properties({"a": ["string"]})),
    tool("prop_bools", inputSchema=properties({"a": True, "b": False})),
    tool("required_null", inputSchema={**OBJECT, "required": None}),
    tool("required_true", inputSchema={**OBJECT, "required": True}),
    tool("required_mixed", inputSchema={**properties({"a": {}}), "required": ["a", 1, None]}),
    tool("dialect_number", inputSchema={**OBJECT, "$schema": 7}),
    tool("nulls", title=None, annotations=None, icons=None, execution=None, _meta=None),
    tool("description_null", description=None),
    tool("hint_text", annotations={"title": "x", "readOnlyHint": "yes", "idempotentHint": None}),
    tool("icons_object", icons={"src": "a"}),
    tool("icon_odd", icons=[{"src": "data:,", "sizes": "any"}, {"mimeType": "image/png"}, None]),
    tool("execution_text", execution="optional"),
    tool("title_number", title=5),
    tool("meta_list", _meta=[]),
    tool("out_list", outputSchema=[]),
    tool("out_text", outputSchema="object"),
    tool("out_props_list", outputSchema=properties([])),
    tool("out_bool_prop", outputSchema=properties({"a": True})),
    tool("out_pattern", outputSchema=properties({"a": {"type": "string", "pattern": "(["}})),
    tool("out_type", outputSchema=properties({"a": {"type": "file"}})),
    tool("out_required", outputSchema=properties({"a": {"type": "string", "required": True}})),
    tool("out_remote", outputSchema=properties({"a": {"$ref": "https://example.invalid/x"}})),
    tool("out_null_inside", outputSchema={**OBJECT, "additionalProperties": None}),
    tool("out_anyof", outputSchema={"anyOf": [OBJECT]}),
]


def image(data: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "image", "data": data, "mimeType": "image/png", **fields}]}


RESULTS: dict[str, Any] = {
    "lines": image("\r\n".join([PNG[:40], PNG[40:]])),
    "unpadded": image(PNG.rstrip("=")),
    "urlsafe": image(URLSAFE),
    "data_url": {"content": [{"type": "image", "data": f"data:image/gif;base64,{PNG}"}]},
    "data_url_blob": {
        "content": [
            {
                "type": "resource",
                "resource": {"uri": "a://b", "blob": f"data:text/x;charset=utf-8;base64,{PNG}"},
            }
        ]
    },
    "audio_url": {"content": [{"type": "audio", "data": f"DATA:audio/wav;BASE64,{PNG}"}]},
    "no_base64": image("no base64!"),
    "url_of_text": image("data:image/svg+xml,<svg/>"),
    "own_id": {
        "content": [{"type": "image", "data": "?", "assetId": "x", "mimeType": "image/png"}]
    },
    "shared": {
        **image(LONG),
        "structuredContent": {
            "image": {"data": LONG, "name": "n"},
            "again": [LONG],
            "short": "QUJD",
        },
    },
    "block_nulls": {
        "content": [{**TEXT, "_meta": None, "annotations": None}],
        "_meta": None,
        "structuredContent": None,
        "isError": None,
    },
    "annotations_odd": {"content": [{**TEXT, "annotations": {"audience": None, "priority": 7}}]},
    "content_object": {"content": TEXT},
    "content_number": {"content": 5},
    "mixed": {"content": ["a", None, 5, {"text": "untyped"}, TEXT]},
    "link_unnamed": {"content": [{"type": "resource_link", "uri": "a://b/c"}]},
    "resource_bare": {"content": [{"type": "resource", "resource": {"uri": "a://b"}}]},
    "wrapped_text": {"toolResult": "inner"},
    "nothing": {},
    "error_text": {"content": [TEXT], "isError": "true"},
    "error_one": {"content": [TEXT], "isError": 1},
    "error_words": {"content": "what went wrong", "isError": "yes"},
    "error_false": {"content": [TEXT], "isError": False},
    "breaks": {"content": [{"type": "text", "text": "a\u2028b\u2029c\u0085d"}]},
}


@servers.case
class definitions(servers.Server):
    capabilities: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
    tools = TOOLS

    def other(self, message: dict[str, Any]) -> Any:
        match message["method"]:
            case "prompts/list":
                return {
                    "prompts": [
                        {"name": "good"},
                        {"name": "nulls", "title": None, "description": None, "arguments": None},
                        {"name": "args_object", "arguments": {"a": 1}},
                        {"name": "args_odd", "arguments": [{"name": "a", "required": None}, "b"]},
                    ]
                }
            case "resources/list":
                return {
                    "resources": [
                        {"uri": "a://good", "name": "good"},
                        {"uri": "a://un/named.txt", "mimeType": None, "annotations": None},
                        {"uri": "a://c", "name": None, "size": 1.5, "mimeType": 5},
                        {"uri": "a://d", "name": "d", "annotations": {"priority": 7}},
                    ]
                }
            case "resources/templates/list":
                return {"resourceTemplates": [{"uriTemplate": "t://{a}", "description": None}]}
            case "prompts/get":
                return {"description": None, "messages": [{"role": "system", "content": "words"}]}
            case "resources/read":
                return {"contents": [{"text": "no uri", "mimeType": None}]}
        return None


@servers.case
class odd_results(servers.Server):
    tools = [tool(name) for name in RESULTS]

    def call(self, params: dict[str, Any], id: Any) -> Any:  # noqa: A002 - as its base has it
        del id
        return RESULTS[params["name"]]


@servers.case
class many(servers.Server):
    """2,000 tools, in less than 1 MiB."""

    tools = [tool(f"t{number}") for number in range(2000)]


if __name__ == "__main__":
    servers.CASES[sys.argv[1]]().run()
