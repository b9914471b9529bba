"""An MCP server of the era that its first argument names: `modern`, `legacy`, or `both`.
The second argument is its one resource, as in `note://one`.

The tool `do` takes steps as the puppet does: ["say", MESSAGE] writes a message of JSON-RPC with
the id in place of "$ID", ["progress", N], ["log", TEXT], ["text", TEXT], ["result", OBJECT],
["error", CODE, MESSAGE], ["grow"] (one more tool, and word of it), ["ask", MESSAGE], ["exit", N],
["wait"] (reads the next message, and logs it).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ERA = sys.argv[1]
NOTE = f"note://{sys.argv[2]}"
INFO = {"name": "server", "version": "1.0"}
CAPABILITIES = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "logging": {}}
TOOLS: list[dict[str, Any]] = [
    {"name": "do", "description": "Does it", "inputSchema": {"type": "object"}},
    {
        "name": "add",
        "title": "Add",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
        "outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}},
        "annotations": {"readOnlyHint": True},
    },
]


def write(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def step(identity: Any, token: Any, what: str, *words: Any) -> dict[str, Any] | None:
    match what, *words:
        case "say", message:
            print(json.dumps(message).replace('"$ID"', json.dumps(identity)), flush=True)
        case "progress", number:
            params = {"progressToken": token, "progress": number, "total": 3}
            write({"method": "notifications/progress", "params": params})
        case "log", text:
            params = {"level": "info", "data": text}
            write({"method": "notifications/message", "params": params})
        case "text", text:
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case "result", result:
            return {"result": result}
        case "error", code, message:
            return {"error": {"code": code, "message": message}}
        case ("grow",):
            TOOLS.append({"name": f"more{len(TOOLS)}", "inputSchema": {"type": "object"}})
            write({"method": "notifications/tools/list_changed"})
        case "ask", message:
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            params = {"message": message, "requestedSchema": schema}
            write({"id": "ask", "method": "elicitation/create", "params": params})
            while (said := json.loads(sys.stdin.readline())).get("id") != "ask":
                pass
            text = json.dumps(said.get("result", said.get("error")))
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case ("wait",):
            heard = json.loads(sys.stdin.readline())
            print("heard", heard.get("method"), file=sys.stderr, flush=True)
        case "exit", code:
            os._exit(code)
    return None


def call(message: dict[str, Any], params: dict[str, Any]) -> dict[str, Any] | None:
    args = params.get("arguments") or {}
    if params["name"] == "add":
        total = args["a"] + args["b"]
        text = [{"type": "text", "text": str(total)}]
        return {"result": {"content": text, "structuredContent": {"sum": total}}}
    for words in args.get("steps", []):
        token = (params.get("_meta") or {}).get("progressToken")
        answer = step(message["id"], token, *words)
        if answer is not None:
            return answer
    return {"result": {"content": []}} if "steps" not in args else None


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    params = message.get("params") or {}
    match message["method"]:
        case "server/discover" if ERA != "legacy":
            versions = ["2026-07-28"] + (["2025-11-25"] if ERA == "both" else [])
            told = {"supportedVersions": versions, "capabilities": CAPABILITIES, "serverInfo": INFO}
            return {
                "result": {**told, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            }
        case "initialize" if ERA != "modern":
            told = {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES}
            return {"result": {**told, "serverInfo": INFO, "instructions": "Be kind."}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "prompts/list":
            arguments = [{"name": "who", "required": True}]
            return {"result": {"prompts": [{"name": "greet", "arguments": arguments}]}}
        case "prompts/get":
            content = {"type": "text", "text": f"Hello, {params['arguments']['who']}"}
            return {"result": {"messages": [{"role": "user", "content": content}]}}
        case "resources/list":
            return {"result": {"resources": [{"uri": NOTE, "name": "one"}]}}
        case "resources/templates/list":
            return {"result": {"resourceTemplates": []}}
        case "resources/read":
            if params["uri"] != NOTE:
                return {"error": {"code": -32002, "message": "Resource not found"}}
            return {"result": {"contents": [{"uri": NOTE, "text": "a note"}]}}
        case "tools/call":
            return call(message, params)
    return {"error": {"code": -32601, "message": "Method not found"}}


while line := sys.stdin.readline():
    said = json.loads(line)
    if "id" in said and "method" in said:
        answered = answer(said)
        if answered is not None:
            if ERA != "legacy" and "result" in answered:
                answered["result"].setdefault("resultType", "complete")
            write({"id": said["id"], **answered})
