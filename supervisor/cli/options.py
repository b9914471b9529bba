"""Options that several verbs share."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from supervisor.cli import configured
from supervisor.cli.project import SOCKET_PASSED, absolute_socket, default_socket

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

SOCKET_HELP = (
    "The daemon's Unix socket.  [default: $STDIOD_SOCKET, else the project's, else the user's]"
)


class Seconds(click.ParamType[float]):
    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number; a trailing `s` is allowed."""
        try:
            number = float(str(value).removesuffix("s"))
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            self.fail(f"{value!r} is not a number of seconds above 0, such as 5 or 0.5", param, ctx)
        return number


SECONDS = Seconds()


class Lines(click.ParamType[int]):
    name = "lines"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = -1
        if not 0 <= number <= self._most:
            words = f"{value!r} is not a number of lines from 0 to {self._most}"
            self.fail(words, param, ctx)
        return number


class Text(click.ParamType[str]):
    """A name or an id: it is sent as JSON, so it has to be UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse text that cannot be sent, and an empty one: a shell variable that was not set."""
        text = str(value)
        if not text:
            self.fail("it is empty", param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{os.fsencode(text)!r} is not UTF-8", param, ctx)
        return text


TEXT = Text()


class CompletedName(Text):
    """A name or an id that the daemon completes."""

    def __init__(
        self, op: str, names: Callable[[Any], dict[str, str]], *, of_module: bool = False
    ) -> None:
        """Complete by what `names` finds in the answer of `op`: each name, and a word about it."""
        self._op = op
        self._names = names
        self._of_module = of_module

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the matching names; none if no daemon answers at once.

        A shell shows whatever is written, so nothing is.
        """
        from click.shell_completion import CompletionItem

        from supervisor.cli.client import DaemonClient
        from supervisor.edge.bindings.blocking import RequestTimeoutError

        taken = ctx.params.get(param.name or "")
        given = ctx.params.get("socket") or ctx.find_root().params.get("socket")
        known: dict[str, str] = {}
        with (
            contextlib.redirect_stderr(io.StringIO()),
            # An answer of another version may have another form.
            contextlib.suppress(
                click.ClickException,
                RequestTimeoutError,
                OSError,
                AttributeError,
                KeyError,
                TypeError,
            ),
        ):
            args = {"module": ctx.params["module"]} if self._of_module else {}
            socket = absolute_socket(Path(given) if given else default_socket())
            with DaemonClient(socket) as client:
                known = self._names(client.own(self._op, args, timeout_s=PATIENCE_S).result)
        return [
            CompletionItem(name, help=words)
            for name, words in known.items()
            if name.startswith(incomplete) and not (isinstance(taken, tuple) and name in taken)
        ]


PATIENCE_S = 0.5
"""A person waits for the completion."""

MODULE = CompletedName(
    "status", lambda found: {one["name"]: one["state"] for one in found["modules"]}
)
OP = CompletedName("status", lambda found: dict.fromkeys(found["ops"]["names"], ""), of_module=True)
SESSION = CompletedName(
    "session.list",
    lambda found: {
        one["session_id"]: one.get("title") or one["status"] for one in found["sessions"]
    },
)
TOKEN = CompletedName(
    "token.list", lambda found: {one["name"]: ", ".join(one["scopes"]) for one in found["tokens"]}
)


def example(*commands: str) -> str:
    """Return the examples at the end of a verb's help; `stdiod` is added to each command."""
    title = "Example:" if len(commands) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  stdiod {one}" for one in commands)])


class UnseenPath(click.Path):
    """A path; `click.Path` would wait for a mount that does not answer."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        del param, ctx
        return Path(value)


UNSEEN_PATH = UnseenPath()


def _chosen_socket(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path:
    """Return the verb's --socket, the one before the verb, the configuration's, or the default."""
    before_verb = ctx.find_root().params.get("socket")
    config = configured.named(ctx)
    ctx.meta[SOCKET_PASSED] = bool(value or before_verb)
    chosen = value or before_verb or (config and config.socket)
    return absolute_socket(chosen or default_socket())


def with_socket(function: F) -> F:
    """Add --socket; the verb gets an absolute path of an allowed length."""
    return click.option(
        "--socket",
        type=UNSEEN_PATH,
        metavar="PATH",
        callback=_chosen_socket,
        help=SOCKET_HELP,
    )(function)


def with_json(function: F) -> F:
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON for programs on stdout."
    )(function)


def with_modules(function: F) -> F:
    """Add MODULE... and --all; the verb gets no `modules` for all, see `DaemonClient.chosen`."""

    @functools.wraps(function)
    def checked(*, modules: tuple[str, ...], every: bool, **others: Any) -> Any:
        if modules and every:
            raise click.UsageError("name modules or give --all, not both")
        if not modules and not every:
            raise click.UsageError("name a MODULE, or several, or give --all")
        return function(modules=modules, **others)

    all_of_them = click.option("--all", "every", is_flag=True, help="All modules instead.")
    named = click.argument("modules", metavar="[MODULE]...", nargs=-1, type=MODULE)
    return cast("F", named(all_of_them(checked)))


with_directories = click.argument(
    "directories",
    metavar="[DIR...]",
    nargs=-1,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)

with_paths = click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)


class Subverbs(click.Group):
    """The verbs of a verb; for a wrong one, a similar one is suggested."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of their definition."""
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = name in self.commands or name.startswith("-")
        if not known and not ctx.resilient_parsing:  # a completing shell shows no error
            from difflib import get_close_matches

            near = get_close_matches(name, self.commands, n=1)
            those = ", ".join(self.commands)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {those}"
            raise click.UsageError(f"there is no verb '{self.name} {name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)
