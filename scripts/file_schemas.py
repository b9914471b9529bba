"""Write the JSON Schemas of the files that people write, from the code and the manual.

The rules and defaults of a descriptor are those of `protocol.descriptor.model`; the shapes of the
configuration and of the policy are those of the code that reads them. Each description is the
field's row in docs/descriptor.md or docs/operating.md (of a view, in docs/mcp-clients.md). A test
compares the files with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from protocol.descriptor.model import NUL, WHENCE, Descriptor, Timeouts
from protocol.descriptor.shape import DESCRIPTOR, URL
from protocol.dialects.registry import DIALECTS
from protocol.merge_patch import merge_into
from protocol.shape import text
from supervisor.daemon.config_file import KEYS
from supervisor.policy.capabilities import Mode

ROOT = Path(__file__).parents[1]

_SHORT_ARRAY = re.compile(r"\[\n\s+([^][{}]*?)\n\s+\]")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_ROW = re.compile(r"^\| `([a-z_.*$]+)` \| (?:[^|]* \| )?(.*) \|$", re.MULTILINE)
"""Of a table on a page: the field, and what it means, which stands in the last column."""


def described(page: str, header: str) -> dict[str, str]:
    """Return what the tables of a page that begin with that header say of each field."""
    _, *tables = (ROOT / page).read_text(encoding="utf-8").split(f"| {header} |")
    rows = "\n\n".join(table.partition("\n\n")[0] for table in tables)
    return {key: _LINK.sub(r"\1", said).replace("`", "") for key, said in _ROW.findall(rows)}


def made(title: str, name: str, **rules: Any) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://stdiod.dev/schemas/{name}",
        "title": title,
        **rules,
    }


# --- Descriptors -------------------------------------------------------------

_BY_DIALECT = {"transport.expand", "transport.lifecycle", "transport.stdout"}
"""Their defaults in the code are those of one dialect."""


def _when(field: str, value: str) -> dict[str, Any]:
    return {"properties": {field: {"const": value}}, "required": [field]}


_LIFECYCLES = [
    {
        "if": _when("protocol", name),
        "then": {"properties": {"lifecycle": {"enum": [str(one) for one in dialect.lifecycles]}}},
    }
    for name, dialect in DIALECTS.items()
]


def _defaults() -> Iterator[dict[str, Any]]:
    """Yield the defaults of `supervision` that are a dialect's own."""
    usual = msgspec.structs.asdict(Timeouts())
    for name, dialect in DIALECTS.items():
        timeouts = msgspec.structs.asdict(dialect.timeouts).items()
        own = {field: {"default": value} for field, value in timeouts if value != usual[field]}
        if own:
            concurrency = {"default": dialect.concurrency}
            members = {"concurrency": concurrency, "timeouts": {"properties": own}}
            spoken = {"transport": _when("protocol", name)}
            then = {"properties": {"supervision": {"properties": members}}}
            yield {"if": {"properties": spoken, "required": ["transport"]}, "then": then}


OBJECTS = {
    "transport": "How it is run, or reached",
    "transport.exec": "For the protocol exec: what each op runs",
    "transport.mcp": "For the protocol mcp: how it is spoken with",
    "hook": "For the kind hook: what it sees, and which invocations it gates",
    "supervision": "How it is watched, bounded and restarted",
    "supervision.backoff": "How long it waits before it is restarted",
    "supervision.timeouts": "How long each thing may take, in seconds",
    "supervision.health": "How an idle process is probed",
    "supervision.limits": "What it may use; null is no limit",
    "supervision.instances": "How many processes there are, and when they are replaced",
}
"""The objects, which have no row on the page: their members have."""

_STDIO_OR_HTTP = {
    "if": _when("type", "stdio"),
    "then": {"required": ["command"]},
    "else": {"required": ["url"], "properties": {"url": {"pattern": URL.pattern}}},
}
_FLAT = {"if": _when("input", "flat"), "then": _when("protocol", "narratoria")}
_WARM = {"properties": {"warm": {"minimum": 1}}, "required": ["warm"]}
_SHORT_LIVED = {
    "anyOf": [_when("protocol", "narratoria"), _when("lifecycle", "per-invocation")],
}
BETWEEN_FIELDS: dict[str, Any] = {
    "properties": {
        "transport": {
            "allOf": [_STDIO_OR_HTTP, _FLAT, *_LIFECYCLES],
            "properties": {"command": {"prefixItems": [text("", forbidden=NUL).schema]}},
        },
        "hook": {
            "anyOf": [
                {"required": [one], "properties": {one: {"minItems": 1}}}
                for one in ("observe", "gate")
            ]
        },
    },
    "dependentSchemas": {
        "hook": {
            "properties": {"kind": {"const": "hook"}, "inputs": {"required": ["on_event"]}},
        }
    },
    "allOf": [*_defaults()],
    "if": {"properties": {"supervision": _WARM}, "required": ["supervision"]},
    "then": {"properties": {"transport": _SHORT_LIVED}},
}
"""The rules of `protocol.descriptor.rules` that JSON Schema has words for."""


