"""What either side may write in each revision of MCP, by the JSON Schemas in `mcp_schemas`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from protocol.dialects.mcp.vocabulary import MODERN

FOLDER = Path(__file__).parent / "mcp_schemas"

RESULTS = {
    "ping": "EmptyResult",
    "roots/list": "ListRootsResult",
    "elicitation/create": "ElicitResult",
    "sampling/createMessage": "CreateMessageResult",
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "completion/complete": "CompleteResult",
    "logging/setLevel": "EmptyResult",
}
"""What answers a request of the other side's."""

ERRORS = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
"""Those that the newer era has a definition of its own of."""

OF_CLIENT = ("ClientRequest", "ClientNotification")
OF_SERVER = ("ServerRequest", "ServerNotification")

OPEN = {"ClientCapabilities", "MetaObject", "RequestMetaObject", "Result"}
"""What may have fields that a schema does not name, as it says itself."""

FRAME = {"jsonrpc": {"const": "2.0"}, "id": {"type": "integer"}}
"""What each line has beside what the schemas of older revisions have of a request."""


def check(line: dict[str, Any], revision: str, asked: str | None) -> None:
    """Hold a client's line to the schema of a revision; `asked` is the method that it answers."""
    if "method" in line:
        _validator(revision, _definition_of(revision, OF_CLIENT, line["method"])).validate(line)
        return
    assert line.keys() in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    assert line["jsonrpc"] == "2.0"
    if "error" in line:
        assert type(line["error"]["code"]) is int
        assert type(line["error"]["message"]) is str
    else:
        assert asked is not None
        _validator(revision, RESULTS[asked]).validate(line["result"])


def check_of_server(line: dict[str, Any], revision: str, asked: str | None) -> None:
    """Hold a server's line to the schema of a revision; `asked` is the method that it answers.

    What modules say in it may have fields that no schema names; what is the server's own may not.
    """
    if "error" in line:
        # Only the newest two have a form for an error that is to no request.
        _validator(MODERN, "JSONRPCErrorResponse").validate(line)
        definition = ERRORS.get(line["error"]["code"])
        if definition is not None:
            _validator(MODERN, definition, closed=False).validate(line)
        return
    if "method" in line:
        definition, said = _definition_of(revision, OF_SERVER, line["method"]), line
    else:
        assert line.keys() == {"jsonrpc", "id", "result"}, line
        assert asked is not None, f"nobody asked for {line}"
        definition, said = RESULTS[asked], line["result"]
        if revision == MODERN and said.get("resultType") == "input_required":
            definition = "InputRequiredResult"
    _validator(revision, definition, closed=False).validate(said)
    named = _open_schema(revision)["$defs"][definition].get("properties", {})
    if revision >= "2025-06-18" and named:
        assert said.keys() <= named.keys() | {"jsonrpc", "id"}, (definition, said)


@cache
def _open_schema(revision: str) -> dict[str, Any]:
    """Return a schema with its definitions under `$defs`."""
    text = (FOLDER / f"{revision}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text.replace("#/definitions/", "#/$defs/"))
    found = schema.pop("definitions", None) or schema["$defs"]
    if "ElicitResult" in found:
        # `string | number | boolean | string[]` in the schema.ts that this was made of, where it
        # became an integer; the forms of the same revision may ask for a number.
        content = found["ElicitResult"]["properties"]["content"]
        values = [content["additionalProperties"], {"type": "number"}]
        content["additionalProperties"] = {"anyOf": values}
    return {**schema, "$defs": found}


@cache
def _schema(revision: str) -> dict[str, Any]:
    """Return a schema that is closed, too."""
    schema = _open_schema(revision)
    found = schema["$defs"]
    return {**schema, "$defs": {name: _closed(one, name) for name, one in found.items()}}


def _closed(value: Any, name: str = "") -> Any:
    """Allow no other fields than those that are named."""
    if isinstance(value, list):
        return [_closed(one) for one in value]
    if not isinstance(value, dict):
        return value
    closed = {key: _closed(one, key) for key, one in value.items()}
    fields = closed.get("properties")
    if isinstance(fields, dict) and "type" in value and name not in {*OPEN, "_meta"}:
        closed.setdefault("additionalProperties", False)
        if name == "params":
            fields.setdefault("_meta", {"type": "object"})
        if "method" in fields:
            closed["properties"] = {**FRAME, **fields}
    return closed


def _definition_of(revision: str, unions: tuple[str, ...], method: str) -> str:
    """Return the definition of what may be sent under a method: one there is."""
    definitions = _open_schema(revision)["$defs"]
    (found,) = {
        name
        for name in _members(definitions, unions)
        if definitions[name]["properties"]["method"]["const"] == method
    }
    return found


def _members(definitions: dict[str, Any], unions: tuple[str, ...]) -> Iterator[str]:
    for union in unions:
        members = definitions.get(union, {"anyOf": []}).get("anyOf")
        if members is None:
            yield union
        else:
            yield from (one["$ref"].rpartition("/")[2] for one in members)


@cache
def _validator(revision: str, definition: str, *, closed: bool = True) -> Validator:
    schema = _schema(revision) if closed else _open_schema(revision)
    made: Validator = validator_for(schema)({**schema, "$ref": f"#/$defs/{definition}"})
    return made
