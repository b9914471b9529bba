"""`stdiod new`: begin a module that works, in a folder of its own."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import click

from supervisor.cli.exit_status import NoError
from supervisor.cli.options import TEXT, example
from supervisor.cli.terminal import one_line, shell_word


class Language(NamedTuple):
    """How a module in a language is run: the template's ending, the command, what it needs."""

    ending: str
    command: tuple[str, ...]
    needs: str
    pass_env: tuple[str, ...] = ()


_BUILT = "[ greet -nt greet.c ] || ${CC:-cc} -O2 -o greet greet.c && exec ./greet"

LANGUAGES = {
    "bash": Language("sh", ("bash", "greet.sh"), "bash"),
    "c": Language("c", ("sh", "-c", _BUILT), "cc", ("CC",)),
    "exec": Language("", ("printf",), "printf"),
    "node": Language("js", ("node", "greet.js"), "node"),
    "perl": Language("pl", ("perl", "greet.pl"), "perl"),
    "python": Language("py", ("python3", "greet.py"), "python3"),
    "ruby": Language("rb", ("ruby", "greet.rb"), "ruby"),
}

_README = """\
# {name}

A module for stdiod. `module.json` says what it is and which ops it has{source}.

    stdiod check .                                     whether it keeps its protocol
    stdiod invoke {word} greet --args '{{"name":"Ada"}}' --descriptor module.json
    stdiod run .                                       serve it

`check` calls `greet` because its schema in `inputs` has `examples`. Give them to each op that may
be called by a check.
"""


@click.command(epilog=example("new greeter --lang python"))
@click.argument("name", type=TEXT)
@click.option(
    "--lang",
    type=click.Choice(sorted(LANGUAGES)),
    required=True,
    help="The language; `exec` wraps a command that exists already.",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to create the folder.  [default: the working directory]",
)
def new(name: str, lang: str, into: Path) -> None:
    """Create a module: the folder NAME with a descriptor, a working source, and a README.

    Downloads nothing, and overwrites nothing. As you change the source, `stdiod check` says
    whether it still keeps to its protocol.
    """
    from protocol.descriptor.loading import DescriptorError, parse_descriptor

    language, folder = LANGUAGES[lang], into / name
    document = _descriptor(name, language)
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        parse_descriptor(text.encode(), str(folder.absolute() / "module.json"))
    except DescriptorError as error:
        problem = error.problems[0]
        words = f"{one_line(name)!r} is not a valid module name: {problem}"
        raise click.UsageError(words) from None
    files = {"module.json": text, "README.md": _readme(name, language)}
    if language.ending:
        source = f"greet.{language.ending}"
        template = resources.files("supervisor.cli.templates") / source
        files[source] = template.read_text(encoding="utf-8")
    _write(folder, files)
    shown = shell_word(str(folder))
    hint = f"`stdiod check {shown}` says whether it works"
    click.echo(f"{one_line(str(folder))} has been created; {hint}")
    if shutil.which(language.needs) is None:
        words = f"there is no {language.needs} in your PATH, and it needs that to run"
        click.echo(f"stdiod: {words}", err=True)


def _descriptor(name: str, language: Language) -> dict[str, Any]:
    transport: dict[str, Any] = {"type": "stdio", "command": language.command}
    if not language.ending:
        op = {"args": ["hello %s\\n", "{name}"], "stdout": "text"}
        transport |= {"protocol": "exec", "exec": {"ops": {"greet": op}}}
    if language.pass_env:
        transport["pass_env"] = language.pass_env
    args = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
        "examples": [{"name": "Ada"}],
    }
    return {
        "name": name,
        "kind": "tool",
        "version": "0.1.0",
        "description": "Greets whoever is named.",
        "transport": transport,
        "capabilities": [],
        "inputs": {"greet": args},
        "outputs": {"greet": {"type": "string"}},
    }


def _readme(name: str, language: Language) -> str:
    source = (
        f", `greet.{language.ending}` does them" if language.ending else " and how they are run"
    )
    return _README.format(name=one_line(name), word=shell_word(name), source=source)


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")
    except FileExistsError:
        raise NoError(f"{one_line(str(folder))} already exists, and is left as it is") from None
    except OSError as error:
        words = f"{one_line(str(folder))} cannot be written: {error.strerror}"
        raise NoError(words) from None