def descriptor() -> dict[str, Any]:
    whole = made(
        "stdiod module descriptor v1",
        "stdiod-descriptor.v1",
        description="Module Descriptor v1 plus optional fields. Unknown fields are ignored at "
        "the top level and in transport, and refused in everything within those.",
    )
    whole |= msgspec.json.decode(msgspec.json.encode(DESCRIPTOR.schema))  # a copy without enums
    for path, default in fields():
        home, _, name = path.rpartition(".")
        # What has no value unless it is given has no default that could be written.
        absent = default is msgspec.NODEFAULT or (default is None and not home)
        required = at(whole, home)["required"] if home else ()
        if not absent and path not in _BY_DIALECT and name not in required:
            at(whole, path)["default"] = msgspec.to_builtins(default)
    for path, meaning in (described("docs/descriptor.md", "Field") | OBJECTS).items():
        at(whole, path)["description"] = meaning
    merge_into(whole, BETWEEN_FIELDS)
    return whole


def fields(kind: type[msgspec.Struct] = Descriptor, within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the default of each field a struct has, nested ones too.

    In a path `*` stands for the keys of a map.
    """
    types = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        of = types[field.name]
        # An optional object, such as `hook`, is described by its members too.
        members = [one for one in (of, *get_args(of)) if hasattr(one, "__struct_fields__")]
        path, is_map = f"{within}{field.name}", get_origin(of) is dict
        if (is_map or not members) and (within or field.name not in WHENCE):
            made_anew = field.default_factory is not msgspec.NODEFAULT
            yield path, field.default_factory() if made_anew else field.default
        if members:
            yield from fields(members[0], f"{path}.*." if is_map else f"{path}.")


def at(whole: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema of the field with that path."""
    for name in path.split("."):
        whole = whole["additionalProperties"] if name == "*" else whole["properties"][name]
    return whole


# --- Configuration and policy -------------------------------------------------

OF_MCP = {
    "views": "what clients see, by the name of the view",
    "keep": 'how many seconds a daemon stays that stdiod mcp has started, or "always"',
    "session_idle_s": "how many seconds a session over HTTP stays that nobody uses",
}
"""The members of the table `mcp`, which have no row of their own."""


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the rules of an object without other members."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def config() -> dict[str, Any]:
    """Return the schema of a configuration, and of a project's `stdiod.toml`."""
    said = described("docs/operating.md", "Key")
    properties = {
        key: {**json.loads(json.dumps(one.schema)), "description": said[key]}
        for key, one in KEYS.items()
    }
    whole = made("stdiod configuration v1", "stdiod-config.v1", **closed(properties))
    for key, meaning in OF_MCP.items():
        at(whole, f"mcp.{key}")["description"] = meaning
    of_view = described("docs/mcp-clients.md", "Key")
    for key, field in at(whole, "mcp.views.*")["properties"].items():
        field["description"] = of_view[key]
    return whole


def policy() -> dict[str, Any]:
    said = described("docs/operating.md", "Policy key")
    entries = {"type": "array", "items": {"type": "string", "minLength": 1}}
    rules: dict[str, Any] = {
        "mode": {"enum": [str(one) for one in Mode], "description": said["mode"]},
        "allow": {**entries, "description": said["allow"]},
        "deny": {**entries, "description": said["deny"]},
    }
    modules = {
        "type": "object",
        "additionalProperties": closed(rules),
        "description": said["modules"],
    }
    schema_key = {"type": "string", "description": said["$schema"]}
    properties = {"$schema": schema_key, **rules, "modules": modules}
    return made("stdiod policy v1", "stdiod-policy.v1", **closed(properties))


def written(document: dict[str, Any]) -> str:
    """Return the file of a schema as it should be."""
    laid_out = json.dumps(document, indent=2, ensure_ascii=False)
    # Words and numbers need no line each.
    return _SHORT_ARRAY.sub(lambda found: f"[{' '.join(found[1].split())}]", laid_out) + "\n"


SCHEMAS = {
    "stdiod-config.v1": config,
    "stdiod-descriptor.v1": descriptor,
    "stdiod-policy.v1": policy,
}

if __name__ == "__main__":
    for name, document in SCHEMAS.items():
        path = ROOT / "schemas" / f"{name}.json"
        path.write_text(written(document()), encoding="utf-8")
