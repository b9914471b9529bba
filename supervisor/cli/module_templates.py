"""The files of `stdiod new`: the descriptor, the source, a transcript and a README.

A template, `templates/FILE.in`, is the source of one language for all protocols. A line `%% A B`
begins a part of these protocols only, `%% all` one of all. `@op@` and the like are replaced by the
values of the module's kind.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from protocol.connection import Request
from protocol.descriptor.model import Descriptor, Lifecycle
from protocol.replies import Operation
from protocol.transcript import (
    Entry,
    EntrySource,
    Happened,
    Header,
    asked,
    descriptor_document,
    encode_record,
)
from protocol.version import VERSION
from schemas import load
from supervisor.cli.terminal import one_line, shell_word

TRANSCRIPT = "test.jsonl"

WHO = "Ada"
"""The name in all examples."""


class Language(NamedTuple):
    """How a module in a language is built and run; `needs` is the required program."""

    file: str
    command: tuple[str, ...]
    needs: str
    prepare: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()


LANGUAGES = {
    "bash": Language("main.sh", ("bash", "main.sh"), "bash"),
    "c": Language("main.c", ("./main",), "cc", ("cc", "-O2", "-o", "main", "main.c")),
    "exec": Language("", ("printf",), "printf"),
    "go": Language(
        "main.go",
        ("./main",),
        "go",
        ("go", "build", "-o", "main", "main.go"),
        ("GOROOT?", "GOPATH?", "GOCACHE?"),
    ),
    "java": Language(
        "Main.java",
        ("java", "-cp", "classes", "Main"),
        "javac",
        ("javac", "-d", "classes", "Main.java"),
    ),
    "node": Language("main.js", ("node", "main.js"), "node"),
    "perl": Language("main.pl", ("perl", "main.pl"), "perl"),
    "python": Language("main.py", ("python3", "main.py"), "python3"),
    "ruby": Language("main.rb", ("ruby", "main.rb"), "ruby"),
    "rust": Language(
        "main.rs",
        ("./main",),
        "rustc",
        ("rustc", "--edition=2021", "-O", "-o", "main", "main.rs"),
        ("RUSTUP_HOME?", "RUSTUP_TOOLCHAIN?"),
    ),
}


class OpTemplate(NamedTuple):
    """The op of a module of a kind: it takes one text and returns an object."""

    op: str
    arg: str
    key: str
    says: str
    about: str

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of its args."""
        return {
            "type": "object",
            "properties": {self.arg: {"type": "string"}},
            "required": [self.arg],
            "examples": [{self.arg: WHO}],
        }


PARTS = {
    "agent": OpTemplate("execute", "prompt", "content", "I was asked: ", "Does what it is asked."),
    "context": OpTemplate("add", "text", "kept", "", "Keeps a text."),
    "hook": OpTemplate("on_event", "event", "reason", "saw ", "Looks at what happens."),
    "orchestrator": OpTemplate(
        "execute", "prompt", "content", "I was asked: ", "Does what it is asked."
    ),
    "provider": OpTemplate("complete", "prompt", "content", "You said: ", "Goes on from a prompt."),
    "tool": OpTemplate("greet", "name", "greeting", "hello ", "Greets whoever is named."),
}


class Selection(NamedTuple):
    name: str
    lang: str
    kind: str
    protocol: str
    lifecycle: Lifecycle

    @property
    def language(self) -> Language:
        return LANGUAGES[self.lang]

    @property
    def part(self) -> OpTemplate:
        return PARTS[self.kind]

    @property
    def needs(self) -> str:
        return "jq" if (self.lang, self.protocol) == ("bash", "mcp") else self.language.needs


def descriptor_of(choice: Selection, default: Lifecycle) -> dict[str, Any]:
    """Return the descriptor; `default` is the lifecycle of its protocol."""
    language, part = choice.language, choice.part
    transport: dict[str, Any] = {"type": "stdio"}
    if language.prepare:
        transport["prepare"] = language.prepare
    transport["command"] = language.command
    if choice.protocol != "module":
        transport["protocol"] = choice.protocol
    if choice.lifecycle is not default:
        transport["lifecycle"] = str(choice.lifecycle)
    outputs: dict[str, Any] = {
        "type": "object",
        "properties": {part.key: {"type": "string"}},
        "required": [part.key],
    }
    if choice.protocol == "exec":
        op = {"args": [f"{part.says}%s\\n", f"{{{part.arg}}}"], "stdout": "text"}
        transport["exec"] = {"ops": {part.op: op}}
        outputs = {"type": "string"}
    if language.pass_env:
        transport["pass_env"] = language.pass_env
    document = {
        "$schema": load("stdiod-descriptor.v1")["$id"],
        "name": choice.name,
        "kind": choice.kind,
        "version": "0.1.0",
        "description": part.about,
        "transport": transport,
        "capabilities": [],
    }
    if choice.kind == "hook":
        document["hook"] = {"observe": ["module:*"]}
    if choice.protocol != "mcp":  # a server lists its tools itself
        document |= {"inputs": {part.op: part.schema}, "outputs": {part.op: outputs}}
    return document


