"""Hold all that a user can name to the lists in tests/surface/.

Verbs are those of the command line, fields and states those of the schemas that `stdiod schema`
prints; ops, routes, metrics and MCP methods are asked of a daemon. What nothing prints comes from
SOURCES and TABLES, which name where it stands.

`af46bfda.txt` is what there was before the house was rebuilt. `additions.txt` is what came since:
whoever adds something adds its line there, and one to CHANGELOG.md. `changes.txt` names what may be
gone, each under the sentence that allows it. Lines that begin with `#` are comments.
"""

from __future__ import annotations

import argparse
import ast
import http.client
import importlib
import json
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import click

import schemas
from scripts.checkout import Stdiod
from scripts.size import parsed, tracked
from supervisor.cli.command_line import stdiod as STDIOD  # noqa: N812

SOURCES = {
    "code": ("protocol.errors", "Code"),
    "origin of an error": ("protocol.errors", "Origin"),
    "reason": ("protocol.errors", "Reason"),
    "AMCP event": ("protocol.amcp", "EventType"),
    "scope": ("supervisor.policy.principals", "Scope"),
    "hook action": ("protocol.hook_result", "Directive"),
    "journal event": ("protocol.journal_event", "REGISTRY"),
    "capability": ("supervisor.policy.capabilities", "METHODS"),
}
"""Enums, or tuples of names, that nothing prints."""

TABLES = {
    "exit status": ("docs/operating.md", "Exit status", None),
    "data of a journal event": ("docs/operating.md", "Event", 2),
    "metric of the daemon": ("docs/metrics.md", "Of the daemon", 2),
    "metric of a module": ("docs/metrics.md", "Of each module", 2),
    "host method": ("docs/protocol.md", "Method", 1),
    "ui_event": ("docs/protocol.md", "Event", 1),
    "op with the scope": ("docs/protocol.md", "Scope", 1),
    "WebSocket action": ("docs/http.md", "Action", 1),
}
"""Tables of documents, most of which `tests/docs` holds to the code: file, what stands at the top
of the first column, and which other column has names, too."""

VARIABLE = re.compile(r"(STDIOD|OTEL|XDG|NOTIFY|WATCHDOG)_[A-Z_]+|(WAYLAND_)?DISPLAY")
"""Environment variables are found by their first word, or where `environ` is asked for them."""

LISTS = Path("tests", "surface")
MCP_SCHEMAS = Path("tests", "protocol", "mcp_schemas")
METHOD_NOT_FOUND = -32601
WITHIN_S = 60

ADVICE = """\
`-` is gone: put it back, or into tests/surface/changes.txt under the sentence that allows it.
`+` is new: put it into tests/surface/additions.txt, and a line into CHANGELOG.md."""

MODULE = {
    "name": "once",
    "version": "1",
    "kind": "tool",
    "protocol": "exec",
    "transport": {"type": "stdio", "lifecycle": "per-invocation", "command": ["true"]},
}


# --- The command line --------------------------------------------------------


def verbs(
    verb: click.Command = STDIOD, name: str = "stdiod", above: click.Context | None = None
) -> Iterator[str]:
    """Yield each verb with its arguments, and its options, as their help has them."""
    context = click.Context(verb, parent=above, info_name=name, **verb.context_settings)
    path = context.command_path
    arguments = verb.collect_usage_pieces(context)
    yield " ".join([f"verb: {path}", *(one for one in arguments if one != "[OPTIONS]")])
    for option in verb.get_params(context):
        if isinstance(option, click.Option) and (record := option.get_help_record(context)):
            yield f"option: {path} {record[0]}"
    if isinstance(verb, click.Group):
        for below in verb.list_commands(context):
            if (found := verb.get_command(context, below)) and not found.hidden:
                yield from verbs(found, below, context)


# --- Schemas -----------------------------------------------------------------

ALONE = ("if", "then", "else", "not", "contains")
COMBINED = ("allOf", "anyOf", "oneOf", "prefixItems")


def fields(schema: Any, at: str) -> Iterator[str]:
    """Yield the path of each property, and the values that it is limited to."""
    if not isinstance(schema, dict):
        return
    for value in [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]:
        yield f"{at} = {json.dumps(value)}"
    for name, below in schema.get("properties", {}).items():
        yield f"{at}.{name}"
        yield from fields(below, f"{at}.{name}")
    if reference := schema.get("$ref"):
        yield f"{at}: {reference.rpartition('/')[2]}"
    yield from fields(schema.get("items"), f"{at}[]")
    for below in [
        schema.get("additionalProperties"),
        *schema.get("patternProperties", {}).values(),
    ]:
        yield from fields(below, f"{at}.*")
    conditions = [*schema.get("dependentSchemas", {}).values(), *map(schema.get, ALONE)]
    for below in [*conditions, *(one for keyword in COMBINED for one in schema.get(keyword, []))]:
        yield from fields(below, at)


def schema_fields() -> Iterator[str]:
    for name in schemas.NAMES:
        schema = schemas.load(name)
        yield f"schema: {name}"
        yield from fields(schema, f"field: {name}")
        for defined, below in schema.get("$defs", {}).items():
            yield from fields(below, f"field: {name} {defined}")


# --- A daemon ----------------------------------------------------------------


