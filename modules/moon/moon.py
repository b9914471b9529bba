"""An MCP server without dependencies: the phase of the moon, as a tool, a resource and a prompt.

It speaks the revision 2026-07-28 (each request says all there is to know) and, for older clients,
those with a handshake. Reads a message a line from stdin, answers on stdout, logs to stderr.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

Json = dict[str, Any]

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
SERVER = {"name": "moon", "version": "1.0.0"}
OFFERS: Json = {"tools": {}, "resources": {}, "prompts": {}}

NEW_MOON = date(2000, 1, 6)
MONTH = 29.530588853
PHASES = (
    "new moon", "waxing crescent", "first quarter", "waxing gibbous",
    "full moon", "waning gibbous", "last quarter", "waning crescent",
)  # fmt: skip

TOOL: Json = {
    "name": "phase",
    "title": "Phase of the moon",
    "description": "Tells the phase of the moon on a day.",
    "inputSchema": {
        "type": "object",
        "properties": {"date": {"type": "string", "description": "A day, such as 2026-11-22."}},
        "required": ["date"],
        "additionalProperties": False,
        "examples": [{"date": "2026-11-22"}],
    },
    "outputSchema": {
        "type": "object",
        "properties": {
            "phase": {"type": "string", "enum": list(PHASES)},
            "age_days": {"type": "number"},
            "lit_percent": {"type": "integer"},
        },
        "required": ["phase", "age_days", "lit_percent"],
    },
    "annotations": {"readOnlyHint": True},
}
RESOURCE: Json = {"uri": "moon://phases", "name": "phases", "mimeType": "text/plain"}
PROMPT: Json = {"name": "tonight", "arguments": [{"name": "date", "required": True}]}


class RequestError(Exception):
    """What is wrong with a request, by JSON-RPC's code."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


def phase(day: str) -> Json:
    age = (date.fromisoformat(day) - NEW_MOON).days % MONTH
    lit = (1 - math.cos(2 * math.pi * age / MONTH)) / 2
    name = PHASES[round(age / MONTH * len(PHASES)) % len(PHASES)]
    return {"phase": name, "age_days": round(age, 1), "lit_percent": round(lit * 100)}


def call_tool(params: Json) -> Json:
    if params.get("name") != TOOL["name"]:
        raise RequestError(-32602, f"there is no tool {params.get('name')!r}")
    try:
        found = phase(params.get("arguments", {})["date"])
    except (KeyError, TypeError, ValueError) as error:
        # What the model got wrong is told to the model.
        return {"content": [text(f"no day: {error}")], "isError": True}
    return {"content": [text(json.dumps(found))], "structuredContent": found}


def read_resource(params: Json) -> Json:
    if params.get("uri") != RESOURCE["uri"]:
        raise RequestError(-32602, f"there is no resource {params.get('uri')!r}")
    return {"contents": [{**RESOURCE, "text": "\n".join(PHASES)}]}


def get_prompt(params: Json) -> Json:
    if params.get("name") != PROMPT["name"]:
        raise RequestError(-32602, f"there is no prompt {params.get('name')!r}")
    day = params.get("arguments", {}).get("date", "today")
    words = f"Tell me in one sentence what the moon is like on {day}."
    return {"messages": [{"role": "user", "content": text(words)}]}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def initialize(params: Json) -> Json:
    asked = params.get("protocolVersion")
    version = asked if asked in LEGACY else LEGACY[0]
    return {"protocolVersion": version, "capabilities": OFFERS, "serverInfo": SERVER}


METHODS: dict[str, Callable[[Json], Json]] = {
    "server/discover": lambda _: {"supportedVersions": [MODERN], "capabilities": OFFERS},
    "initialize": initialize,
    "ping": lambda _: {},
    "tools/list": lambda _: {"tools": [TOOL]},
    "tools/call": call_tool,
    "resources/list": lambda _: {"resources": [RESOURCE]},
    "resources/templates/list": lambda _: {"resourceTemplates": []},
    "resources/read": read_resource,
    "prompts/list": lambda _: {"prompts": [PROMPT]},
    "prompts/get": get_prompt,
}
CACHED = {"ttlMs": 3_600_000, "cacheScope": "public"}


def answer(message: Json) -> Json | None:
    """Return the answer to a request; of a notification there is none."""
    if "id" not in message:
        return None
    params = message.get("params") or {}
    said: Json = {"jsonrpc": "2.0", "id": message["id"]}
    version = params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion")
    try:
        if version not in (None, MODERN):
            data = {"supported": [MODERN], "requested": version}
            error = {"code": -32022, "message": "this revision is not spoken", "data": data}
            return {**said, "error": error}
        method = METHODS.get(str(message.get("method")))
        if method is None:
            raise RequestError(-32601, f"there is no method {message.get('method')!r}")
        result = method(params)
    except RequestError as error:
        return {**said, "error": {"code": error.code, "message": str(error)}}
    if version is not None:
        meta = {"io.modelcontextprotocol/serverInfo": SERVER}
        result = {"resultType": "complete", **result, **CACHED, "_meta": meta}
    return {**said, "result": result}


def main() -> None:
    for line in sys.stdin:
        said = answer(json.loads(line))
        if said is not None:
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
