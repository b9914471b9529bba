"""One MCP server a word, each as users of other hosts have met it. Standard library only."""

# ruff: noqa: A001, A002, N801, RUF012, E501, T201 - the words are names, the lines are what is printed

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

OUT = sys.stdout.buffer


LOCK = threading.Lock()


def raw(data: Any) -> Any:
    with LOCK:
        OUT.write(data if isinstance(data, bytes) else data.encode())
        OUT.flush()


def send(message: Any) -> Any:
    raw(json.dumps(message) + "\n")


def text(words: Any) -> Any:
    return {"content": [{"type": "text", "text": words}]}


class Server:
    """A well-behaved older server; a case overrides what it breaks."""

    version = "2025-06-18"
    capabilities: dict[str, Any] = {"tools": {}}
    tools: list[dict[str, Any]] = [
        {"name": "echo", "description": "e", "inputSchema": {"type": "object"}}
    ]
    others_error = True

    def write(self, message: Any) -> Any:
        send(message)

    def initialize(self, params: Any) -> Any:
        return {
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "serverInfo": {"name": "zoo", "version": "1"},
        }

    def list(self, params: Any) -> Any:
        return {"tools": self.tools}

    def call(self, params: Any, id: Any) -> Any:
        return text(json.dumps(params, ensure_ascii=False, sort_keys=True))

    def other(self, message: Any) -> Any:
        return None

    def initialized(self) -> Any:
        pass

    def run(self) -> Any:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self.take(message)
        self.ended()

    def ended(self) -> Any:
        pass

    def take(self, message: Any) -> Any:
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            result = self.initialize(message["params"])
        elif method == "notifications/initialized":
            self.initialized()
            return
        elif method == "tools/list":
            result = self.list(message.get("params") or {})
        elif method == "tools/call":
            result = self.call(message["params"], id)
        elif method == "ping":
            result = {}
        else:
            if method is None or id is None:
                self.other(message)
                return
            result = self.other(message)
            if result is None:
                self.write(
                    {
                        "jsonrpc": "2.0",
                        "id": id,
                        "error": {"code": -32601, "message": f"no {method}"},
                    }
                )
                return
        if result is not None:
            self.write({"jsonrpc": "2.0", "id": id, "result": result})


CASES: dict[str, Any] = {}


def case(cls: Any) -> Any:
    CASES[cls.__name__] = cls
    return cls


@case
class plain(Server):
    pass


def tool(name: Any, schema: Any, **more: Any) -> Any:
    return {"name": name, "description": name, "inputSchema": schema, **more}


@case
class schemas(Server):
    tools: list[dict[str, Any]] = [
        tool("good", {"type": "object"}),
        tool(
            "anyof_top",
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
        ),
        tool("anyof_notype", {"anyOf": [{"type": "object", "required": ["a"]}]}),
        tool("null_schema", None),
        {"name": "no_schema", "description": "x"},
        tool("bool_schema", True),
        tool("empty_schema", {}),
        tool("type_list", {"type": ["object", "null"]}),
        tool("dangling_in", {"type": "object", "properties": {"x": {"$ref": "#/$defs/Gone"}}}),
        tool(
            "dangling_out",
            {"type": "object"},
            outputSchema={"type": "object", "properties": {"x": {"$ref": "#/$defs/Gone"}}},
        ),
        tool("untyped_out", {"type": "object"}, outputSchema={"$id": "x.v1", "description": "any"}),
        tool(
            "array_out",
            {"type": "object"},
            outputSchema={"type": "array", "items": {"type": "string"}},
        ),
        tool("null_out", {"type": "object"}, outputSchema=None),
        tool(
            "remote_ref",
            {"type": "object", "properties": {"x": {"$ref": "https://example.invalid/x.json"}}},
        ),
        tool(
            "draft07_tuple",
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "definitions": {
                    "P": {
                        "type": "array",
                        "items": [{"type": "string"}, {"type": "number"}],
                        "additionalItems": False,
                    }
                },
                "properties": {"p": {"$ref": "#/definitions/P"}},
                "required": ["p"],
            },
        ),
        tool(
            "tuple_noschema",
            {
                "type": "object",
                "properties": {
                    "p": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]}
                },
            },
        ),
        tool(
            "draft04",
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "type": "object",
                "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
            },
        ),
        tool(
            "draft07_https",
            {"$schema": "https://json-schema.org/draft-07/schema#", "type": "object"},
        ),
        tool(
            "required_bool",
            {"type": "object", "properties": {"a": {"type": "string", "required": True}}},
        ),
        tool(
            "bad_type",
            {"type": "object", "properties": {"f": {"type": "file"}, "g": {"type": "any"}}},
        ),
        tool(
            "js_pattern",
            {
                "type": "object",
                "properties": {
                    "e": {
                        "type": "string",
                        "pattern": "^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$",
                    }
                },
            },
        ),
        tool(
            "js_named",
            {
                "type": "object",
                "properties": {"y": {"type": "string", "pattern": "^(?<year>\\d{4})$"}},
            },
        ),
        tool(
            "zod_email",
            {
                "type": "object",
                "properties": {
                    "m": {
                        "type": "string",
                        "format": "email",
                        "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
                    }
                },
            },
        ),
        tool(
            "bad_regex",
            {"type": "object", "properties": {"e": {"type": "string", "pattern": "(["}}},
        ),
        tool(
            "zod_int",
            {
                "type": "object",
                "properties": {
                    "n": {
                        "type": "integer",
                        "minimum": -9007199254740991,
                        "maximum": 9007199254740991,
                    }
                },
            },
        ),
        tool(
            "go_nullable",
            {
                "type": "object",
                "properties": {"tags": {"type": ["null", "array"], "items": {"type": "string"}}},
            },
        ),
        tool(
            "recursive",
            {
                "type": "object",
                "$defs": {
                    "N": {
                        "type": "object",
                        "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
                    }
                },
                "properties": {"n": {"$ref": "#/$defs/N"}},
            },
        ),
    ]


