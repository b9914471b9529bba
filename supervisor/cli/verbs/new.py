"""`stdiod new`: create a working module in a folder of its own."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.exit_status import NoError
from supervisor.cli.options import TEXT, example
from supervisor.cli.terminal import one_line, shell_word

if TYPE_CHECKING:
    from protocol.descriptor.model import Descriptor, Lifecycle
    from supervisor.cli.module_templates import Choice

LANGUAGES = ("bash", "c", "exec", "go", "java", "node", "perl", "python", "ruby", "rust")
ALIASES = dict.fromkeys(("js", "javascript", "nodejs", "ts", "typescript"), "node")
ALIASES |= {"py": "python", "python3": "python", "sh": "bash", "shell": "bash", "pl": "perl"}
ALIASES |= {"rb": "ruby", "rs": "rust", "golang": "go"}
KINDS = ("provider", "tool", "agent", "hook", "orchestrator", "context")
PROTOCOLS = ("module", "narratoria", "mcp")
LIFECYCLES = ("persistent", "per-invocation")


class _Language(click.Choice[str]):
    """A language, or a short name for one."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Name the languages without their short names."""
        del param, ctx
        return f"Choose from: {', '.join(LANGUAGES)}"


@click.command(
    epilog=example(
        "new greeter --lang python",
        "new gate --lang go --kind hook --protocol module",
        "new q --lang exec -- jq",
    )
)
@click.argument("name", type=TEXT)
@click.argument("command", nargs=-1)
@click.option(
    "--lang",
    type=_Language((*LANGUAGES, *ALIASES), case_sensitive=False),
    required=True,
    metavar="LANGUAGE",
    help=f"{', '.join(LANGUAGES)}, or a short name such as py, js, sh; `exec` wraps COMMAND.",
)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="tool",
    help="The kind of the module.  [default: tool]",
)
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    help="The protocol that it speaks.  [default: module]",
)
@click.option(
    "--lifecycle",
    type=click.Choice(LIFECYCLES),
    help="One process for many requests, or one for each.  [default: the protocol's]",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to create the folder.  [default: the working directory]",
)
def new(
    name: str,
    command: tuple[str, ...],
    *,
    lang: str,
    kind: str,
    protocol: str | None,
    lifecycle: str | None,
    into: Path,
) -> None:
    """Create a module: the folder NAME with a descriptor, a source, a test of it, and a README.

    The source works as it is, with one op. The test is a transcript, for `stdiod replay`.
    With --lang exec there is no source and no test, and with a COMMAND the descriptor alone.
    Downloads nothing, and overwrites nothing. As you change the source, `stdiod check` says
    whether it still keeps to its protocol.
    """
    from supervisor.cli import module_templates

    folder = into / name
    choice, default = _choice(name, ALIASES.get(lang, lang), kind, protocol, lifecycle)
    document = module_templates.descriptor_of(choice, default)
    if command and choice.lang != "exec":
        raise click.UsageError(f"a COMMAND goes with --lang exec, not with --lang {lang}")
    if command:
        document = module_templates.wrapping(document, command)
    descriptor = _parsed(document, name, folder)
    when = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    files = module_templates.files_of(choice, document, descriptor, when)
    _write(folder, {"module.json": files["module.json"]} if command else files)
    shown = shell_word(str(folder))
    hint = f"`stdiod check {shown}` says whether it works"
    click.echo(f"{one_line(str(folder))} has been created; {hint}")
    if choice.lang == "exec" and not command:
        words = "it wraps `printf`, as an example; to wrap a command, put it behind --, as in "
        words += "`stdiod new NAME --lang exec -- jq`"
        click.echo(f"stdiod: {words}", err=True)
    needs = command[0] if command else choice.needs
    if shutil.which(needs) is None:
        words = f"there is no {one_line(needs)} in your PATH, and it needs that to run"
        click.echo(f"stdiod: {words}", err=True)


def _choice(
    name: str, lang: str, kind: str, protocol: str | None, lifecycle: str | None
) -> tuple[Choice, Lifecycle]:
    """Return the module to make, and the default lifecycle of its protocol."""
    from protocol.descriptor.model import Lifecycle
    from protocol.dialects import DIALECTS
    from supervisor.cli.module_templates import Choice

    if lang == "exec":
        if protocol is not None:
            words = "--lang exec wraps a command, which speaks no protocol; leave out --protocol"
            raise click.UsageError(words)
        if kind == "hook":
            words = (
                "--lang exec cannot be a hook: a hook answers with an object, a command with text"
            )
            raise click.UsageError(words)
    spoken = protocol or ("exec" if lang == "exec" else "module")
    lifecycles = DIALECTS[spoken].lifecycles
    chosen = lifecycles[0] if lifecycle is None else Lifecycle(lifecycle)
    if chosen not in lifecycles:
        words = f"{spoken} has no lifecycle {chosen}, it is always {lifecycles[0]}"
        raise click.UsageError(words)
    return Choice(name, lang, kind, spoken, chosen), lifecycles[0]


def _parsed(document: dict[str, Any], name: str, folder: Path) -> Descriptor:
    from protocol.descriptor.loading import DescriptorError, parse_descriptor

    try:
        return parse_descriptor(
            json.dumps(document).encode(), str(folder.absolute() / "module.json")
        )
    except DescriptorError as error:
        problem = error.problems[0]
        words = str(problem)
        if problem.pointer == "/name":
            words = f"{one_line(name)!r} is not a valid module name: {words}"
        raise click.UsageError(words) from None


def _write(folder: Path, files: dict[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except FileExistsError:
        raise NoError(f"{one_line(str(folder))} already exists, and is left as it is") from None
    except OSError as error:
        words = f"{one_line(str(folder))} cannot be written: {error.strerror}"
        raise NoError(words) from None
