"""Each mistake of newcomers, made in what `stdiod new` writes, is found by `stdiod check`.

A mistake is one piece of the source put in the place of another.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.descriptor.loading import parse_descriptor
from protocol.descriptor.model import Descriptor, Lifecycle
from supervisor.cli.module_templates import Selection, descriptor_of, files_of
from supervisor.conformance import plays
from supervisor.conformance.clauses import ClauseStatus
from supervisor.conformance.examination import Permission
from supervisor.runtime.files.directory import read_descriptor
from tests.conformance.examining import BAD, by_status, report_of
from tests.mistakes.cases import MISTAKES

ALL = "STDIOD_TEST_LANGUAGES" in os.environ
SLOW = ("go", "java", "rust")


class Made(NamedTuple):
    """A mistake in a template, the clause that it is against, and what `check` says of it."""

    old: str
    new: str
    clause: str
    said: str
    start_s: float = 60
    invoke_s: float = 5
    """Both are the least: on a busy machine it may take longer until something is printed."""
    runs_itself: bool = False
    """Whether the source is the command."""


SAY = '        say({"requestId": request["requestId"], **answer(request)})\n'
ASKED = 'request["operation"] == "invoke"'
INVOKED = 'return {"ok": True, "result": result}'
ENCODED = "json.dumps(line).encode()"


def instead(printed: str, operation: str = "invoke") -> str:
    """Print a line in the place of an answer."""
    return (
        f'        if request["operation"] == "{operation}":\n'
        f"            print({printed!r}, flush=True)\n            continue\n{SAY}"
    )


PYTHON = {
    "does not flush its stdout, or reads all of stdin before it answers": Made(
        "    sys.stdout.buffer.flush()\n", "", "flush", "until its stdin was closed", start_s=0.5
    ),
    "ends its answers without a newline": Made(
        ' + b"\\n"', "", "lines", "without a newline at its end", start_s=0.5
    ),
    "does not answer `health`": Made(
        SAY,
        f'        if request["operation"] == "health":\n            continue\n{SAY}',
        "health",
        "printed nothing: waiting for something",
        start_s=0.5,
    ),
    "prints something else instead of its answer to `health`": Made(
        SAY,
        instead("got a line", "health"),
        "health",
        "the last line it printed is not an answer: got a line",
        start_s=0.5,
    ),
    "prints something else instead of its answer to `invoke`": Made(
        SAY, instead("got a line"), "answers", "is not an answer: got a line", invoke_s=0.3
    ),
    "prints something before its answer to `invoke`": Made(
        SAY,
        f'        if {ASKED}:\n            print("got a line", flush=True)\n{SAY}',
        "stdout",
        "the line is not JSON; use stderr for anything that is not an answer: got a line",
    ),
    "prints something and exits": Made(
        "    for line in",
        '    print("hello")\n    for line in []:  #',
        "starts",
        "is not an answer: hello",
    ),
    "exits without printing anything": Made(
        "    for line in",
        "    for line in []:  #",
        "starts",
        "exited with code 0 and answered nothing",
    ),
    "exits after its first answer": Made(
        SAY, f"{SAY}        break\n", "stays", "exited with code 0 after its first answer"
    ),
    "exits after one request": Made(
        SAY,
        f"{SAY}        if {ASKED}:\n            break\n",
        "stays",
        "it exited with code 0",  # a slow machine asks for its health instead of calling it
    ),
    "answers `health` with an id of its own": Made(
        'request["requestId"], **',
        '"1", **',
        "request ids",
        "request '1', which is not open",
        start_s=0.5,
    ),
    "answers `invoke` with an id of its own": Made(
        'request["requestId"], **',
        f'"1" if {ASKED} else request["requestId"], **',
        "request ids",
        "its answer names another request",
    ),
    "answers without `ok`": Made(
        INVOKED, 'return {"result": result}', "answers", '"ok" is missing, must be true or false'
    ),
    "misspells `ok`": Made(
        INVOKED,
        'return {"OK": True}',
        "answers",
        '"OK" a misspelling of it?',
        invoke_s=0.3,
    ),
    "misspells `result`": Made(
        INVOKED, 'return {"ok": True, "resutl": result}', "fields", 'did you mean "result"?'
    ),
    "answers as another protocol does": Made(
        INVOKED, 'return {"success": True}', "answers", '"ok" is missing', invoke_s=0.3
    ),
    "prints `null` instead of an object": Made(
        SAY, instead("null"), "answers", "the line is JSON null", invoke_s=0.3
    ),
    "gives an id that is not a string": Made(
        'request["requestId"], **',
        f'1 if {ASKED} else request["requestId"], **',
        "answers",
        '"requestId" is a number',
        invoke_s=0.3,
    ),
    "ends a stream without `ok`": Made(
        INVOKED,
        'return {"version": "0", "type": "done"}',
        "answers",
        'bad done event: "ok" is missing',
    ),
    "answers with a number that is not one": Made(
        ENCODED,
        f"""{ENCODED}.replace(b'"hello Ada"', b"1e999")""",
        "lines",
        "too large to be kept exactly: `1e999`",
    ),
    "prints its answer over several lines": Made(
        ENCODED, "json.dumps(line, indent=2).encode()", "lines", "printed over several lines?"
    ),
    "prints bytes that are not UTF-8": Made(
        ENCODED,
        f"""{ENCODED}.replace(b"hello", b"h\\xe9llo")""",
        "utf-8",
        "bad reply to invoke: the line is not UTF-8",
    ),
    "has another name than its descriptor": Made(
        '"result": {}', '"result": {"name": "other"}', "describe", "with name 'other'"
    ),
    "calls the host for something that no policy grants": Made(
        SAY,
        f"""        if request["operation"] == "describe":
            features = {{"features": ["host_call"]}}
            say({{"requestId": request["requestId"], "ok": True, "result": features}})
            continue
        if {ASKED}:
            payload = {{"call_id": "c", "method": "log", "params": {{"message": "hello"}}}}
            called = {{"version": "0", "type": "host_call", "payload": payload}}
            say({{"requestId": request["requestId"], **called}})
            answered = json.loads(sys.stdin.buffer.readline())["payload"]
            say({{"requestId": request["requestId"], "ok": False, "error": answered["error"]}})
            continue
{SAY}""",
        "results",
        "it answered denied: greeter may not log: no policy grants it",
    ),
    "has Windows line endings behind `#!`": Made(
        '"""A module',
        '#!/usr/bin/env python3\r\n"""A module',
        "starts",
        "ends in a carriage return",
        runs_itself=True,
    ),
    "names an interpreter that `env` does not find": Made(
        '"""A module',
        '#!/usr/bin/env nosuchthing\n"""A module',
        "starts",
        "there is no program 'nosuchthing' in its PATH",
        runs_itself=True,
    ),
}