@case
class intids(Server):
    """Has a number where the id stands, as many hand-written servers have (they are tried with SDKs, which count)."""

    def take(self, message: Any) -> Any:
        if "id" in message and not isinstance(message["id"], int):
            kind = sys.argv[2]
            if kind == "parse":  # as serde, Jackson and encoding/json do with a typed field
                print(
                    f"parse error: invalid type: string {message['id']!r}, expected u64",
                    file=sys.stderr,
                    flush=True,
                )
                send(
                    {
                        "jsonrpc": "2.0",
                        "id": None,
                        "error": {"code": -32700, "message": "Parse error"},
                    }
                )
                return
            if kind == "exit":
                sys.exit(f"id {message['id']!r} is no number")
            if kind == "zero":  # C: atoi
                message = {**message, "id": 0}
        super().take(message)


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


RESULTS: dict[str, Any] = {
    "content_string": {"content": "Hello"},
    "no_content": {"task": "x", "bullets": [1, 2]},
    "wrapped": {"toolResult": {"content": [{"type": "text", "text": "inner"}]}},
    "content_null": {"content": None},
    "content_strings": {"content": ["a", "b"]},
    "empty_and_structured": {"content": [], "structuredContent": {"total": 36}},
    "structured_null": {"content": [{"type": "text", "text": "t"}], "structuredContent": None},
    "empty": {"content": []},
    "bare_string": "just text",
    "bare_null": None,
    "bare_list": [{"type": "text", "text": "x"}],
    "iserror_null": {"content": [{"type": "text", "text": "fine"}], "isError": None},
    "iserror_structured": {
        "content": [{"type": "text", "text": "no such path"}],
        "isError": True,
        "structuredContent": {"error": {"code": "gone"}},
    },
    "iserror_empty": {"content": [], "isError": True},
    "unknown_block": {
        "content": [{"type": "chart", "data": [1, 2]}, {"type": "text", "text": "t"}]
    },
    "text_number": {"content": [{"type": "text", "text": 42}]},
    "image_data_url": {
        "content": [
            {"type": "image", "data": "data:image/png;base64," + PNG, "mimeType": "image/png"}
        ]
    },
    "image_no_mime": {"content": [{"type": "image", "data": PNG}]},
    "image_jpg": {"content": [{"type": "image", "data": PNG, "mimeType": "image/jpg"}]},
    "image_empty": {"content": [{"type": "image", "data": "", "mimeType": "image/png"}]},
    "resource_no_mime": {
        "content": [{"type": "resource", "resource": {"uri": "a://b", "text": "x"}}]
    },
    "nul": {"content": [{"type": "text", "text": "a\0b"}]},
}


@case
class results(Server):
    tools: list[dict[str, Any]] = [tool(name, {"type": "object"}) for name in RESULTS] + [
        tool(
            "out_missing",
            {"type": "object"},
            outputSchema={
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
            },
        ),
        tool(
            "out_mismatch",
            {"type": "object"},
            outputSchema={
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
            },
        ),
        tool(
            "out_error",
            {"type": "object"},
            outputSchema={
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
            },
        ),
    ]

    def call(self, params: Any, id: Any) -> Any:
        name = params["name"]
        if name == "out_missing":
            return text("only text")
        if name == "out_mismatch":
            return {**text("{}"), "structuredContent": {"b": 1}}
        if name == "out_error":
            return {**text("real reason"), "isError": True, "structuredContent": {"error": "x"}}
        if RESULTS[name] is None:
            send({"jsonrpc": "2.0", "id": id, "result": None})
            return None
        return RESULTS[name]


