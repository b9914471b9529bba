"""`stdiod start`, `stop` and `restart`: say what one module is to do, and see it done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import Client
from supervisor.cli.options import TEXT, with_json, with_socket
from supervisor.cli.results import end_with_failure, print_json
from supervisor.cli.terminal import one_line, state_word


@click.command
@click.argument("module", type=TEXT)
@with_json
@with_socket
def start(module: str, as_json: bool, socket: Path) -> None:
    """Start MODULE, at once if it waits for its next try; returns when it is ready."""
    _control("start", module, socket, as_json=as_json)


@click.command
@click.argument("module", type=TEXT)
@with_json
@with_socket
def stop(module: str, as_json: bool, socket: Path) -> None:
    """Stop MODULE once its requests in flight are answered; it stays down until `start`."""
    _control("stop", module, socket, as_json=as_json)


@click.command
@click.argument("module", type=TEXT)
@click.option("--prepare", is_flag=True, help="Have its program prepared anew before.")
@with_json
@with_socket
def restart(module: str, prepare: bool, as_json: bool, socket: Path) -> None:
    """Replace the process of MODULE; requests that wait go on waiting."""
    more = {"prepare": True} if prepare else {}
    _control("restart", module, socket, as_json=as_json, **more)


def _control(op: str, module: str, socket: Path, *, as_json: bool, **args: bool) -> None:
    # The daemon bounds each by the module's own prepare_s, start_s and stop_s.
    with Client(socket) as client:
        answer = client.own(op, {"module": module, **args})
    if not answer.ok:
        end_with_failure(answer, as_json=as_json, module=module)
    if as_json:
        print_json(answer.result)
    else:
        click.echo(_sentence(answer.result))


def _sentence(module: dict[str, Any]) -> str:
    running = [one for one in module["instances"] if one["pid"] is not None]
    pids = ", ".join(f"pid {one['pid']}" for one in running)
    return f"{one_line(module['name'])} is {state_word(module['state'])}" + (
        f" ({pids})" if pids else ""
    )