def wrapping(document: dict[str, Any], command: tuple[str, ...]) -> dict[str, Any]:
    """Return the descriptor of a command with any arguments and input."""
    op = {"args": ["{args?}"], "stdin": "{stdin?}"}
    transport = {**document["transport"], "command": command, "exec": {"ops": {"run": op}}}
    if any(map(os.path.isfile, command)):
        transport["cwd"] = str(Path.cwd())  # paths in the words are relative to it
        program = os.path.abspath(command[0]) if "/" in command[0] else command[0]  # noqa: PTH100
        transport["command"] = (program, *command[1:])
    taken = {"args": {"type": "array", "items": {"type": "string"}}, "stdin": {"type": "string"}}
    inputs = {"run": {"type": "object", "properties": taken, "additionalProperties": False}}
    said = {"description": f"Runs `{shlex.join(command)}`", "inputs": inputs}
    return {**document, **said, "transport": transport, "outputs": {"run": {"type": "string"}}}


def source_of(choice: Selection) -> str:
    template = resources.files("supervisor.cli.templates") / f"{choice.language.file}.in"
    lines = _of_protocol(template.read_text(encoding="utf-8").splitlines(), choice.protocol)
    text = "\n".join(lines) + "\n"
    for name, value in choice.part._asdict().items():
        text = text.replace(f"@{name}@", value)
    return text


def _of_protocol(lines: list[str], protocol: str) -> Iterator[str]:
    wanted = ["all"]
    for line in lines:
        if line.startswith("%% "):
            wanted = line.split()[1:]
        elif "all" in wanted or protocol in wanted:
            yield line


# The transcript: the requests, and the answers that it has to give.

Said = list[tuple[EntrySource, dict[str, Any]] | Request]


def transcript_of(choice: Selection, descriptor: Descriptor, when: str) -> bytes:
    """Return the transcript of a conversation with the module; `when` is its time."""
    header = Header(
        transcript=1,
        module=choice.name,
        protocol=choice.protocol,
        lifecycle=choice.lifecycle,
        descriptor=descriptor_document(descriptor),
        recorded=when,
        stdiod=VERSION,
    )
    persistent = choice.lifecycle is Lifecycle.PERSISTENT
    records: list[Header | Entry] = [header]
    for number, said in enumerate(_conversations(choice), 1):
        records += _entries(said, f"{choice.name}#{number}", persistent=persistent)
    end = Entry(
        at_s=0,
        source=EntrySource.RECORDER,
        event=Happened.ENDED,
        missing_bytes=0,
        why="all is said",
    )
    return b"".join(map(encode_record, [*records, end]))


def _entries(said: Said, instance: str, *, persistent: bool) -> Iterator[Entry]:
    def happened(event: Happened, **facts: Any) -> Entry:
        return Entry(at_s=0, source=EntrySource.PROCESS, instance=instance, event=event, **facts)

    yield happened(Happened.SPAWNED)
    for one in said:
        if isinstance(one, Request):
            yield asked(0, instance, one)
            if not persistent:
                yield happened(Happened.STDIN_CLOSED)
        else:
            source, line = one
            text = msgspec.json.encode(line).decode()
            yield Entry(at_s=0, source=source, instance=instance, line=text)
    if persistent:
        yield happened(Happened.STDIN_CLOSED)
    # If the host does not stop the process, it has to end by itself.
    yield happened(Happened.EXITED, exit_code=0, stopped_by_host=persistent)


