"""The `stdiod` command: imports only the verb that was typed, and shows no traceback."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from protocol.version import VERSION
from supervisor.cli.exit_status import BROKEN_PIPE, BUG, INTERRUPTED, remark
from supervisor.cli.options import SOCKET_HELP, UNSEEN_PATH, example
from supervisor.cli.standard_streams import let_go_of_stdout
from supervisor.daemon import collector

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Verb(NamedTuple):
    section: str
    module: str
    summary: str


_COMMON = "Common commands"
_MODULES = "Modules"
_SESSIONS = "Sessions"
_WRITING = "Writing modules"
_ADMIN = "Administration"
_SHELL = "Shell"

VERBS = {
    "up": Verb(_COMMON, "up", "Run the daemon in the background, for directories or a project."),
    "status": Verb(_COMMON, "daemon", "Show what runs, what does not, and why."),
    "invoke": Verb(_COMMON, "calls", "Call an op of a module and show its output."),
    "logs": Verb(_COMMON, "feeds", "Show what modules wrote to stderr, and what happened to them."),
    "restart": Verb(_COMMON, "modules", "Replace the processes of modules."),
    "top": Verb(_COMMON, "top", "Watch what the modules do: rates, latencies, CPU, memory."),
    "page": Verb(_COMMON, "access", "Log a browser in to the page, and open it."),
    "mcp": Verb(_COMMON, "mcp", "Serve all modules as one MCP server on stdin and stdout."),
    "down": Verb(_COMMON, "daemon", "End the daemon and all its modules."),
    "start": Verb(_MODULES, "modules", "Start modules; returns when they are ready."),
    "stop": Verb(_MODULES, "modules", "Stop modules; they stay down."),
    "enable": Verb(_MODULES, "modules", "Have modules used that were disabled."),
    "disable": Verb(_MODULES, "modules", "Leave modules out until they are enabled."),
    "wait": Verb(_MODULES, "modules", "Wait until modules are ready, or down."),
    "reload": Verb(_MODULES, "daemon", "Apply what changed in the descriptors."),
    "health": Verb(_MODULES, "modules", "Ask modules whether they are well."),
    "describe": Verb(_MODULES, "modules", "Ask modules what they are and which ops they have."),
    "events": Verb(_MODULES, "feeds", "Show what happened, from the journal."),
    "ui": Verb(_MODULES, "feeds", "Watch the ui_events of all invocations."),
    "session": Verb(_SESSIONS, "sessions", "Begin, show, change, fork, end and watch sessions."),
    "prompt": Verb(_SESSIONS, "sessions", "Ask a session something, and show the answer."),
    "plan": Verb(_SESSIONS, "calls", "Have an orchestrator carry out a plan, in a session."),
    "asset": Verb(_SESSIONS, "asset", "Find the files that modules handed over, and open them."),
    "approvals": Verb(_SESSIONS, "access", "Show the questions that wait for a person."),
    "approve": Verb(_SESSIONS, "access", "Answer one of these questions."),
    "new": Verb(_WRITING, "writing", "Create a working module in one of several languages."),
    "dev": Verb(_WRITING, "writing", "Run a module while you write it, and call its ops."),
    "check": Verb(_WRITING, "writing", "Check that modules keep to their protocol."),
    "validate": Verb(_WRITING, "writing", "Check descriptor files, and say what is wrong."),
    "import": Verb(_WRITING, "import_servers", "Write descriptors for the MCP servers in a file."),
    "schema": Verb(_WRITING, "writing", "Print a JSON Schema: of a descriptor, and of others."),
    "record": Verb(_WRITING, "feeds", "Record what a module and the daemon say."),
    "replay": Verb(_WRITING, "replay", "Play a transcript again, and show what differs."),
    "doctor": Verb(_ADMIN, "admin", "Say what is wrong with the setup, and what to do."),
    "trust": Verb(_ADMIN, "admin", "Let a project's stdiod.toml say what runs in its folder."),
    "policy": Verb(_ADMIN, "access", "Explain and check what modules are allowed."),
    "token": Verb(_ADMIN, "access", "Make, list and revoke tokens for HTTP."),
    "service": Verb(_ADMIN, "admin", "Write a systemd unit that runs the daemon for you."),
    "gateway": Verb(_ADMIN, "admin", "Serve HTTP for a daemon, by a program of its own."),
    "run": Verb(_ADMIN, "run", "Run the daemon in the foreground."),
    "completion": Verb(_SHELL, "shell", "Print the completion code for bash, zsh or fish."),
    "help": Verb(_SHELL, "shell", "Show the help of a verb."),
}
"""In the order of the help: daily verbs come first."""

EXIT_STATUS = """\
Exit status: 0 ok; 1 the answer is no: failed, not well, not ready in time; 2 usage; 3 no daemon
there; 130 Ctrl-C.

