"""`stdiod import`: write descriptors for the MCP servers in another program's file."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.exit_status import exit_unless
from supervisor.cli.options import UNSEEN_PATH, example, with_json
from supervisor.cli.quantities import count
from supervisor.cli.results import print_json
from supervisor.cli.terminal import one_line

if TYPE_CHECKING:
    from supervisor.cli.mcp_servers_file import Imported

PROJECT_FOLDERS = (
    *(".vscode", ".cursor", ".roo", ".zed", ".gemini", ".junie", ".kiro", ".amazonq", ".warp"),
    *(".codex", ".claude", ".continue", ".opencode"),
)
"""A file in one of these, or in a folder of it, belongs to the folder above."""

FILE_BYTES = 10 << 20


@click.command("import", epilog=example("import ~/.cursor/mcp.json --into modules"))
@click.argument("file", type=UNSEEN_PATH)
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
def import_(*, file: Path, into: Path, force: bool, dry_run: bool, as_json: bool) -> None:
    """Write a descriptor for each MCP server in FILE.

    FILE is a file of Claude, Cursor, VS Code, Codex, Zed, OpenCode, Gemini CLI or any other client
    whose servers stand under mcpServers. What looks like a secret goes to a file NAME.env beside
    the descriptor. Exits with 1 if a server that is not disabled could not start.
    """
    from supervisor.cli.mcp_servers_file import Surroundings, imported, servers_of

    places = servers_of(_document(file))
    if not any(place.by_name for place in places):
        words = "has no servers in mcpServers, servers, context_servers, mcp or [mcp_servers.NAME]"
        raise click.ClickException(f"{one_line(str(file))}: {words}")
    folder = _folder_of(Path(os.path.abspath(file)))  # noqa: PTH100 - links stay
    around = Surroundings(folder, Path.home(), lambda command: bool(shutil.which(command)))
    found = list(imported(places, around))
    try:
        told = [_write(one, into, force=force, dry_run=dry_run) for one in found]
    except OSError as error:
        raise click.ClickException(f"{one_line(str(into))}: {error.strerror}") from None
    without = sum(one.pop("starts_without", False) and one["enabled"] for one in told)
    cannot = sum(one["enabled"] and not one["ok"] for one in told)
    written = sum(one["written"] is not None for one in told)
    kept = sum(one["ok"] and not one["written"] for one in told)
    following, picked_up = None, ""
    if written and not dry_run:
        following = f"stdiod up {shlex.quote(str(into))}"
        if _is_served(into):
            following, picked_up = "stdiod status", "the running daemon picks them up; "
    if as_json:
        print_json({"ok": not cannot, "servers": told, "next": following})
    else:
        for one in told:
            off = " (disabled)" if one["written"] and not one["enabled"] else ""
            path = one["written"] or ("not written" if one["ok"] else "left out")
            click.echo(f"{one_line(one['name'])}: {one_line(path)}{off}")
            for words in one["remarks"]:
                click.echo(f"  {one_line(f'{file}: {words}')}")
        verb = "would be imported" if dry_run else "imported"
        more = _others(told, kept, without)
        click.echo(f"{written} of {count(len(told), 'server')} {verb}{more}", err=True)
        if following:
            click.echo(f"{picked_up}next: {one_line(following)}")
    exit_unless(not cannot)


def _document(file: Path) -> Any:
    from protocol.json_document import plain_json, read_document
    from supervisor.runtime.files.whole_file import UnreadableError, read_whole

    try:
        data = read_whole(file, FILE_BYTES, "file of servers")
        if file.suffix == ".toml" or re.search(rb"^\s*\[mcp_servers", data, re.MULTILINE):
            toml = tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
            return json.loads(json.dumps(toml, default=str))
        document = read_document(plain_json(data))
        if isinstance(document, dict):
            return document
        words = str(document[0])
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        words = f"is not UTF-8: line {line}, byte 0x{error.object[error.start]:02x}"
    except (UnreadableError, ValueError, RecursionError) as error:
        words = str(error)
        if not os.path.lexists(file):
            raise click.BadParameter(
                f"File '{file}' does not exist.", param_hint="'FILE'"
            ) from None
    raise click.ClickException(f"{one_line(str(file))}: {one_line(words)}")


def _folder_of(file: Path) -> Path:
    """Return the folder that a file's servers run in: the project's, the user's or the file's."""
    for folder in (file.parent, file.parent.parent):
        if folder.name in PROJECT_FOLDERS:
            return folder.parent
    home = Path.home()
    of_user = file.is_relative_to(home) and file.relative_to(home).parts[0].startswith(".")
    return home if of_user and file.name != ".mcp.json" else file.parent


def _write(one: Imported, into: Path, *, force: bool, dry_run: bool) -> dict[str, Any]:
    """Write the files of a server; returns its entry in the output."""
    from supervisor.policy.env_file import quoted_line
    from supervisor.runtime.files.whole_file import replace_whole

    path, env_path = into / f"{one.name}.json", into / f"{one.name}.env"
    told: dict[str, Any] = {
        "name": one.name,
        "written": None,
        "enabled": one.enabled,
        "ok": False,
        "remarks": [str(remark) for remark in one.remarks],
    }
    if one.descriptor is None:
        return told
    secrets = dict.fromkeys(one.secrets, "x") if dry_run else one.secrets
    env = "".join(quoted_line(name, value) for name, value in secrets.items())
    descriptor = f"{json.dumps(one.descriptor, indent=2, ensure_ascii=False)}\n"
    # The secrets first: a daemon that watches the directory starts what it finds.
    files = [*([(env_path, env, 0o600)] if env else []), (path, descriptor, None)]
    for file, _, _ in reversed(files):
        if os.path.lexists(file) and not force:
            told["remarks"] = [f"{file} is there already (--force replaces it)"]
            told["ok"] = path.exists()
            return told
    told["written"] = str(path)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) if dry_run else into
        folder.mkdir(parents=True, exist_ok=True)
        for file, text, mode in files:
            replace_whole(folder / file.name, text.encode(), mode)
        problems, lacking = _problems(folder / path.name)
    told["ok"] = not problems
    told["starts_without"] = bool(lacking)
    told["remarks"] += [words.replace(scratch, str(into)) for words in problems]
    return told


def _others(told: list[dict[str, Any]], kept: int, without: int) -> str:
    """Name the servers that were not imported, or lack something."""
    wrong = [one_line(one["name"]) for one in told if one["enabled"] and not one["ok"]]
    more = f", {kept} there already" if kept else ""
    more += f", {len(wrong) - without} cannot start" if len(wrong) > without else ""
    more += f", {without} without a variable" if without else ""
    return f"{more}: {', '.join(wrong)}" if wrong else more


def _is_served(into: Path) -> bool:
    """Tell whether the daemon of the default socket serves a directory."""
    from supervisor.cli.client import DaemonClient
    from supervisor.cli.exit_status import NoDaemonError
    from supervisor.cli.project import default_socket

    try:
        with DaemonClient(default_socket()) as client:
            answer = client.known("status")
    except NoDaemonError:
        return False
    return answer.ok and str(into.absolute()) in answer.result["daemon"]["directories"]


def _problems(path: Path) -> tuple[list[str], list[str]]:
    """Return the problems of a written descriptor, and the variables that it lacks."""
    from supervisor.cli.checked import check, env_file_for
    from supervisor.runtime.files.directory import read_descriptor
    from supervisor.runtime.process.environment import resolved, unset_variables

    try:
        [checked] = check([path]).descriptors
    except OSError as error:  # an argument is longer than a name of a file can be
        return [f"{path}: /transport/command: {error.strerror}"], []
    if checked.problems or not (descriptor := read_descriptor(path)).enabled:
        return [f"{path}: {problem}" for problem in checked.problems], []
    unset = unset_variables(descriptor.transport, resolved(descriptor, os.environ, path.stem)[1])
    put = env_file_for(descriptor)
    remarks = [
        f"needs {name}, which is not set, and starts without it: {put.format(name)}; if it is"
        f' optional, write "{name}?" in pass_env'
        for name in unset
    ]
    return remarks, unset
