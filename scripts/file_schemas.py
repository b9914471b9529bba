"""Write the JSON Schemas of the configuration and of the policy, from the code and the manual.

The shapes are those of the code; each description is the field's row in docs/operating.md (or, of a
view, docs/mcp-clients.md). A test compares the files with them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from supervisor.daemon.config_file import KEYS
from supervisor.policy.capabilities import Mode

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "schemas"

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_SHORT_ARRAY = re.compile(r"\[\n\s+([^][{}]*?)\n\s+\]")


OF_MCP = {
    "views": "what clients see, by the name of the view",
    "keep": 'how many seconds a daemon stays that stdiod mcp has started, or "always"',
    "session_idle_s": "how many seconds a session over HTTP stays that nobody uses",
}
"""The members of the table `mcp`, which have no row of their own."""


def described(page: str, header: str) -> dict[str, str]:
    """Return what the table with that header says of each key."""
    text = (ROOT / page).read_text(encoding="utf-8")
    table = text.partition(f"| {header} |")[2].partition("\n\n")[0]
    found = re.findall(r"^\| `([a-z_$]+)` \| (.*) \|$", table, re.MULTILINE)
    return {key: _LINK.sub(r"\1", meaning).replace("`", "") for key, meaning in found}


def _object(title: str, name: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://stdiod.dev/schemas/{name}",
        "title": title,
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def config() -> dict[str, Any]:
    """Return the schema of a configuration, and of a project's `stdiod.toml`."""
    said = described("docs/operating.md", "Key")
    properties = {
        key: {**json.loads(json.dumps(one.schema)), "description": said[key]}
        for key, one in KEYS.items()
    }
    of_mcp = properties["mcp"]["properties"]
    for key, meaning in OF_MCP.items():
        of_mcp[key]["description"] = meaning
    views = of_mcp["views"]
    of_view = described("docs/mcp-clients.md", "Key")
    for key, field in views["additionalProperties"]["properties"].items():
        field["description"] = of_view[key]
    return _object("stdiod configuration v1", "stdiod-config.v1", properties)


def policy() -> dict[str, Any]:
    """Return the schema of a policy."""
    said = described("docs/operating.md", "Policy key")
    entries = {"type": "array", "items": {"type": "string", "minLength": 1}}
    rules: dict[str, Any] = {
        "mode": {"enum": [str(one) for one in Mode], "description": said["mode"]},
        "allow": {**entries, "description": said["allow"]},
        "deny": {**entries, "description": said["deny"]},
    }
    of_module = {"type": "object", "additionalProperties": False, "properties": rules}
    modules = {
        "type": "object",
        "additionalProperties": of_module,
        "description": said["modules"],
    }
    schema_key = {"type": "string", "description": said["$schema"]}
    properties = {"$schema": schema_key, **rules, "modules": modules}
    return _object("stdiod policy v1", "stdiod-policy.v1", properties)


def written(document: dict[str, Any]) -> str:
    """Return the file of a schema as it should be."""
    laid_out = json.dumps(document, indent=2, ensure_ascii=False)
    # Words and numbers need no line each.
    return _SHORT_ARRAY.sub(lambda found: f"[{' '.join(found[1].split())}]", laid_out) + "\n"


SCHEMAS = {"stdiod-config.v1": config, "stdiod-policy.v1": policy}

if __name__ == "__main__":
    for name, made in SCHEMAS.items():
        (FOLDER / f"{name}.json").write_text(written(made()), encoding="utf-8")
