"""`stdiod help`: the help of a verb, as `stdiod VERB --help` prints it."""

from __future__ import annotations

import click

from supervisor.cli.options import example


@click.command("help", epilog=example("help invoke", "help session new"))
@click.argument("words", metavar="[VERB]...", nargs=-1)
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...]) -> None:
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
