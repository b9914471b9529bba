"""Results on stdout: JSON for programs, indented JSON for people; and failures."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from protocol.client import Answer
from protocol.frames import one_line as one_json_line
from supervisor.cli.exit_status import NO, remark
from supervisor.cli.terminal import STEERING, cut, is_terminal, one_line, safe

ONE_LINE_CHARS = 80
"""Shorter JSON stays on one line."""

SHORT_CHARS = 200

# Characters that JSON allows in a string and a terminal might act on.
_UNSAFE = re.compile(f"[{STEERING}]")


def echo_json(line: bytes) -> None:
    """Print a line of JSON; on a terminal, characters that steer it are escaped."""
    click.echo(_escaped(line.decode()) if is_terminal(sys.stdout) else line)


def _escaped(text: str) -> str:
    # The escape is JSON's own, so the output can still be parsed.
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(value: Any) -> None:
    """Print a value as one line of UTF-8, whatever the terminal's encoding is.

    Not by orjson, which has no integers beyond 64 bits: modules and clients may.
    """
    try:
        line = msgspec.json.encode(value)
    except UnicodeEncodeError:
        line = msgspec.json.encode(_without_surrogates(value))
    echo_json(one_json_line(line))


def print_document(value: Any) -> None:
    """Print a document that contains no value of a module or client."""
    import orjson

    try:
        line = orjson.dumps(value)
    except TypeError:
        line = orjson.dumps(_without_surrogates(value))
    echo_json(line)


def _without_surrogates(value: Any) -> Any:
    """Escape text in a document that is not UTF-8, such as a path or a shell variable."""
    match value:
        case str():
            return value.encode(errors="surrogateescape").decode(errors="backslashreplace")
        case dict():
            return {key: _without_surrogates(one) for key, one in value.items()}
        case list() | tuple():
            return [_without_surrogates(one) for one in value]
        case _:
            return value


def print_laid_out(value: Any) -> None:
    """Print a value as JSON for people: indented, or on one line if it is short."""
    compact = msgspec.json.encode(value)
    text = msgspec.json.format(compact, indent=0)
    if len(text) > ONE_LINE_CHARS:
        text = msgspec.json.format(compact, indent=2)
    click.echo(_escaped(text.decode()))


def compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def short(value: Any) -> str:
    """Return a value as JSON on one line that cannot steer a terminal, cut if it is long."""
    return cut(safe(compact(value)), SHORT_CHARS)


def show_result(result: Any, text: str | Callable[[Any], str | None], *, as_json: bool) -> None:
    """Print a result for a program; or for a person: words, or what a function makes of it."""
    if as_json:
        print_json(result)
        return
    words = text if isinstance(text, str) else text(result)
    if words is not None:  # a function may print them itself
        click.echo(words)


def show_message(event: dict[str, Any]) -> None:
    """Show what the daemon itself says among the events that it passes on."""
    remark(one_line(str(event.get("message"))))


def result_of(answer: Answer, *, as_json: bool, module: str, op: str = "") -> Any:
    """Return the result of an answer; a failure is printed and ends the verb."""
    if not answer.ok:
        tell_failure(answer, as_json=as_json, module=module, op=op)
        raise click.exceptions.Exit(NO)
    return answer.result


def tell_failure(
    answer: Answer, *, as_json: bool, module: str, op: str = "", alone: bool = True
) -> None:
    """Print why an answer is not ok; the JSON of one of several names its module."""
    if as_json:
        print_json(answer.document if alone else {"module": module, **answer.document})
        return
    from supervisor.cli.failure_text import failure_text

    click.echo(failure_text(answer.error, module=module, op=op), err=True)
