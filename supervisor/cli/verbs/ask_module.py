"""`stdiod health` and `stdiod describe`: the questions every module answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from supervisor.cli.client import DaemonClient
from supervisor.cli.exit_status import NO
from supervisor.cli.many_modules import chosen, in_turn, with_modules
from supervisor.cli.options import example, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json, tell_failure
from supervisor.cli.terminal import dim, one_line


@click.command(epilog=example("health dice", "health --all"))
@with_modules
@with_json
@with_socket
def health(modules: tuple[str, ...], every: bool, as_json: bool, socket: Path) -> None:
    """Ask each MODULE whether it is well.

    --all leaves out modules that were stopped, and modules that wait for their first request. With
    --json, the answer of each of several modules is one line. Exits with 1 unless all are well.
    """
    _ask("health", modules, socket, _well, every=every, as_json=as_json)


@click.command(epilog=example("describe dice", "describe dice torch"))
@with_modules
@with_json
@with_socket
def describe(modules: tuple[str, ...], every: bool, as_json: bool, socket: Path) -> None:
    """Ask each MODULE what it is, which ops it has, and what they take.

    --all leaves out modules that were stopped, and modules that wait for their first request. With
    --json, the answer of each of several modules is one line. Exits with 1 if one gives none.
    """
    _ask("describe", modules, socket, _page, every=every, as_json=as_json)


def _ask(
    operation: str,
    modules: tuple[str, ...],
    socket: Path,
    text: Callable[[str, Any], str],
    *,
    every: bool,
    as_json: bool,
) -> None:
    # The daemon bounds each itself, by the module's health_s and describe_s.
    failed = 0
    owners: dict[str, str] = {}
    with DaemonClient(socket) as client:
        names = chosen(client, modules, every=every, wanted=True)
        answers = client.together([(one, operation, {}) for one in names])
        for name, answer in in_turn(names, answers):
            if not answer.ok and len(modules) == 1:
                end_with_failure(answer, as_json=as_json, module=name)
            elif not answer.ok:
                tell_failure(answer, as_json=as_json, module=name)
                failed += 1
                if name in owners and not as_json:
                    click.echo(f"stdiod: {one_line(name)} is an op of {owners[name]}", err=True)
            elif as_json:
                print_json(
                    answer.result if len(modules) == 1 else {"module": name, **answer.document}
                )
            else:
                click.echo(text(name, answer.result))
            inputs = (answer.result or {}).get("inputs")
            owners |= dict.fromkeys(inputs if isinstance(inputs, dict) else (), one_line(name))
    if failed:
        raise click.exceptions.Exit(NO)


def _well(module: str, _: Any) -> str:
    return f"{one_line(module)} is well"


def _page(_: str, description: Any) -> str:
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
        yield "It does not describe its ops."
        return
    tools = description.get("tools") if "mcp" in description else None
    said = {one["name"]: one.get("description") for one in tools or ()}
    for op in sorted(inputs, key=lambda op: op not in said):  # resources and prompts come last
        yield ""
        yield click.style(one_line(op), bold=True)
        if isinstance(said.get(op), str):
            yield f"  {one_line(said[op].strip())}"
        if isinstance(inputs[op], dict):
            yield from _args(inputs[op], is_tool=op in said)


def _args(schema: dict[str, Any], *, is_tool: bool = False) -> Iterator[str]:
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
        # A tool's schema names all its args, though few forbid others.
        closed = schema.get("additionalProperties") is False
        closed |= is_tool and not schema.keys() - {"type", "properties", "$schema", "title"}
        yield dim("  takes no args" if closed else "  any args")


def _type(of: Any) -> str:
    if not isinstance(of, dict):
        return "any"
    if isinstance(of.get("enum"), list):
        return one_line(" | ".join(msgspec.json.encode(one).decode() for one in of["enum"]))
    kind = of.get("type", "any")
    return one_line(" | ".join(map(str, kind)) if isinstance(kind, list) else str(kind))
