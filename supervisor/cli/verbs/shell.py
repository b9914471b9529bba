"""`stdiod completion` and `help`."""

from __future__ import annotations

import click

from supervisor.cli.options import example

VARIABLE = "_STDIOD_COMPLETE"
"""The variable by which a completing shell calls `stdiod` (click uses another name)."""


@click.command(
    epilog=example(
        "completion bash > ~/.local/share/bash-completion/completions/stdiod",
        "completion zsh > ~/.zfunc/_stdiod",
        "completion fish > ~/.config/fish/completions/stdiod.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell code that completes verbs, options, modules, ops, sessions and projects.

    The examples write it where bash (with bash-completion) and fish look for it, and to a folder
    that zsh looks into if it is in `fpath`. Make the folder first, if there is none: `mkdir -p`.
    Modules, ops and sessions are those of the daemon that runs; without one there are none, and
    nothing is said about it.
    """
    from click.shell_completion import get_completion_class

    of_shell = get_completion_class(shell)
    if of_shell is None:
        raise click.UsageError(f"nothing is known of {shell}")
    root = ctx.find_root()
    click.echo(of_shell(root.command, {}, "stdiod", VARIABLE).source())


@click.command("help", epilog=example("help invoke", "help session new"))
@click.argument("words", metavar="[VERB]...", nargs=-1)
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of VERB, or the list of all verbs."""
    context = ctx.find_root()
    for word in words:
        if not isinstance(context.command, click.Group):
            raise click.UsageError(f"{context.command_path!r} has no verbs of its own", context)
        _, command, _ = context.command.resolve_command(context, [word])
        if command is None:
            break  # an option
        context = click.Context(command, parent=context, info_name=word)
    click.echo(context.get_help())
