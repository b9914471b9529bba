"""What whole programs do wrong, and the sentence that one needs: by `up`, `invoke` and `check`.

A mistake that only a call shows is told by `status` and `logs`, or by `events`, afterwards. What
takes a bound to show is tried again with a longer one, for a busy machine.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from supervisor.cli.failure_text import failure_text
from supervisor.runtime.files.directory import read_descriptor
from tests.bounds import until
from tests.conformance.examining import report_of
from tests.system import descriptors
from tests.system.client import Client
from tests.system.conftest import folder

__all__ = ["folder"]

LONGER = (1, 8, 32)
NEVER_S = 10_000

PROGRAM = """import json, os, sys, threading, time
{first}
for line in sys.stdin:
    request = json.loads(line)
    called = request["operation"] == "invoke"
    answer = {{"requestId": request["requestId"], "ok": True, "result": {{"n": 1}}}}
    if not called:
        answer["result"] = {{"status": "ok"}} if request["operation"] == "health" else {{}}
    {body}
"""
SAY = "print(json.dumps(answer), flush=True)"
IDLE = "printed nothing: waiting for something, or its output is not flushed"
LOOP = "s of CPU, printed nothing: an endless loop?"
NO_FLUSH = (
    "it answered only when its stdin was closed: it does not flush its stdout after each line"
)
SLOW = "if it is only slow to begin, supervision.timeouts.start_s allows more"
WELL = ""

OWN = ("status", "logs")
JOURNAL = ("events",)


class Program(NamedTuple):
    """A mistake: in what runs `first`, or for each request; and what is said of it."""

    name: str
    up: str
    """Why it is not ready; empty for a module that gets ready."""
    invoke: str
    """Empty for a call that goes well."""
    check: tuple[str, ...]
    """Of one finding, its words and its fix; empty if none is bad."""
    body: str = SAY
    first: str = ""
    start_s: float = NEVER_S
    invoke_s: float = NEVER_S
    node: str = ""
    command: tuple[str, ...] = ()
    warning: str = ""
    """What `up` warns of, of a module that gets ready."""
    later: str = ""
    """What is said of it after the call; `up` or `invoke` if empty."""
    verbs: tuple[str, ...] = OWN
    """The verbs that say it then."""
    ends: bool = False
    """Whether its process ends after its answer."""


PROGRAMS = (
    Program(
        "does not flush", NO_FLUSH, NO_FLUSH, ("until its stdin was closed", SLOW, "flush stdout"),
        "print(json.dumps(answer))", start_s=0.5,
    ),
    Program(
        "prints before its answer", WELL, WELL,
        ("the line is not JSON", "print all else to stderr"), f"print('hi', flush=True); {SAY}",
        warning="the line is not JSON; use stderr for anything that is not an answer: hi",
        later="the line is not JSON",
    ),
    Program(
        "prints JSON with bare keys", WELL, "is not an answer: {ok: true}",
        ("is not an answer: {ok: true}", "with keys in double quotes"),
        f"print('{{ok: true}}', flush=True) if called else {SAY}", invoke_s=0.3,
        later="`ok: true}` at byte 1 is not a key in double quotes",
    ),
    Program(
        "answers with another id", WELL, "request 'r1', which is not open",
        ("names another request", 'copy "requestId"'),
        f"answer['requestId'] = 'r1' if called else request['requestId']; {SAY}", invoke_s=0.3,
    ),
    Program(
        "crashes at an import", "No module named 'nosuch'", "No module named 'nosuch'",
        ("No module named 'nosuch'", "run the command by hand"), first="import nosuch",
    ),
    Program(
        "crashes at an import, in Node", "Error: Cannot find module 'nosuch'",
        "Error: Cannot find module 'nosuch'",
        ("Error: Cannot find module 'nosuch'", "run the command by hand"),
        node="require('nosuch')",
    ),
    Program(
        "names a missing interpreter", "nosuchinterpreter", "nosuchinterpreter",
        ("nosuchinterpreter", "run the command by hand"), command=("nosuchinterpreter", "m.py"),
    ),
    Program(
        "never ends its start", LOOP, LOOP, (LOOP, "a loop that does not end"),
        first="while True: pass", start_s=1,
    ),
    Program(
        "never ends a call", WELL, LOOP, (LOOP, "a loop that does not end"),
        f"while called: pass\n    {SAY}", invoke_s=1, verbs=JOURNAL,
    ),
    Program(
        "never ends a call, in a child", WELL, LOOP, (LOOP, "a loop that does not end"),
        f"called and subprocess.run([sys.executable, '-c', 'while True: pass'])\n    {SAY}",
        "import subprocess", invoke_s=1, verbs=JOURNAL,
    ),
    Program(
        "answers no call", WELL, IDLE, (IDLE, "flush what is printed"),
        f"None if called else {SAY}", invoke_s=0.5, verbs=JOURNAL,
    ),
    Program(
        "prints a line of 20 MB", WELL, "longer than 8388608 bytes (limits.line_bytes)",
        ("longer than 8388608 bytes (limits.line_bytes)", "hand over what is large as an asset"),
        f"if called: answer['result'] = 'x' * 20_000_000\n    {SAY}", verbs=JOURNAL,
    ),
    Program(
        "prints half a character", WELL, WELL, ("unpaired surrogate", "print whole characters"),
        f"if called: answer['result'] = chr(0xd83d)\n    {SAY}", later="unpaired surrogate",
    ),
    Program(
        "starts slowly", "start_s allows more", "start_s allows more",
        ("later than start_s (", "or raise supervision.timeouts.start_s"),
        first="time.sleep({start_s} * 1.4)", start_s=1,
    ),
    Program(
        "exits after one request", WELL, WELL,
        ("it exited with code 0", "read stdin in a loop"), f"{SAY}\n    if called: break",
        later="has to keep reading after its first answer", ends=True,
    ),
    Program(
        "floods stderr, and crashes", WELL, "ValueError: the end",
        ("its last line on stderr: ValueError: the end", "the line of stderr above says why"),
        f"called and [print(n, file=sys.stderr) for n in range(9999)] and sys.exit('ValueError: "
        f"the end')\n    {SAY}",
    ),
    Program(
        "answers twice", WELL, WELL, ("a second time", "answer each request once"),
        f"{SAY}; {SAY}", warning="is each request answered once",
        later="is each request answered once",
    ),
    Program(
        "raises in a timer", WELL, "RuntimeError: the timer",
        ("its last line on stderr: RuntimeError: the timer", "the line of stderr above says why"),
        f"called and (threading.Timer(0.1, broken).start(), threading.Event().wait())\n    {SAY}",
        "def broken():\n    print('RuntimeError: the timer', file=sys.stderr); os._exit(1)",
    ),
)  # fmt: skip


def document(case: Program, number: int, where: Path, longer: int) -> dict[str, Any]:
    """Write a program, and return its descriptor."""
    start_s, invoke_s = (min(longer * one, NEVER_S) for one in (case.start_s, case.invoke_s))
    name, source = f"m{number}", where / f"m{number}-{longer}.py"
    first = case.first.replace("{start_s}", str(start_s))
    source.write_text(PROGRAM.format(first=first, body=case.body))
    command = [*case.command] or [sys.executable, "-IS", str(source)]
    patient = dict.fromkeys(("health_s", "describe_s"), 60)
    timeouts = {**patient, "exit_s": 5, "start_s": start_s, "invoke_s": invoke_s}
    return {
        "name": name,
        "kind": "tool",
        "version": "1.0.0",
        "transport": {
            "type": "stdio",
            "command": ["node", "-e", case.node] if case.node else command,
        },
        "inputs": {"go": {"type": "object"}},
        "supervision": {
            "timeouts": timeouts,
            "backoff": {"initial_s": NEVER_S, "max_s": NEVER_S},
        },
    }


def missing(case: Program) -> bool:
    return bool(case.node) and shutil.which("node") is None


class Project:
    """A folder of modules, `stdiod` for it, and the words that `stdiod` says."""

    def __init__(self, folder: Path) -> None:
        self.modules, self.socket = folder / "modules", folder / "socket"
        self._data = folder / "data"

    def stdiod(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "supervisor.cli", *words, "--socket", str(self.socket)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @contextmanager
    def up(self) -> Iterator[subprocess.CompletedProcess[str]]:
        """Run `up`, and `down` at the end."""
        where = ("--data-dir", str(self._data), "--http", "off")
        try:
            yield self.stdiod("up", str(self.modules), *where)
        finally:
            self.stdiod("down")

    def said(self, *words: str) -> list[str]:
        """Return the lines that a verb prints."""
        return self.stdiod(*words).stdout.splitlines()


def test_up_and_invoke_say_the_sentence_that_one_needs(folder: Path) -> None:
    project = Project(folder)
    left = [(number, one) for number, one in enumerate(PROGRAMS) if not missing(one)]
    wrong: dict[int, str] = {}
    for longer in LONGER:
        shutil.rmtree(project.modules, ignore_errors=True)
        documents = [document(one, at, folder, longer) for at, one in left]
        descriptors.write(project.modules, *documents)
        with project.up() as up:
            wrong = wrong_of_up(up, dict(left)) or wrong_of_calls(project, dict(left), longer)
        left = [(number, one) for number, one in left if number in wrong]
        if not left:
            return
    pytest.fail("\n\n".join(f"{PROGRAMS[at].name}: {words}" for at, words in wrong.items()))


def wrong_of_up(up: subprocess.CompletedProcess[str], cases: dict[int, Program]) -> dict[int, str]:
    """Return what `up` says of the modules of which it says too little, too much or the wrong."""
    wrong: dict[int, str] = {}
    for number, case in cases.items():
        lines = about(number, up.stderr.splitlines())
        name = re.escape(f"m{number}")
        expected = [rf"{name}: .*{re.escape(case.up)}.*; next try in \w+ \(backoff\)"]
        if case.up == WELL:
            expected = [f"{name} is ready"]
        if case.warning:
            expected.append(f"warning: {name}: .*{re.escape(case.warning)}.*")
        if len(lines) != len(expected) or not all(map(re.fullmatch, expected, lines)):
            wrong[number] = str(lines)
    ready = sum(case.up == WELL for case in cases.values())
    nouns = "module" if len(cases) == 1 else "modules"
    if not wrong:
        assert f": {ready} of {len(cases)} {nouns} ready in " in up.stdout
        assert up.returncode == (ready != len(cases))
    return wrong


def wrong_of_calls(project: Project, cases: dict[int, Program], longer: int) -> dict[int, str]:
    """Call each module, and return what is said of those of which it is not the right sentence."""
    wrong: dict[int, str] = {}
    with Client(project.socket) as client:
        for number, case in cases.items():
            name = f"m{number}"
            answer = client.invoke(name, timeout_s=longer * min(case.invoke_s, 60))
            said = "" if answer.ok else failure_text(answer.error, module=name, op="go")
            if bool(case.invoke) is answer.ok or case.invoke not in said:
                wrong[number] = said or "it went well"
            if case.ends:
                await_exit(client, name)
    everything = {
        "status": project.said("status"),
        "logs": project.said("logs", "--all"),
        "events": project.said("events", "-n", "1000"),
    }
    for number, case in cases.items():
        expected = case.later or case.invoke
        for verb in case.verbs:
            lines = about(number, everything[verb])
            if not any(expected in line for line in lines):
                wrong[number] = f"{verb}: {lines}"
    return wrong


def about(number: int, lines: list[str]) -> list[str]:
    """Return the lines that name a module."""
    return [line for line in lines if re.search(rf"\bm{number}\b", line)]


def await_exit(client: Client, module: str) -> None:
    until(lambda: client.op("status", module=module).result["last_exit"], f"the end of {module}")


def test_up_names_a_descriptor_that_it_cannot_use_and_starts_the_others(folder: Path) -> None:
    project = Project(folder)
    good = document(Program("", WELL, WELL, ()), 0, folder, 1)
    descriptors.write(project.modules, good, {**good, "name": "m1", "kind": "toool"})
    with project.up() as up:
        status = project.stdiod("status").stdout
    ready, fault = up.stderr.splitlines()
    assert ready == "m0 is ready"
    assert "m1.json is quarantined: /kind: " in fault
    assert "1 of 1 module ready" in up.stdout
    assert "1 descriptor quarantined" in up.stdout
    assert up.returncode == 0
    assert fault.partition(" is quarantined: ")[2] in status


@pytest.mark.parametrize(
    ("number", "case"), list(enumerate(PROGRAMS)), ids=[one.name for one in PROGRAMS]
)
async def test_check_says_the_sentence_that_one_needs_and_how_to_fix_it(
    tmp_path: Path, number: int, case: Program
) -> None:
    if missing(case):
        pytest.skip("node is missing")
    found: list[tuple[str, str]] = []
    for longer in LONGER:
        path = tmp_path / str(longer) / "module.json"
        path.parent.mkdir()
        made = document(case, number, tmp_path, longer)
        path.write_bytes(json.dumps(made).encode())
        report = await report_of(path.parent, read_descriptor(path))
        bad = [one for one in report.findings if one.status in ("fails", "warning")]
        found = [(one.words, one.fix) for one in bad]
        if len(found) == 1 and all(said in " ".join(found[0]) for said in case.check):
            return
    pytest.fail(str(found))