def asked(root: Path) -> Iterator[str]:
    """Yield what a daemon with one module says of itself."""
    with tempfile.TemporaryDirectory(prefix="surface-") as folder:
        (Path(folder) / "once.json").write_text(json.dumps(MODULE))
        with Stdiod(Path(folder)) as daemon:
            daemon.environment["HOME"] = folder  # nobody's configuration
            daemon.run("up", folder, "--http", "sock")
            described = json.loads(daemon.run("describe", "supervisor", "--json"))
            for op, schema in described["inputs"].items():
                yield f"op: {op}"
                yield from fields(schema, f"arg: {op}")
            yield from routes(json.loads(get(daemon, "/api/v1/openapi.json")))
            for metric in re.findall("# TYPE (.*)", get(daemon, "/metrics")):
                yield f"metric: {metric}"
            yield from mcp_methods(daemon, root / MCP_SCHEMAS)


def get(daemon: Stdiod, path: str) -> str:
    """Return what the daemon answers over HTTP."""
    connection = http.client.HTTPConnection("localhost", timeout=WITHIN_S)
    with socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.connect(str(daemon.folder / "http.sock"))
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def routes(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            route = f"route: {method.upper()} {path}"
            yield route
            yield from (f"{route} {one['in']} {one['name']}" for one in operation["parameters"])
            for status, response in operation["responses"].items():
                if "$ref" not in response:
                    yield f"{route} -> {status}"
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield from fields(content["schema"], f"{route} body")
    components = document["components"]["schemas"]
    for name in components.keys() - schemas.load("http-answers.v1")["$defs"].keys():
        yield from fields(components[name], f"field: openapi {name}")


def mcp_methods(daemon: Stdiod, root: Path) -> Iterator[str]:
    """Ask for each method that the specification names, in any of its revisions."""
    named = (re.findall(r'"const": "([\w/]+)"', one.read_text()) for one in root.glob("*.json"))
    methods = sorted({method for found in named for method in found} | {"ping", "initialize"})
    client = {"name": "surface", "version": "1"}
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    newer = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": client,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    greeting = [("initialize", begin), ("notifications/initialized", {})]
    for era, beginning, params in (("older", greeting, {}), ("newer", [], {"_meta": newer})):
        calls = [*beginning, *((method, params) for method in methods)]
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            for number, (method, params) in enumerate(calls)
        ]
        answers = daemon.run("mcp", stdin="".join(f"{line}\n" for line in lines))
        for answer in map(json.loads, answers.splitlines()):
            if answer.get("error", {}).get("code") != METHOD_NOT_FOUND and "id" in answer:
                yield f"MCP method: {calls[answer['id']][0]} ({era})"


# --- What nothing prints -----------------------------------------------------


def sources() -> Iterator[str]:
    for kind, (module, name) in SOURCES.items():
        for value in getattr(importlib.import_module(module), name):
            yield f"{kind}: {value.value if isinstance(value, Enum) else value}"


def tables(root: Path) -> Iterator[str]:
    for kind, (path, heading, column) in TABLES.items():
        _, found, below = (root / path).read_text().partition(f"\n| {heading} |")
        if not found:
            sys.exit(f"{path} has no table of `{heading}`: correct TABLES in scripts/surface.py.")
        for row in below.partition("\n\n")[0].splitlines()[2:]:
            cells = re.split(r" *\| *", row.strip("| "))
            for name in re.findall("`(.+?)`", cells[0]):
                yield f"{kind}: {name}"
                more = re.findall("`(.+?)`", cells[column]) if column else []
                yield from (f"{kind}: {name} {one}" for one in more)


def variables(root: Path) -> Iterator[str]:
    for module in parsed(root, tracked(root), "supervisor").values():
        for node in ast.walk(module):
            match node:
                case ast.Constant(value=str(name)) if VARIABLE.fullmatch(name):
                    yield f"variable: {name}"
                case ast.Call(
                    func=ast.Attribute(value=of), args=[ast.Constant(value=str(name)), *_]
                ):
                    if ast.unparse(of).endswith("environ"):
                        yield f"variable: {name}"


def surface(root: Path) -> list[str]:
    found = [*asked(root), *verbs(), *schema_fields(), *sources(), *tables(root), *variables(root)]
    return sorted(set(found))


# --- The lists ---------------------------------------------------------------


def listed(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def differences(found: list[str], lists: Path) -> Iterator[str]:
    known = {*listed(lists / "af46bfda.txt"), *listed(lists / "additions.txt")}
    allowed = set(listed(lists / "changes.txt"))
    yield from (f"- {line}" for line in sorted(known - allowed - set(found)))
    yield from (f"+ {line}" for line in sorted(set(found) - (known - allowed)))
    for block in (lists / "changes.txt").read_text().split("\n\n"):
        for line in block.strip().splitlines() if not block.strip().startswith("#") else ():
            yield f"{line} is in changes.txt without a sentence above it"
    for line in sorted(allowed - known):
        yield f"{line} is in changes.txt, and in no list"


def main() -> int:
    parser = argparse.ArgumentParser(description=f"{__doc__}".partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print what there is, one line each")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    found = surface(options.root)
    if options.list:
        print(*found, sep="\n")
        return 0
    wrong = list(differences(found, options.root / LISTS))
    print(*wrong, f"{len(found):,} things that a user can name", sep="\n")
    if wrong:
        print(ADVICE, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
