"""What whole programs do wrong, and the sentence that one needs: by `up`, `invoke` and `check`.

What takes a bound to show is tried again with a longer one, for a busy machine.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from supervisor.cli.failure_text import failure_text
from supervisor.cli.module_page import module_text
from supervisor.runtime.files.directory import read_descriptor
from tests.conformance.examining import report_of
from tests.system.conftest import folder
from tests.system.daemon import Daemon

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
WELL = ""


class Program(NamedTuple):
    """A mistake: in what runs `first`, or for each request; and what is said of it."""

    name: str
    up: str
    """In `status`; empty for a module that gets ready."""
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


PROGRAMS = (
    Program(
        "does not flush", IDLE, IDLE, ("until its stdin was closed", "flush stdout after"),
        "print(json.dumps(answer))", start_s=0.5,
    ),
    Program(
        "prints before its answer", WELL, WELL,
        ("the line is not JSON", "print all else to stderr"), f"print('hi', flush=True); {SAY}",
    ),
    Program(
        "prints JSON with bare keys", WELL, "is not an answer: {ok: true}",
        ("is not an answer: {ok: true}", "with keys in double quotes"),
        f"print('{{ok: true}}', flush=True) if called else {SAY}", invoke_s=0.3,
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
        f"while called: pass\n    {SAY}", invoke_s=1,
    ),
    Program(
        "never ends a call, in a child", WELL, LOOP, (LOOP, "a loop that does not end"),
        f"called and subprocess.run([sys.executable, '-c', 'while True: pass'])\n    {SAY}",
        "import subprocess", invoke_s=1,
    ),
    Program(
        "answers no call", WELL, IDLE, (IDLE, "flush what is printed"),
        f"None if called else {SAY}", invoke_s=0.5,
    ),
    Program(
        "prints a line of 20 MB", WELL, "longer than 8388608 bytes (limits.line_bytes)",
        ("longer than 8388608 bytes (limits.line_bytes)", "hand over what is large as an asset"),
        f"if called: answer['result'] = 'x' * 20_000_000\n    {SAY}",
    ),
    Program(
        "prints half a character", WELL, WELL, ("unpaired surrogate", "print whole characters"),
        f"if called: answer['result'] = chr(0xd83d)\n    {SAY}",
    ),
    Program(
        "starts slowly", "start_s allows more", "start_s allows more",
        ("later than start_s (", "or raise supervision.timeouts.start_s"),
        first="time.sleep({start_s} * 1.4)", start_s=1,
    ),
    Program(
        "exits after one request", WELL, WELL,
        ("it exited with code 0", "read stdin in a loop"), f"{SAY}\n    if called: break",
    ),
    Program(
        "floods stderr, and crashes", WELL, "ValueError: the end",
        ("its last line on stderr: ValueError: the end", "the line of stderr above says why"),
        f"called and [print(n, file=sys.stderr) for n in range(9999)] and sys.exit('ValueError: "
        f"the end')\n    {SAY}",
    ),
    Program(
        "answers twice", WELL, WELL, ("a second time", "answer each request once"),
        f"{SAY}; {SAY}",
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


def test_up_and_invoke_say_the_sentence_that_one_needs(folder: Path) -> None:
    left = [(number, one) for number, one in enumerate(PROGRAMS) if not missing(one)]
    pages: dict[int, str] = {}
    for longer in LONGER:
        with Daemon(folder, *(document(one, at, folder, longer) for at, one in left)) as daemon:
            daemon.op("wait", **{"for": "verdict"})
            pages = {at: page for at, one in left if (page := wrong(daemon, at, one, longer))}
        left = [(number, one) for number, one in left if number in pages]
        if not left:
            return
    pytest.fail("\n\n".join(f"{PROGRAMS[at].name}: {page}" for at, page in pages.items()))


def wrong(daemon: Daemon, number: int, case: Program, longer: int) -> str:
    """Return the page that lacks its sentence; empty if none does."""
    name = f"m{number}"
    status = daemon.status(name)
    shown = module_text(status)
    if bool(case.up) is (status["state"] == "ready") or case.up not in shown:
        return shown
    answer = daemon.invoke(name, "go", timeout_s=longer * min(case.invoke_s, 60))
    said = "" if answer.ok else failure_text(answer.error, module=name, op="go")
    is_well = bool(case.invoke) is not answer.ok and case.invoke in said
    return "" if is_well else said or "it went well"


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
