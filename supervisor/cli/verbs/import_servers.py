"""`stdiod import`: make descriptors of the MCP servers that another program has in a file."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.exit_status import NO
from supervisor.cli.options import example, with_json
from supervisor.cli.quantities import count
from supervisor.cli.results import print_json
from supervisor.cli.terminal import one_line

if TYPE_CHECKING:
    from supervisor.policy.mcp_servers_file import Imported

PROJECT_FOLDERS = (".vscode", ".cursor")
"""A file in one of these is about the folder above."""


@click.command("import", epilog=example("import ~/.cursor/mcp.json --into modules"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("modules"),
    show_default=True,
    help="The directory for the descriptors.",
)
@click.option("--force", is_flag=True, help="Overwrite existing descriptors.")
@click.option("--dry-run", is_flag=True, help="Write nothing, and say what would be written.")
@with_json
def import_servers(*, file: Path, into: Path, force: bool, dry_run: bool, as_json: bool) -> None:
    """Write a descriptor for each MCP server in FILE.

    FILE is a file of Claude Desktop, Cursor or VS Code (mcpServers, servers); it may have comments
    and trailing commas. Anything that looks like a secret is not copied: set it in the daemon's
    environment. Exits with 1 if a server was left out.
    """
    from protocol.json_document import read_document
    from protocol.jsonc import plain_json
    from supervisor.policy.mcp_servers_file import Surroundings, imported, servers_of

    document = read_document(plain_json(file.read_bytes()))
    if isinstance(document, list):
        raise click.ClickException(f"{one_line(str(file))}: {document[0]}")
    found = servers_of(document)
    if found is None:
        raise click.ClickException(
            f'{one_line(str(file))}: has no "mcpServers", and no "servers" either'
        )
    told = [
        _write(one, into, force=force, dry_run=dry_run)
        for one in imported(*found, Surroundings(_project_of(file), Path.home(), _text))
    ]
    left_out = sum(one["written"] is None for one in told)
    if as_json:
        print_json({"ok": not left_out, "servers": told})
    else:
        _print(file, told, left_out, dry_run=dry_run)
    if left_out:
        raise click.exceptions.Exit(NO)


def _project_of(file: Path) -> Path:
    folder = file.absolute().parent
    return folder.parent if folder.name in PROJECT_FOLDERS else folder


def _text(path: PurePath) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def _write(one: Imported, into: Path, *, force: bool, dry_run: bool) -> dict[str, Any]:
    """Write a descriptor, and return what is said of it."""
    path = into / f"{one.name}.json"
    remarks = [str(remark) for remark in one.remarks]
    if one.descriptor is None:
        return {"name": one.name, "written": None, "remarks": remarks}
    if path.exists() and not force:
        words = f"{path} already exists; --force overwrites it"
        return {"name": one.name, "written": None, "remarks": [*remarks, words]}
    if not dry_run:
        into.mkdir(parents=True, exist_ok=True)
        text = json.dumps(one.descriptor, indent=2, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
    return {"name": one.name, "written": str(path), "remarks": remarks}


def _print(file: Path, told: list[dict[str, Any]], left_out: int, *, dry_run: bool) -> None:
    for one in told:
        where = one["written"] or "left out"
        click.echo(f"{one_line(one['name'])}: {one_line(where)}")
        for remark in one["remarks"]:
            click.echo(f"  {one_line(f'{file}: {remark}')}")
    verb = "would be imported" if dry_run else "imported"
    click.echo(f"{len(told) - left_out} of {count(len(told), 'server')} {verb}", err=True)