LINES = {
    "lone_surrogate": '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"cut \\ud83d"}]}}',
    "nan": '{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"a":NaN}}}',
    "u2028": '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"a\u2028b\u2029c\u0085d\x7f"}]}}',
    "rawtab": '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"a\tb\x1bc"}]}}',
    "noversion": '{"id":%s,"result":{"content":[{"type":"text","text":"no jsonrpc"}]}}',
    "string_id": '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"id as given"}]}}',
    "error_null": '{"jsonrpc":"2.0","id":%s,"error":null,"result":{"content":[{"type":"text","text":"error null"}]}}',
    "result_null": '{"jsonrpc":"2.0","id":%s,"result":null,"error":{"code":-32000,"message":"both"}}',
    "error_string": '{"jsonrpc":"2.0","id":%s,"error":"just words"}',
    "error_nocode": '{"jsonrpc":"2.0","id":%s,"error":{"message":"no code"}}',
    "error_strcode": '{"jsonrpc":"2.0","id":%s,"error":{"code":"E_GONE","message":"text code"}}',
    "error_nullid": '{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"lost the id"}}',
    "batch": '[{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"in a batch"}]}}]',
    "ansi": '\x1b[?25h{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"after an escape"}]}}',
    "prefix": 'INFO done {"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"after words"}]}}',
    "crlf": '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"crlf"}]}}\r',
    "bom": '\ufeff{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"bom"}]}}',
    "pretty": '{\n  "jsonrpc": "2.0",\n  "id": %s,\n  "result": {"content": []}\n}',
    "framed": 'Content-Length: 57\r\n\r\n{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"lsp"}]}}',
    "duplicate": '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"first"}]}}',
}


@case
class lines(Server):
    """Answers a call with the line of that name, as it stands there."""

    tools: list[dict[str, Any]] = [tool(name, {"type": "object"}) for name in LINES]

    def call(self, params: Any, id: Any) -> Any:
        line = LINES[params["name"]]
        given = str(id) if params["name"] == "string_id" else id
        raw((line % json.dumps(given) if "%s" in line else line) + "\n")
        if params["name"] == "duplicate":
            raw(line.replace("first", "second") % json.dumps(id) + "\n")


@case
class slowstart(Server):
    def run(self) -> Any:
        time.sleep(float(sys.argv[2]))
        super().run()


@case
class slow(Server):
    """Serial, as most hand-written servers: a slow call, then a fast one."""

    tools: list[dict[str, Any]] = [
        tool("slow", {"type": "object", "properties": {"s": {"type": "number"}}}),
        tool("fast", {"type": "object"}),
    ]

    def call(self, params: Any, id: Any) -> Any:
        if params["name"] == "slow":
            time.sleep(params.get("arguments", {}).get("s", 5))
        return text(params["name"])


@case
class resources(Server):
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}

    def other(self, message: Any) -> Any:
        method, who = message.get("method"), sys.argv[2]
        if method == "resources/list":
            return {"resources": [{"uri": "config://app", "name": f"config of {who}"}]}
        if method == "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "db://{table}", "name": f"db of {who}"}]}
        if method == "resources/read":
            uri = message["params"]["uri"]
            if who == "two" and "only-one" in uri:
                send(
                    {
                        "jsonrpc": "2.0",
                        "id": message["id"],
                        "error": {"code": -32002, "message": "not mine"},
                    }
                )
                return None
            return {"contents": [{"uri": uri, "text": f"from {who}"}]}
        if method == "prompts/list":
            return {"prompts": [{"name": "review"}]}
        if method == "prompts/get":
            return {
                "messages": [{"role": "user", "content": {"type": "text", "text": f"from {who}"}}]
            }
        return None

    def take(self, message: Any) -> Any:
        if (
            message.get("method") == "resources/read"
            and sys.argv[2] == "two"
            and "only-one" in message["params"]["uri"]
        ):
            send(
                {
                    "jsonrpc": "2.0",
                    "id": message["id"],
                    "error": {"code": -32002, "message": "not mine"},
                }
            )
            return
        super().take(message)


@case
class changing(Server):
    tools: list[dict[str, Any]] = [tool("add", {"type": "object"})]

    def call(self, params: Any, id: Any) -> Any:
        if params["name"] == "add":
            self.tools = [*self.tools, tool(f"t{len(self.tools)}", {"type": "object"})]
            if "quiet" not in sys.argv:
                for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
                    send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text(params["name"])


@case
class idle_exit(Server):
    """Ends by itself, with 0, two seconds after the last request."""

    def run(self) -> Any:
        def alarm(*_: Any) -> Any:
            os._exit(0)

        signal.signal(signal.SIGALRM, alarm)
        signal.alarm(2)
        for line in sys.stdin.buffer:
            signal.alarm(2)
            self.take(json.loads(line))


if __name__ == "__main__":
    CASES[sys.argv[1]]().run()
