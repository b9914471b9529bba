"""`stdiod start`, `stop` and `restart`: say what modules are to do, and see it done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import Answer, DaemonClient
from supervisor.cli.exit_status import NO, interruption
from supervisor.cli.many_modules import chosen, in_turn, with_modules
from supervisor.cli.options import example, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json, tell_failure
from supervisor.cli.terminal import one_line, state_word


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
    return f"{one_line(module['name'])} is {state_word(module['state'])}" + (
        f" ({pids})" if pids else ""
    )
