"""What a client may write in each revision of MCP, by the JSON Schemas in `mcp_schemas`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

FOLDER = Path(__file__).parent / "mcp_schemas"

RESULTS = {
    "ping": "EmptyResult",
    "roots/list": "ListRootsResult",
    "elicitation/create": "ElicitResult",
    "sampling/createMessage": "CreateMessageResult",
}
"""What answers a request of a server's."""

OPEN = {"ClientCapabilities", "MetaObject", "RequestMetaObject", "Result"}
"""What may have fields that a schema does not name, as it says itself."""

FRAME = {"jsonrpc": {"const": "2.0"}, "id": {"type": "string"}}
"""What each line has beside what the schemas of older revisions have of a request."""


def check(line: dict[str, Any], revision: str, asked: str | None) -> None:
    """Hold a line to the schema of a revision; `asked` is the method that it answers."""
    if "method" in line:
        _validator(revision, _definition_of(revision, line["method"])).validate(line)
        return
    assert line.keys() in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
    assert line["jsonrpc"] == "2.0"
    if "error" in line:
        assert type(line["error"]["code"]) is int
        assert type(line["error"]["message"]) is str
    else:
        assert asked is not None
        _validator(revision, RESULTS[asked]).validate(line["result"])


@cache
def _schema(revision: str) -> dict[str, Any]:
    """Return a schema with its definitions under `$defs`, and closed."""
    text = (FOLDER / f"{revision}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text.replace("#/definitions/", "#/$defs/"))
    found = schema.pop("definitions", None) or schema["$defs"]
    if "ElicitResult" in found:
        # `string | number | boolean | string[]` in the schema.ts that this was made of, where it
        # became an integer; the forms of the same revision may ask for a number.
        content = found["ElicitResult"]["properties"]["content"]
        values = [content["additionalProperties"], {"type": "number"}]
        content["additionalProperties"] = {"anyOf": values}
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


def _definition_of(revision: str, method: str) -> str:
    """Return the definition of what a client may send under a method: one there is."""
    (found,) = {
        name
        for name in _of_client(revision)
        if _schema(revision)["$defs"][name]["properties"]["method"]["const"] == method
    }
    return found


def _of_client(revision: str) -> Iterator[str]:
    for union in ("ClientRequest", "ClientNotification"):
        members = _schema(revision)["$defs"][union].get("anyOf")
        if members is None:
            yield union
        else:
            yield from (one["$ref"].rpartition("/")[2] for one in members)


@cache
def _validator(revision: str, definition: str) -> Validator:
    schema = _schema(revision)
    made: Validator = validator_for(schema)({**schema, "$ref": f"#/$defs/{definition}"})
    return made