`stdiod help VERB` says more about a verb."""


_OPTIONS = ("version",)
"""Options that other commands have as verbs."""

_ELSEWHERE: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(("ls", "ps", "list", "show", "modules"), (("status",), "")),
    **dict.fromkeys(("call", "exec"), (("invoke",), "")),
    **dict.fromkeys(("init", "create"), (("new",), "")),
    **dict.fromkeys(
        ("add", "install"),
        (
            ("import", "new"),
            "a module's folder in a directory that the daemon serves is noticed by itself",
        ),
    ),
    **dict.fromkeys(("kill", "quit"), (("stop", "down"), "")),
    **dict.fromkeys(("tail", "log"), (("logs",), "")),
    **dict.fromkeys(("monit", "monitor", "watch"), (("top",), "")),
    **dict.fromkeys(
        ("delete", "remove", "rm", "del"),
        (("stop", "disable"), "a module whose folder is deleted is stopped by itself"),
    ),
    **dict.fromkeys(
        ("tools", "ops"), (("describe",), "`stdiod describe --all` is about all of them")
    ),
    **dict.fromkeys(("update", "upgrade", "refresh"), (("reload", "restart"), "")),
    **dict.fromkeys(("info", "inspect"), (("status", "describe"), "")),
    "scale": ((), "supervision.instances in the descriptor says how many processes a module has"),
    **dict.fromkeys(
        ("startup", "systemd"), (("service",), "`stdiod service install` runs it when you log in")
    ),
}
"""Names of verbs in other programs, the verbs of stdiod that do the same, and a further hint."""

_OPTIONS_ELSEWHERE = {
    ("up", "-d --detach --daemon -D"): "`up` is in the background already; `run` is not",
    ("up run", "-c"): "a file is named with --config FILE",
    ("up run", "--port -p --host --listen"): "HTTP is served with --http HOST:PORT",
    ("logs", "--tail -t"): "the number of lines is given with -n N",
    ("status", "--watch -w -f"): "`stdiod top` watches modules",
}
"""Options of other programs' verbs, and what stdiod has for them."""


class Verbs(click.Group):
    """The verbs, each imported when it is typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        module = import_module(f"supervisor.cli.verbs.{VERBS[cmd_name].module}")
        collector.begin()
        # A function cannot be called `import`, and `help` is Python's.
        command: click.Command = getattr(module, f"{cmd_name}_", None) or getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the matching verbs, without importing them, and the options."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=verb.summary)
            for name, verb in VERBS.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = name in VERBS or name.startswith("-")
        if not known and not ctx.resilient_parsing:  # a completing shell shows no error
            from difflib import get_close_matches

            near = [f"--{name}"] if name in _OPTIONS else get_close_matches(name, VERBS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "; `stdiod --help` lists them"
            if name.lower() in _ELSEWHERE:
                verbs, further = _ELSEWHERE[name.lower()]
                hint = "".join(f"; `stdiod {one}`: {VERBS[one].summary[:-1]}" for one in verbs)
                hint += f"; {further}" if further else ""
            raise click.UsageError(f"there is no verb {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs by section, without importing them."""
        del ctx
        width = max(map(len, VERBS))
        for section in dict.fromkeys(verb.section for verb in VERBS.values()):
            rows = [
                (name.ljust(width), verb.summary)
                for name, verb in VERBS.items()
                if verb.section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; turn each exception into an exit status."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            with _interruptible():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            click.echo(err=True)  # the terminal has written ^C
            if error.args:
                remark(f"{error.args[0]}")
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            let_go_of_stdout()
            ctx.exit(BROKEN_PIPE)
        except click.ClickException as error:
            from supervisor.cli.terminal import safe

            # It may repeat pasted text; click declares the attribute final.
            vars(error)["message"] = safe(_words_of(error))
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        # Any other exception ends in a sentence and an exit status, and not in a traceback.
        except Exception as error:
            # A write error in a task of `invoke --descriptor` comes in a group.
            if isinstance(leaf := _leaf(error), (click.ClickException, click.exceptions.Exit)):
                raise leaf from None
            if os.environ.get("STDIOD_TRACEBACK"):
                raise
            remark(
                f"this is a bug in stdiod: {type(error).__name__}: {error} "
                "(STDIOD_TRACEBACK=1 shows where)"
            )
            ctx.exit(BUG)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise while a verb runs; before and after, it ends the process quietly."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        # A daemon has set its own handler, and needs it up to the end.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _words_of(error: click.ClickException) -> str:
    """Return the message; for an option of other programs, with the one of stdiod."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.message
    verb, option = error.ctx.info_name or "", error.option_name
    if verb == "invoke" and option.startswith("--"):
        hint = f"args are written {option.removeprefix('--')}=VALUE"
    else:
        of = _OPTIONS_ELSEWHERE.items()
        hint = next((to for (v, o), to in of if verb in v.split() and option in o.split()), "")
    if not hint:
        return error.message
    if verb != "invoke":  # there it may be a typing error
        vars(error)["possibilities"] = None
    return f"{error.message.removesuffix('.')}; {hint}"


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Formatter(click.HelpFormatter):
    """Click's own formatter takes any terminal for at least 50 columns wide."""

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ) -> None:
        import shutil

        columns = shutil.get_terminal_size().columns
        self._is_narrow = columns < _USUAL_COLUMNS
        if width is None and self._is_narrow:
            width = max(columns, _FEWEST_COLUMNS)
        super().__init__(indent_increment, width, max_width)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write a list of terms; the explanation of a long term begins in the next line."""
        super().write_dl(rows, self.width // 3 if self._is_narrow else col_max, col_spacing)


_USUAL_COLUMNS = 60
_FEWEST_COLUMNS = 20
click.Context.formatter_class = _Formatter


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{example('up modules', 'help invoke')}\n\n{EXIT_STATUS}",
)
@click.version_option(VERSION, message="%(prog)s %(version)s")
@click.option("--socket", type=UNSEEN_PATH, metavar="PATH", help=SOCKET_HELP)
def stdiod(socket: Path | None) -> None:
    """Supervise modules: programs, in any language, that read and write lines of JSON."""
    del socket  # the verbs look it up; see `options.with_socket`
