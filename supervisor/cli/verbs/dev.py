"""`stdiod dev`: run a module while it is being written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from supervisor.cli.options import example
from supervisor.cli.terminal import is_terminal


@click.command(epilog=example("dev modules/dice/module.json"))
@click.argument("path", metavar="DESCRIPTOR", type=click.Path(exists=True, path_type=Path))
def dev(path: Path) -> None:
    """Run a module without a daemon, start it anew when its source changes, and call its ops.

    DESCRIPTOR is a descriptor file, or the folder of a module. Each line that passes is shown with
    its time: `>` to the module, `<` from it, `!` what it writes to stderr, `=` what comes of it.

    At the prompt, OP KEY=VALUE... or OP {JSON} calls an op, /ops lists them, /restart starts the
    module anew, /help says so, and /quit ends. Tab completes, the arrows go through what was typed
    before. Ctrl-C cancels what is being done, or ends; Ctrl-D ends. Without a terminal, lines are
    read from stdin.
    """
    from supervisor.cli.developing import LineScreen, Piped, Prompt, above_the_prompt, develop

    file = path / "module.json" if path.is_dir() else path
    if not file.exists():
        raise click.UsageError(f"{file} is not there; name the descriptor file")
    on_terminal = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    colours = is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
    with above_the_prompt(on_terminal=on_terminal):
        screen = LineScreen(colours=colours)
        if on_terminal:
            screen.tell("Tab completes; Ctrl-D ends; /ops lists the ops, /restart starts it anew")
            develop(file, screen, lambda one: Prompt(lambda: one.name, lambda: one.inputs))
        else:
            develop(file, screen, lambda _: Piped())
