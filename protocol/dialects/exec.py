r"""Dialect `exec`: any command line tool, a process per invocation (docs/exec.md).

    idle --ask--> open --the end of its output--> finished
                     \--too much output--> broken

The args become arguments and stdin, and the output becomes the result, as the descriptor's op says.
The good exit codes are reported with the answer and judged at the end
(`supervisor.policy.verdict`).

An argument, or all of stdin, is a template with holes for args:

    {name}    the arg of that name, which has to be there
    {name?}   the same; if it is absent, the whole argument is left out, and so is the whole stdin
    {name:json}, {name:json?}   as JSON text: a string in quotes, a list as one argument
    {{ }}     a brace

Only the name of one of the op's `inputs` makes a hole: `{print $1}` is text as it stands. Values
are filled in literally, and no shell sees them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from protocol.connection import (
    NOTHING,
    Answered,
    EventReceived,
    Events,
    Memory,
    NewId,
    Notice,
    Received,
    Request,
    Violated,
    Warned,
)
from protocol.descriptor.model import Descriptor, ExecOp, ExecOutput
from protocol.dialects.lines import OneInvocation, Stage
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.events import AssetBytes, Log
from protocol.frames import encode
from protocol.framing import EXCERPT_BYTES, Outgoing
from protocol.json_line import (
    LONE_SURROGATES,
    Fault,
    excerpt,
    is_utf8,
    passes_unread,
    why_malformed,
    without_lone_surrogates,
)
from protocol.problem import did_you_mean, named, quoted, step
from protocol.weight import MOST_VALUES, ValueCount, collector_paused

ARGUMENT_BYTES = (128 << 10) - 1
"""The longest argument that Linux starts a program with (MAX_ARG_STRLEN, its NUL included)."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_WORD = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)(?::json)?\??")


class Hole(msgspec.Struct, frozen=True):
    name: str
    optional: bool = False
    as_json: bool = False


class Template(msgspec.Struct, frozen=True):
    text: str
    parts: tuple[str | Hole, ...]

    @property
    def only(self) -> Hole | None:
        part = self.parts[0] if len(self.parts) == 1 else None
        return part if isinstance(part, Hole) else None


class UnfitArgError(Exception):
    """An arg that cannot be filled in: its name, and a clause with the arg as its subject."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(name, words)
        self.name = name
        self.words = words


def read_template(text: str, names: Collection[str]) -> Template:
    parts: list[str | Hole] = []
    literal, at = "", 0
    for found in _TOKEN.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        name = found[1]
        if name is None:
            literal += found[0][0]
        elif (hole := _hole(name, names)) is not None:
            parts += [literal, hole] if literal else [hole]
            literal = ""
        else:
            literal += found[0]
    literal += text[at:]
    parts += [literal] if literal else []
    return Template(text, tuple(parts))


def _hole(word: str, names: Collection[str]) -> Hole | None:
    if word in names:
        return Hole(word)
    short = word.removesuffix("?")
    name = short if short in names else short.removesuffix(":json")
    if name not in names:
        return None
    return Hole(name, optional=short != word, as_json=name != short)


class NoHole(NamedTuple):
    pointer: str
    """The template's pointer within the op."""
    written: str
    meant: str
    """`; did you mean ...?`, if the word resembles the name of an input."""

    @property
    def is_slip(self) -> bool:
        """Whether the word is surely a misspelt hole."""
        return bool(self.meant) or self.written.endswith("?}")


def no_holes(op: Mapping[str, Any], names: Collection[str]) -> Iterator[NoHole]:
    """Yield the words of an op's templates that look like holes; the op may have any shape."""
    args = op.get("args")
    places = enumerate(args) if isinstance(args, list) else ()
    for pointer, template in (
        *((f"/args/{at}", one) for at, one in places),
        ("/stdin", op.get("stdin")),
    ):
        for found in _TOKEN.finditer(template) if isinstance(template, str) else ():
            word = found[1]
            if word is not None and (slip := _WORD.fullmatch(word)):
                name = slip[1]
                if _hole(word, names) is None:
                    yield NoHole(pointer, found[0], did_you_mean(name, names))


