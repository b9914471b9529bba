"""Play a conversation to a connection of a dialect, and write down what it writes and tells.

A file `NAME.talk` has conversations. `>` begins an input; what is indented came out after it.

    === a conversation, in a sentence
    mcp {"line_bytes": 100}     the dialect, and what its descriptor says besides
    > start
    > ask {"request_id": "r1", "op": "echo"}
    > hear TEXT                 the process prints a line
    > bytes "TEXT"              it prints just that; `\\x80` to `\\xff` are bytes
    > cancel ID WRITTEN
    > flow ID pause
    > answer NUMBER JSON        to the call of that number: `result`, or `code` and `message`
    > part NUMBER JSON          the same, and another part follows
    > time NUMBER               the wait of that number is over
    > eof
    > exit CODE
    > again                     a fresh process, which knows what the last one has left

In any of them `$(x*1000)` is a thousand times `x`. Of texts that are longer than `SHOWN_CHARS`, the
beginning and the length are written down; what is as long and was there before is "as before".
`python -m tests.protocol.talk` writes all files anew.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from protocol.connection import (
    Connection,
    Events,
    Flow,
    HostCalled,
    LocalError,
    Memory,
    Request,
    Wait,
)
from protocol.descriptor.model import Descriptor, EraPin, ExecOp, Lifecycle, McpTransport
from protocol.dialects.exec import ExecConnection
from protocol.errors import Failure, Outcome, Success
from protocol.framing import Written
from protocol.host_call import Chunk
from protocol.replies import Operation
from protocol.version import VERSION
from tests.protocol.wire import connected, descriptor

FOLDER = Path(__file__).parent / "talks"
SHOWN_CHARS = 500
TIMES = re.compile(r"\$\((.*?)\*(\d+)\)")


def conversations(path: Path) -> list[list[str]]:
    """Return the lines of each conversation of a file."""
    found: list[list[str]] = []
    for row in path.read_text().splitlines():
        if row.startswith("==="):
            found.append([])
        if row:
            found[-1].append(row)
    return found


def played(rows: list[str]) -> list[str]:
    """Return the lines of a conversation with what comes out of it now."""
    title, head, *rest = rows
    talk = Talk(*_head(head))
    lines = [title, head]
    for row in rest:
        if row.startswith(">"):
            lines += [row, *(f"  {one}" for one in talk.play(row))]
        elif row.startswith("#"):
            lines.append(row)
    return lines


def _head(row: str) -> tuple[str, dict[str, Any]]:
    dialect, _, said = row.partition(" ")
    return dialect, json.loads(said or "{}")


def _made(said: dict[str, Any]) -> Descriptor:
    """Return a descriptor; the fields that are none of `descriptor` are those of the whole one."""
    own = {key: said[key] for key in ("stdout", "input_form", "line_bytes") if key in said}
    made = descriptor(lifecycle=Lifecycle(said.get("lifecycle", "persistent")), **own)
    transport = made.transport
    if "era" in said:
        era = McpTransport(era=EraPin(said["era"]))
        transport = msgspec.structs.replace(transport, mcp=era)
    if "ops" in said:
        ops = msgspec.convert(said["ops"], dict[str, ExecOp])
        transport = msgspec.structs.replace(
            transport, exec=msgspec.structs.replace(transport.exec, ops=ops)
        )
    return msgspec.structs.replace(
        made,
        transport=transport,
        capabilities=tuple(said.get("capabilities", ())),
        inputs=said.get("inputs"),
    )


class Talk:
    def __init__(self, dialect: str, said: dict[str, Any]) -> None:
        self._dialect = dialect
        self._descriptor = _made(said)
        self._memory: Memory = {}
        self._told: set[str] = set()
        """The long values that are written down."""
        self._begin()

    def _begin(self) -> None:
        self.connection: Connection = connected(self._dialect, self._descriptor, self._memory)
        self._waits: tuple[Wait, ...] = ()
        self._calls: list[HostCalled] = []

    def play(self, row: str) -> Iterator[str]:
        """Yield what comes out after an input."""
        row = TIMES.sub(lambda found: found[1] * int(found[2]), row)
        word, _, rest = row.removeprefix("> ").partition(" ")
        if word == "again":
            self._begin()
            return
        try:
            events = self._inputs[word](self, rest)
        except LocalError as error:
            yield f"LocalError: {error}"
            events = ()
        for event in events:
            if isinstance(event, HostCalled):
                self._calls.append(event)
            told = json.dumps(self._new(_shown(event)), ensure_ascii=False)
            yield f"{type(event).__name__} {told}"
        for written in self.connection.outgoing.take().splitlines():
            yield f"writes {_cut(written.decode(errors='backslashreplace'))}"
        if isinstance(self.connection, ExecConnection) and word == "ask":
            yield f"arguments {json.dumps(_shown(self.connection.arguments))}"
        if self.connection.unfinished_line is not None:
            yield f"unfinished {_cut(self.connection.unfinished_line)}"
        waits = self.connection.waits
        if list(map(id, waits)) != list(map(id, self._waits)):
            self._waits = waits
            words = ", ".join(f"{one.seconds:g} s for {one.for_what}" for one in waits)
            yield f"waits {words or 'for nothing'}"

    def _new(self, value: Any) -> Any:
        """Return a value without the long objects in it that were written down before."""
        if isinstance(value, list):
            return [self._new(one) for one in value]
        if not isinstance(value, dict):
            return value
        text = json.dumps(value)
        if text in self._told:
            return "as before"
        if len(text) > SHOWN_CHARS // 2:
            self._told.add(text)
        return {key: self._new(one) for key, one in value.items()}

    def _ask(self, rest: str) -> Events:
        said = {"operation": Operation.INVOKE, **json.loads(rest)}
        return self.connection.ask(msgspec.convert(said, Request))

    def _cancel(self, rest: str) -> Events:
        request_id, _, written = rest.partition(" ")
        return self.connection.cancel(request_id, Written[written])

    def _flow(self, rest: str) -> Events:
        request_id, _, operation = rest.partition(" ")
        return self.connection.flow(request_id, Flow(operation))

    def _answer(self, rest: str) -> Events:
        call, outcome = self._answered(rest)
        return self.connection.answer(call, outcome)

    def _part(self, rest: str) -> Events:
        call, outcome = self._answered(rest)
        return self.connection.answer(call, outcome, Chunk(0, is_last=False))

    def _answered(self, rest: str) -> tuple[HostCalled, Outcome]:
        number, _, said = rest.partition(" ")
        outcome = json.loads(said)
        call = self._calls[int(number) - 1]
        if "result" in outcome:
            return call, Success(outcome["result"])
        return call, Failure(outcome["code"], outcome["message"])

    def _exit(self, rest: str) -> Events:
        return self.connection.process_exited(int(rest) if rest else None)

    def _time(self, rest: str) -> Events:
        return self.connection.time_passed(self.connection.waits[int(rest) - 1])

    _inputs: ClassVar[dict[str, Callable[[Talk, str], Events]]] = {
        "start": lambda self, _: self.connection.start(),
        "ask": _ask,
        "hear": lambda self, rest: self.connection.receive_data(f"{rest}\n".encode()),
        "bytes": lambda self, rest: self.connection.receive_data(
            ast.literal_eval(rest).encode("latin-1")
        ),
        "cancel": _cancel,
        "flow": _flow,
        "answer": _answer,
        "part": _part,
        "time": _time,
        "eof": lambda self, _: self.connection.receive_eof(),
        "exit": _exit,
    }


def _shown(value: Any) -> Any:
    match value:
        case msgspec.Raw():
            return json.loads(bytes(value))
        case msgspec.Struct():
            fields = (
                (one.name, getattr(value, one.name), one.default)
                for one in msgspec.structs.fields(value)
            )
            told = {
                name: _shown(one)
                for name, one, default in fields
                if one is not msgspec.UNSET and one != default
            }
            return {type(value).__name__: told} if isinstance(value, Success | Failure) else told
        case Enum():
            return str(value)
        case bytes():
            return _cut(value.decode(errors="backslashreplace"))
        case str():
            return _cut(value)
        case dict():
            return {_cut(key): _shown(one) for key, one in value.items()}
        case list() | tuple():
            return [_shown(one) for one in value]
    return value


SHORT = {
    json.dumps({"name": "stdiod", "version": VERSION}, separators=(",", ":")): '"STDIOD"',
    '"io.modelcontextprotocol/': '"MCP/',
}


def _cut(text: str) -> str:
    for long, short in SHORT.items():
        text = text.replace(long, short)
    return text if len(text) <= SHOWN_CHARS else f"{text[:40]}... ({len(text)})"


def write_all() -> None:
    """Write all files anew with what comes out now."""
    for path in sorted(FOLDER.glob("*.talk")):
        texts = ("\n".join(played(rows)) for rows in conversations(path))
        path.write_text("\n\n".join(texts) + "\n")


if __name__ == "__main__":
    write_all()
