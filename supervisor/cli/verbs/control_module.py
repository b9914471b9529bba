"""`stdiod start`, `stop`, `restart`, `enable`, `disable`."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import click

from supervisor.cli import configured
from supervisor.cli.client import Answer, DaemonClient
from supervisor.cli.exit_status import NO, NoDaemonError, NoError, interruption
from supervisor.cli.many_modules import chosen, in_turn, with_modules
from supervisor.cli.options import MODULE, example, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json, result_of, tell_failure
from supervisor.cli.status_text import in_trouble
from supervisor.cli.terminal import is_in, one_line

_MEMBER = re.compile(rb'"enabled"\s*:\s*(true|false)')


@click.command(epilog=example("start dice torch", "start --all"))
@with_modules
@with_json
@with_socket
def start(modules: tuple[str, ...], every: bool, as_json: bool, socket: Path) -> None:
    """Start each MODULE, and return when all are ready.

    A module that waits for its next try is started at once. With --json, each answer is one line.
    Exits with 1 if one cannot be ready.
    """
    _control("start", modules, socket, every=every, as_json=as_json)


@click.command(epilog=example("stop dice torch", "stop --all"))
@with_modules
@with_json
@with_socket
def stop(modules: tuple[str, ...], every: bool, as_json: bool, socket: Path) -> None:
    """Stop each MODULE once its requests in flight are answered.

    It stays down until `start` or `restart`. With --json, each answer is one line. Exits with 1 if
    one cannot be stopped.
    """
    _control("stop", modules, socket, every=every, as_json=as_json)


@click.command(epilog=example("restart dice", "restart --all"))
@with_modules
@click.option("--prepare", is_flag=True, help="Prepare its program anew first.")
@with_json
@with_socket
def restart(
    modules: tuple[str, ...], every: bool, prepare: bool, as_json: bool, socket: Path
) -> None:
    """Replace the process of each MODULE; requests that wait keep waiting.

    --all leaves out modules that were stopped, and modules that wait for their first request. With
    --json, each answer is one line. Exits with 1 if one cannot be ready.
    """
    more = {"prepare": True} if prepare else {}
    _control("restart", modules, socket, every=every, as_json=as_json, **more)


def _control(
    op: str, modules: tuple[str, ...], socket: Path, *, every: bool, as_json: bool, **args: bool
) -> None:
    # The daemon bounds each by the module's own prepare_s, start_s and stop_s.
    with DaemonClient(socket) as client:
        names = chosen(client, modules, every=every, wanted=op == "restart")
        asked = [(op, {"module": one, **args}) for one in names]
        words = f"{one_line(', '.join(names))}: the {op} continues in the daemon"
        with interruption(words):
            answers = in_turn(names, client.own_together(asked))
            well = [_show(one, name, len(modules), as_json=as_json) for name, one in answers]
    if not all(well):
        raise click.exceptions.Exit(NO)


def _show(answer: Answer, module: str, named: int, *, as_json: bool) -> bool:
    """Show an answer; returns whether it is ok. If `named` is 1, a failure ends the verb."""
    if answer.ok and as_json:
        print_json(answer.result)
    elif answer.ok:
        click.echo(_sentence(answer.result))
    elif named == 1:
        end_with_failure(answer, as_json=as_json, module=module)
    else:
        tell_failure(answer, as_json=as_json, module=module)
    return answer.ok


def _sentence(module: dict[str, Any]) -> str:
    running = [one for one in module["instances"] if one["pid"] is not None]
    pids = ", ".join(f"pid {one['pid']}" for one in running)
    return f"{one_line(module['name'])} {is_in(module['state'])}" + (f" ({pids})" if pids else "")


@click.command(epilog=example("enable dice", "enable modules/dice/module.json"))
@click.argument("modules", metavar="MODULE...", nargs=-1, required=True, type=MODULE)
@with_json
@with_socket
@click.pass_context
def enable(ctx: click.Context, *, modules: tuple[str, ...], as_json: bool, socket: Path) -> None:
    """Write `"enabled": true` into the descriptor of each MODULE, and start it.

    MODULE is a name, or the path of a descriptor. With --json, there is a line for each:
    {"module","enabled","descriptor"}. Exits with 1 if a descriptor cannot be changed (then none
    is), or a module does not get ready.
    """
    _set_enabled(ctx, modules, socket, enabled=True, as_json=as_json)


@click.command(epilog=example("disable dice"))
@click.argument("modules", metavar="MODULE...", nargs=-1, required=True, type=MODULE)
@with_json
@with_socket
@click.pass_context
def disable(ctx: click.Context, *, modules: tuple[str, ...], as_json: bool, socket: Path) -> None:
    """Write `"enabled": false` into the descriptor of each MODULE, and stop it.

    Every daemon leaves it out until `stdiod enable`. MODULE is a name, or the path of a descriptor.
    With --json, there is a line for each: {"module","enabled","descriptor"}. Exits with 1 if a
    descriptor cannot be changed (then none is).
    """
    _set_enabled(ctx, modules, socket, enabled=False, as_json=as_json)


def _set_enabled(
    ctx: click.Context, modules: tuple[str, ...], socket: Path, *, enabled: bool, as_json: bool
) -> None:
    from protocol.descriptor.loading import DescriptorError
    from protocol.problem import did_you_mean
    from supervisor.runtime.files.directory import MissingDirectoryError, read_descriptor
    from supervisor.runtime.files.sources import scan

    client, directories = None, configured.directories(ctx)
    with contextlib.suppress(NoDaemonError):
        client = ctx.with_resource(DaemonClient(socket))
        directories = tuple(map(Path, client.known("status").result["daemon"]["directories"]))
    where = f"in {', '.join(map(str, directories))}" if directories else "known; name its file"
    edits: dict[str, tuple[Path, bytes]] = {}
    try:
        found = scan(directories)
        known = {one.name: Path(one.source) for one in found.descriptors}
        bad = "".join(f"\n{one.descriptor}: {one.reason}" for one in found.quarantined)
        for word in modules:
            if "/" not in word and word not in known:
                raise NoError(f"no module {word} is {where}{did_you_mean(word, known)}{bad}")
            path = known.get(word) or Path(word)
            name, data = read_descriptor(path).name, path.read_bytes()
            edits[name] = path.resolve(), _with_enabled(data, enabled=enabled)
            if (owner := path.stat().st_uid) != os.geteuid():
                raise NoError(f"{path} belongs to user {owner}: only that user may change it")
    except (DescriptorError, MissingDirectoryError) as error:
        raise NoError(f"{error}; nothing was changed") from None
    for name, (path, data) in edits.items():
        _write(path, data)
        _tell_written(name, path, enabled=enabled, as_json=as_json)
    if client is not None:
        client.own("reload")
        answer = client.own("wait", {"modules": [*edits], "for": "verdict" if enabled else "down"})
        result_of(answer, as_json=as_json, module="wait")
        now = [one for one in client.known("status").result["modules"] if one["name"] in edits]
        for one in () if as_json else now:
            click.echo(_sentence(one))
        if enabled and any(map(in_trouble, now)):
            raise click.exceptions.Exit(NO)


def _tell_written(name: str, path: Path, *, enabled: bool, as_json: bool) -> None:
    if as_json:
        print_json({"module": name, "enabled": enabled, "descriptor": str(path)})
    else:
        done = "enabled" if enabled else "disabled"
        click.echo(f"{one_line(name)}: {done} in {one_line(str(path))}")


def _with_enabled(data: bytes, *, enabled: bool) -> bytes:
    """Return a valid descriptor with its member `enabled` changed, or added first."""
    document, value = json.loads(data), json.dumps(enabled).encode()
    if document.get("enabled", True) is enabled:
        return data
    first = data.index(b"{") + 1
    added = data[first : data.index(b'"', first)] + b'"enabled": ' + value + b","
    edits = [(one.span(1), value) for one in _MEMBER.finditer(data)] + [((first, first), added)]
    edited = (data[:begin] + words + data[end:] for (begin, end), words in edits)
    return next(one for one in edited if json.loads(one) == {**document, "enabled": enabled})


def _write(target: Path, data: bytes) -> None:
    from supervisor.runtime.files.whole_file import replace_whole

    try:
        replace_whole(target, data, target.stat().st_mode & 0o7777)
    except OSError as error:
        raise NoError(f"{target} cannot be written: {error.strerror}") from None