def _conversations(choice: Selection) -> Iterator[Said]:
    """Yield the conversation with each process."""
    part = choice.part
    args, result = {part.arg: WHO}, {part.key: f"{part.says}{WHO}"}
    refusal = {"code": "unsupported_op", "message": "there is no such op"}
    match choice.protocol:
        case "mcp":
            yield _mcp_conversation(part, args, result)
        case "narratoria":
            starting = {"type": "log", "level": "info", "message": "Starting"}
            failure = {f"error{key.title()}": words for key, words in refusal.items()}
            told: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
                (part.op, args, [starting, {"type": "done", "ok": True, "result": result}]),
                ("no such op", {}, [{"type": "error", **failure}, {"type": "done", "ok": False}]),
            ]
            for number, (op, content, events) in enumerate(told, 1):
                lines = [(EntrySource.MODULE, {"version": "0", **one}) for one in events]
                yield [Request(f"r{number}", Operation.INVOKE, op, content), *lines]
        case _:
            answers: list[tuple[Request, dict[str, Any]]] = [
                (Request("r1", Operation.HEALTH), {"status": "ok"}),
                (Request("r2", Operation.DESCRIBE), {"ok": True, "result": {}}),
                (Request("r3", Operation.INVOKE, part.op, args), {"ok": True, "result": result}),
                (Request("r4", Operation.INVOKE, "no such op"), {"ok": False, "error": refusal}),
            ]
            said: list[Said] = [
                [request, (EntrySource.MODULE, {"requestId": request.request_id, **answer})]
                for request, answer in answers
            ]
            persistent = choice.lifecycle is Lifecycle.PERSISTENT
            yield from [[line for one in said for line in one]] if persistent else said


def _mcp_conversation(part: OpTemplate, args: dict[str, Any], result: dict[str, Any]) -> Said:
    version = "2025-06-18"
    client = {"name": "stdiod", "version": VERSION}
    server = {"name": part.op, "version": "0.1.0"}
    introduction = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    accepted = {"capabilities": {"tools": {}}, "serverInfo": server}
    tool = {"name": part.op, "description": part.about, "inputSchema": part.schema}
    text = {"type": "text", "text": result[part.key]}
    refusal = {"code": -32601, "message": "there is no such method"}
    answers: list[tuple[Request | tuple[str, dict[str, Any]], dict[str, Any]]] = [
        (("server/discover", {}), {"error": refusal}),
        (("initialize", introduction), {"result": {"protocolVersion": version, **accepted}}),
        (("tools/list", {}), {"result": {"tools": [tool]}}),
        (
            Request("r1", Operation.INVOKE, part.op, args),
            {"result": {"content": [text], "structuredContent": result}},
        ),
        (Request("r2", Operation.HEALTH), {"result": {}}),
    ]
    said: Said = []
    for number, (question, answer) in enumerate(answers, 1):
        named = {"jsonrpc": "2.0", "id": number}
        if isinstance(question, Request):
            said.append(question)
        else:  # the connection's own
            method, params = question
            said.append((EntrySource.HOST, {**named, "method": method, "params": params}))
        said.append((EntrySource.MODULE, {**named, **answer}))
    return said


# The README.

_README = """\
# {name}

{about} `module.json` describes it and its ops{source}.

    stdiod check .                  does it keep to its protocol?
    stdiod invoke {word} {op} {arg}={who} --descriptor module.json
{replay}    stdiod up .                     serve it

`check` calls `{op}` because its schema has `examples`. Add them to each op that `check` may call.
"""

_REPLAY = f"    stdiod replay {TRANSCRIPT} --module module.json\n"

_TEST = f"""
`{TRANSCRIPT}` is its test: what it is told, and what it has to answer. When its answers
are to change, record another one with `stdiod invoke ... --record FILE`.
"""

_BUILD = """
`{prepare}` builds it before its first start. A daemon builds it again with
`stdiod restart {word} --prepare`; `check`, `replay` and `invoke --descriptor` do so each time.
"""


def readme_of(choice: Selection) -> str:
    part, language = choice.part, choice.language
    source = f"; `{language.file}` is the program" if language.file else ", and how they are run"
    if choice.protocol == "mcp":
        source = f"; `{language.file}` is the server"
    word = shell_word(choice.name)
    text = _README.format(
        name=one_line(choice.name),
        about=part.about,
        source=source,
        word=word,
        op=part.op,
        arg=part.arg,
        who=WHO,
        replay=_REPLAY if language.file else "",
    )
    if language.file:
        text += _TEST
    if language.prepare:
        text += _BUILD.format(prepare=" ".join(language.prepare), word=word)
    return text


def files_of(
    choice: Selection, document: dict[str, Any], descriptor: Descriptor, when: str
) -> dict[str, bytes]:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    files = {"module.json": text.encode(), "README.md": readme_of(choice).encode()}
    if choice.language.file:
        files[choice.language.file] = source_of(choice).encode()
        files[TRANSCRIPT] = transcript_of(choice, descriptor, when)
    return files
