"""A verb that has verbs of its own."""

from __future__ import annotations

from difflib import get_close_matches

import click


class Subverbs(click.Group):
    """The verbs of a verb; a wrong one is told with the one that was probably meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they are used."""
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb."""
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            near = get_close_matches(name, self.commands, n=1)
            known = ", ".join(self.commands)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {known}"
            raise click.UsageError(f"there is no verb '{self.name} {name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)
