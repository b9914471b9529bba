"""`stdiod health` and `stdiod describe`: the questions every module answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from supervisor.cli.client import Answer, Client
from supervisor.cli.options import MODULE, example, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json
from supervisor.cli.terminal import dim, one_line


@click.command(epilog=example("health dice"))
@click.argument("module", type=MODULE)
@with_json
@with_socket
def health(module: str, as_json: bool, socket: Path) -> None:
    """Ask MODULE whether it is well."""
    answer = _ask(socket, module, "health", as_json=as_json)
    if as_json:
        print_json(answer.result)
    else:
        click.echo(f"{one_line(module)} is well")


@click.command(epilog=example("describe dice"))
@click.argument("module", type=MODULE)
@with_json
@with_socket
def describe(module: str, as_json: bool, socket: Path) -> None:
    """Ask MODULE what it is, which ops it has, and what they take."""
    answer = _ask(socket, module, "describe", as_json=as_json)
    if as_json:
        print_json(answer.result)
    else:
        from supervisor.cli.verbs.ask_module import description_text

        click.echo(description_text(answer.result))


def _ask(socket: Path, module: str, operation: str, *, as_json: bool) -> Answer:
    # The daemon bounds both itself, by the module's health_s and describe_s.
    with Client(socket) as client:
        answer = client.request(module, operation, {})
    if not answer.ok:
        end_with_failure(answer, as_json=as_json, module=module)
    return answer


def description_text(description: dict[str, Any]) -> str:
    """Return the page."""
    return "\n".join(_lines(description))


def _lines(description: dict[str, Any]) -> Iterator[str]:
    version = description.get("version")
    name = one_line(str(description["name"])) + (f" {one_line(str(version))}" if version else "")
    yield f"{click.style(name, bold=True)}, {one_line(str(description['kind']))}"
    for label in ("capabilities", "features"):
        if description.get(label):
            yield f"{dim(label.ljust(13))}{one_line(', '.join(description[label]))}"
    inputs = description.get("inputs")
    if not isinstance(inputs, dict) or not inputs:
        yield "It does not say which ops it has."
        return
    for op, schema in inputs.items():
        yield ""
        yield click.style(one_line(op), bold=True)
        if isinstance(schema, dict):
            yield from _args(schema)


def _args(schema: dict[str, Any]) -> Iterator[str]:
    if isinstance(schema.get("description"), str):
        yield f"  {one_line(schema['description'])}"
    properties = schema.get("properties")
    required = schema.get("required") or []
    if not isinstance(properties, dict):
        properties = {}
    width = max((len(one_line(name)) for name in properties), default=0)
    for name, of in properties.items():
        parts = [_type(of), "required" if name in required else ""]
        words = " ".join(filter(None, parts))
        said = of.get("description") if isinstance(of, dict) else None
        tail = f"  {dim(one_line(said))}" if isinstance(said, str) else ""
        yield f"  {one_line(name).ljust(width)}  {words}{tail}"
    others = [name for name in required if name not in properties]
    if others:
        yield f"  required: {one_line(', '.join(map(str, others)))}"
    if not properties and not others and "description" not in schema:
        yield dim(
            "  takes no args" if schema.get("additionalProperties") is False else "  any args"
        )


def _type(of: Any) -> str:
    if not isinstance(of, dict):
        return "any"
    if isinstance(of.get("enum"), list):
        return one_line(" | ".join(msgspec.json.encode(one).decode() for one in of["enum"]))
    kind = of.get("type", "any")
    return one_line(" | ".join(map(str, kind)) if isinstance(kind, list) else str(kind))