def input_names(schema: Any) -> frozenset[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()


def arguments(template: Template, args: Mapping[str, Any], *, options: bool) -> tuple[str, ...]:
    """Fill in the template of one argument: none, one, or one for each element of a list.

    Unless `options`, no value makes an argument that begins with `-`. Raises `UnfitArgError`.
    """
    only = template.only
    if only is not None and not only.as_json and isinstance(args.get(only.name), list):
        filled = tuple(_filled_in(only.name, one) for one in args[only.name])
    elif any(_is_left_out(part, args) for part in template.parts):
        return ()
    else:
        filled = (_text(template, args),)
    name = next((part.name for part in template.parts if isinstance(part, Hole)), "")
    for one in filled:
        if one.startswith("-") and not template.text.startswith("-") and not options:
            words = (
                f"makes the argument {quoted(one)}, which the program would take for an option; "
                'the descriptor allows that behind "--", in "--x={...}", or with "options": true'
            )
            raise UnfitArgError(name, words)
        if len(one.encode(errors="surrogatepass")) > ARGUMENT_BYTES:
            words = (
                f"makes an argument of more than {ARGUMENT_BYTES} bytes, with which Linux starts "
                'no program; a long value has to go in through "stdin"'
            )
            raise UnfitArgError(name, words)
    return filled


def stdin(template: Template, args: Mapping[str, Any]) -> bytes:
    """Fill in the template of stdin. Raises `UnfitArgError`."""
    if any(_is_left_out(part, args) for part in template.parts):
        return b""
    return _text(template, args).encode(errors="surrogatepass")


def _text(template: Template, args: Mapping[str, Any]) -> str:
    return "".join(
        part if isinstance(part, str) else _filled(part, args) for part in template.parts
    )


def _filled(hole: Hole, args: Mapping[str, Any]) -> str:
    if hole.name not in args:
        raise UnfitArgError(hole.name, "is missing, and the command cannot be run without it")
    return _filled_in(hole.name, args[hole.name], as_json=hole.as_json)


def _filled_in(name: str, value: Any, *, as_json: bool = False) -> str:
    text = value if isinstance(value, str) and not as_json else encode(value).decode()
    if "\0" in text:
        raise UnfitArgError(name, "holds a NUL, which is passed to no command")
    return text


def _is_left_out(part: str | Hole, args: Mapping[str, Any]) -> bool:
    return isinstance(part, Hole) and part.optional and part.name not in args


ASSET_ID = "stdout"


class ExecConnection(OneInvocation):
    _subject = "a command"

    def __init__(self, descriptor: Descriptor, new_id: NewId, memory: Memory) -> None:
        del new_id, memory
        self._module = descriptor.name
        self._ops = descriptor.transport.exec.ops
        self._inputs = descriptor.inputs or {}
        self._limit = descriptor.supervision.limits.line_bytes
        self.outgoing = Outgoing()
        self._op = ExecOp()
        self._held = bytearray()
        """The output so far; of output in lines only the last line, until it ends."""
        self._lines: list[str] = []
        self._total_bytes = 0
        self._warned = False

    @property
    def unfinished_line(self) -> str | None:
        return self._shown if self._held else None

    # What the host wants.

    def ask(self, request: Request) -> Events:
        self._check(request)
        op = self._ops.get(request.op)
        if op is None:
            words = f"{self._module} has no op {named(request.op, 80)}"
            failure = Failure.because(Reason.UNKNOWN_OP, words, ops=sorted(self._ops))
            return [Answered(request.request_id, failure)]
        names = input_names(self._inputs.get(request.op))
        try:
            templates = [read_template(one, names) for one in op.args]
            plain = (*op.args, "--").index("--")
            filled = [
                arguments(one, request.args, options=op.options or at > plain)
                for at, one in enumerate(templates)
            ]
            written = stdin(read_template(op.stdin, names), request.args)
        except UnfitArgError as error:
            words = f"{named(error.name, 80)} of {self._module}.{request.op} {error.words}"
            failure = Failure.because(Reason.INVALID_ARGS, words, pointer=step("", error.name))
            return [Answered(request.request_id, failure)]
        self._begin(request.request_id)
        self._op = op
        self.arguments = tuple(one for several in filled for one in several)
        if written:
            self.outgoing.add(written, request.request_id)
        return NOTHING

    # What the process does.

    def receive_data(self, data: bytes) -> Events:
        if self._stage is not Stage.OPEN:
            return NOTHING
        self._total_bytes += len(data)
        if self._op.stdout is ExecOutput.BYTES:
            return [EventReceived(self._request_id, self._piece(data))]
        received: list[Received] = []
        if self._total_bytes > self._limit:
            self._held += data[: EXCERPT_BYTES + 1]
            self._break(f"{self._limit} bytes (limits.line_bytes)", received)
        elif self._op.stdout is ExecOutput.LINES:
            self._split(data, received)
        else:
            self._held += data
        return received

    def receive_eof(self) -> Events:
        if self._stage is not Stage.OPEN:
            return NOTHING
        received: list[Received] = []
        outcome = self._outcome(received)
        if self._stage is Stage.OPEN:
            self._stage = Stage.FINISHED
            received.append(Answered(self._request_id, outcome, codes=(0, *self._op.ok_codes)))
        return received

    def _outcome(self, received: list[Received]) -> Outcome:
        match self._op.stdout:
            case ExecOutput.TEXT:
                text = self._decoded(self._held, received)
                return Success(text.removesuffix("\n"))
            case ExecOutput.LINES:
                if self._held:
                    self._split(b"\n", received)
                return Success(self._lines)
            case ExecOutput.BYTES:
                received.append(EventReceived(self._request_id, self._piece(b"", last=True)))
                return Success({"assetId": ASSET_ID, "bytes": self._total_bytes})
            case ExecOutput.JSON | ExecOutput.JSONL:
                return self._json(received)

    def _json(self, received: list[Received]) -> Outcome:
        printed = bytes(self._held)
        by_line = self._op.stdout is ExecOutput.JSONL
        count = ValueCount()
        if count.feed(printed) + by_line * printed.count(b"\n") > MOST_VALUES:
            return self._too_much(f"{MOST_VALUES} {count.name}").failure()
        if not printed.strip() and not by_line:
            return self._unreadable("printed nothing, must be one JSON value", b"")
        if not is_utf8(printed):
            return self._unreadable("printed what is not UTF-8, must be JSON", printed)
        if (mended := without_lone_surrogates(printed)) is not None:
            received.append(Warned(self._request_id, Notice(*LONE_SURROGATES, excerpt(printed))))
            printed = mended
        try:
            with collector_paused():
                if by_line:
                    lines = filter(bytes.strip, printed.split(b"\n"))
                    return Success([msgspec.json.decode(printed := line) for line in lines])
                # Without its white space it is one line, and can be passed on unread.
                said = msgspec.json.format(printed, indent=-1)
                unread = passes_unread(said)
                return Success(msgspec.Raw(said) if unread else msgspec.json.decode(said))
        except (msgspec.DecodeError, RecursionError) as error:
            cause = why_malformed(printed, str(error).removeprefix("JSON is malformed: "))
            what = "a line" if by_line else "output"
            return self._unreadable(f"printed {what} that {cause}", printed)

    def _unreadable(self, words: str, shown: bytes) -> Failure:
        what = f'the command of {self._module} {words} ("stdout": "{self._op.stdout}")'
        return Failure.because(Reason.UNREADABLE_OUTPUT, what, line_excerpt=excerpt(shown))

    def _split(self, data: bytes, received: list[Received]) -> None:
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._held += data
            return
        lines = (bytes(self._held) + whole).split(b"\n")
        self._held = bytearray(rest)
        if len(self._lines) + len(lines) > MOST_VALUES:
            self._break(f"{MOST_VALUES} lines", received)
            return
        for line in lines:
            text = self._decoded(line, received)
            self._lines.append(text)
            log = Log(version="0", request_id=self._request_id, level="info", message=text)
            received.append(EventReceived(self._request_id, log))

    def _decoded(self, data: bytes | bytearray, received: list[Received]) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            if not self._warned:
                self._warned = True
                words = (
                    'bytes of its output that are not UTF-8 were read as \\ufffd; "stdout": '
                    '"bytes" keeps them'
                )
                notice = Notice("invalid_utf8", words, excerpt(bytes(data[: EXCERPT_BYTES + 1])))
                received.append(Warned(self._request_id, notice))
            return data.decode(errors="replace")

    def _piece(self, data: bytes, *, last: bool = False) -> AssetBytes:
        media_type = self._op.media_type
        return AssetBytes(
            asset_id=ASSET_ID, kind="file", media_type=media_type, data=data, last=last
        )

    def _break(self, limit: str, received: list[Received]) -> None:
        received.append(Violated(self._request_id, self._too_much(limit)))
        self._stage = Stage.BROKEN
        self._held, self._lines = bytearray(), []

    def _too_much(self, limit: str) -> Fault:
        words = (
            f'the command of {self._module} printed more than {limit}; "stdout": "bytes" makes an'
            " asset of it"
        )
        return Fault(Reason.LINE_TOO_LONG, words, self._shown)

    @property
    def _shown(self) -> str:
        return excerpt(bytes(self._held[: EXCERPT_BYTES + 1]))