ELSEWHERE = {
    "bash": Made("done\n", "done | sort\n", "flush", "until its stdin was closed", start_s=0.5),
    "c": Made("    fflush(stdout);\n}", "}", "flush", "until its stdin was closed", start_s=0.5),
    "go": Made('"ok": true, "result": op', '"ok": true, "resutl": op', "fields", 'mean "result"?'),
    "java": Made(
        "        String operation =",
        '        System.out.println("got a line");\n        String operation =',
        "stdout",
        "use stderr for anything that is not an answer: got a line",
    ),
    "node": Made('+ "\\n"', "", "lines", "without a newline at its end", start_s=0.5),
    "perl": Made("$| = 1;", "", "flush", "until its stdin was closed", start_s=0.5),
    "ruby": Made("$stdout.sync = true", "", "flush", "until its stdin was closed", start_s=0.5),
    "rust": Made("writeln!(stdout", "write!(stdout", "lines", "without a newline", start_s=0.5),
}
MADE = [("python", name, made) for name, made in PYTHON.items()] + [
    (lang, "its own", made) for lang, made in ELSEWHERE.items() if ALL or lang not in SLOW
]


def test_each_mistake_of_the_page_is_made() -> None:
    assert set(PYTHON) == {one.name for one in MISTAKES}


@pytest.mark.parametrize(("lang", "name", "made"), MADE, ids=[f"{m[0]}: {m[1]}" for m in MADE])
async def test_check_finds_the_mistake_and_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lang: str, name: str, made: Made
) -> None:
    choice = Selection("greeter", lang, "tool", "module", Lifecycle.PERSISTENT)
    if shutil.which(choice.needs) is None:
        assert not ALL, f"{choice.needs} is missing"
        pytest.skip(f"{choice.needs} is missing")
    monkeypatch.setattr(plays, "SETTLING_CALLS", 5)
    monkeypatch.setattr(plays, "ALL_CALLS", 10)
    found: dict[str, str] = {}
    for longer in (1, 4, 16, 64):
        folder = tmp_path / str(longer)
        folder.mkdir()
        report = await report_of(folder, described(choice, made, folder, longer), Permission({}))
        found = by_status(report, *BAD, ClauseStatus.NOT_TRIED)
        no_other = set(by_status(report, *BAD)) <= {made.clause}
        if no_other and made.said in found.get(made.clause, ""):
            return
    pytest.fail(str(found))


def described(choice: Selection, made: Made, folder: Path, longer: int) -> Descriptor:
    """Write a module with its mistake; what is waited for may take so many times its bound."""
    document = descriptor_of(choice, choice.lifecycle)
    timeouts = {"start_s": longer * made.start_s, "invoke_s": longer * made.invoke_s}
    patient = dict.fromkeys(("health_s", "describe_s", "exit_s", "stop_s"), 60)
    document["supervision"] = {"timeouts": {**patient, **timeouts}}
    if made.runs_itself:
        document["transport"]["command"] = [f"./{choice.language.file}"]
    if "host_call" in made.new:
        document["capabilities"] = ["log"]
    where = str(folder / "module.json")
    descriptor = parse_descriptor(json.dumps(document).encode(), where)
    when = dt.datetime.now(dt.UTC).isoformat()
    for file, content in files_of(choice, document, descriptor, when).items():
        text = content.decode()
        if file == choice.language.file:
            assert made.old in text, made.old
            text = text.replace(made.old, made.new, 1)
        (folder / file).write_bytes(text.encode())
        (folder / file).chmod(0o755)
    return read_descriptor(Path(where))
