"""The mistakes of newcomers, each in four languages: what they wrote, as small as it can be."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

GOOD = b'{"status":"ok","name":"m","kind":"tool","version":"1","capabilities":[],"inputs":{}}\n'
"""Answers `health` and `describe`."""

AT_ONCE = "at once"
AT_START_S = "at start_s"
AT_DEADLINE = "at the deadline"

CALLS = GOOD.replace(b"[]", b'["log"],"features":["host_call"]')
CALL = (
    b'{"version":"0","type":"host_call","payload":'
    b'{"call_id":"c","method":"log","params":{"message":"hello"}}}\n'
)


class Mistake(NamedTuple):
    """What was done wrong, what is said of it, and when.

    What is said of a module that gets ready is said to who invokes it.
    """

    name: str
    said: str
    """As the page has it: it is `...` where a run says what another one does not."""
    when: str = AT_ONCE
    replies: tuple[bytes, ...] = (GOOD,)
    """What is printed for each line that is read; the last one for all that follow."""
    first: bytes = b""
    """What is printed before."""
    flush: bool = True
    read: bool = True
    lines: int = 0
    """It exits after so many; with 0 at the end of its input."""
    echo: bool = False
    """Whether its last reply is put around the line that it read."""
    first_line: str = ""
    """Of a file that is to be run, where its text matters and not its language."""

    @property
    def starts(self) -> bool:
        """Whether it gets ready, and what is wrong shows with the first request."""
        return len(self.replies) > 1


def invoked(reply: bytes, probes: bytes = GOOD) -> tuple[bytes, ...]:
    """Return replies to `health`, `describe` and an `invoke`."""
    return (probes, probes, reply)


BAD = "bad reply to invoke: "
RIGHT = '; expected {"ok":true,"result":...} or {"ok":false,"error":{"code":"...","message":"..."}}'
NO_ANSWER = "the last line it printed is not an answer: "
USE_STDERR = "use stderr for anything that is not an answer"
NOT_JSON = f" (the line is not JSON; {USE_STDERR})"
A_LOOP = (
    "a persistent module has to read its stdin line by line until that ends, and to answer each "
    'line with one of its own, or to have "lifecycle":"per-invocation" in its transport'
)
LEFT = (
    "exited with code 0; a persistent module has to keep reading after its first answer, until "
    'its stdin ends, or to have "lifecycle":"per-invocation" in its transport'
)

MISTAKES = (
    Mistake(
        "does not flush its stdout, or reads all of stdin before it answers",
        "it does not flush its stdout after each line, or reads to the end of its input before it "
        "answers",
        AT_START_S,
        flush=False,
    ),
    Mistake(
        "ends its answers without a newline",
        "it printed a line without a newline at its end",
        AT_START_S,
        replies=(GOOD.rstrip(),),
    ),
    Mistake(
        "does not answer `health`",
        "printed nothing: waiting for something, or its output is not flushed",
        AT_START_S,
        read=False,
    ),
    Mistake(
        "prints something else instead of its answer to `health`",
        f"{NO_ANSWER}got a line{NOT_JSON}",
        AT_START_S,
        replies=(b"got a line\n",),
    ),
    Mistake(
        "prints something else instead of its answer to `invoke`",
        f"{NO_ANSWER}got a line{NOT_JSON}",
        AT_DEADLINE,
        replies=invoked(b"got a line\n"),
    ),
    Mistake(
        "prints something before its answer to `invoke`",
        f"the line is not JSON; {USE_STDERR}: got a line",
        replies=invoked(b'got a line\n{"ok":true,"result":1}\n'),
    ),
    Mistake(
        "prints something and exits",
        f"exited with code 0; {NO_ANSWER}hello{NOT_JSON}; it answered nothing: {A_LOOP}",
        first=b"hello\n",
        read=False,
        lines=1,
    ),
    Mistake(
        "exits without printing anything",
        f"exited with code 0; it answered nothing: {A_LOOP}",
        read=False,
        lines=1,
    ),
    Mistake("exits after its first answer", LEFT, lines=1),
    Mistake(
        "exits after one request",
        LEFT,
        replies=invoked(b'{"ok":true,"result":1}\n'),
        lines=3,
    ),
    Mistake(
        "answers `health` with an id of its own",
        "a line came for request '1', which is not open: is each request answered once, "
        "with its own requestId?",
        replies=(GOOD.replace(b"{", b'{"requestId":"1",', 1),),
    ),
    Mistake(
        "answers `invoke` with an id of its own",
        "a line came for request '1', which is not open: is each request answered once, "
        "with its own requestId?",
        AT_DEADLINE,
        replies=invoked(b'{"requestId":"1","ok":true,"result":1}\n'),
    ),
    Mistake(
        "answers without `ok`",
        f'{BAD}"ok" is missing, must be true or false{RIGHT}',
        replies=invoked(b'{"result":1}\n'),
    ),
    Mistake(
        "misspells `ok`",
        f'{NO_ANSWER}{{"OK":true}} ({BAD}"ok" is missing, must be true or false; is "OK" a '
        f"misspelling of it?{RIGHT}; {USE_STDERR})",
        AT_DEADLINE,
        replies=invoked(b'{"OK":true}\n'),
    ),
    Mistake(
        "misspells `result`",
        '"resutl" is an unknown field; did you mean "result"?: {"ok":true,"resutl":1}',
        replies=invoked(b'{"ok":true,"resutl":1}\n'),
    ),
    Mistake(
        "answers as another protocol does",
        f'{NO_ANSWER}{{"success":true}} ({BAD}"ok" is missing, must be true or false{RIGHT}; '
        f"{USE_STDERR})",
        AT_DEADLINE,
        replies=invoked(b'{"success":true}\n'),
    ),
    Mistake(
        "prints `null` instead of an object",
        f"{NO_ANSWER}null ({BAD}the line is JSON null, it must be a JSON object{RIGHT}; "
        f"{USE_STDERR})",
        AT_DEADLINE,
        replies=invoked(b"null\n"),
    ),
    Mistake(
        "gives an id that is not a string",
        f'{BAD}"requestId" is a number, must be the string that the request has{RIGHT}',
        replies=invoked(b'{"requestId":1,"ok":true,"result":1}\n'),
    ),
    Mistake(
        "ends a stream without `ok`",
        'bad done event: "ok" is missing, must be true or false',
        replies=invoked(b'{"version":"0","type":"done"}\n'),
    ),
    Mistake(
        "answers with a number that is not one",
        f"{BAD}the line holds a number that is too large to be kept exactly: `1e999` in "
        f'"result.0"{RIGHT}',
        replies=invoked(b'{"ok":true,"result":[1e999]}\n'),
    ),
    Mistake(
        "prints its answer over several lines",
        f"{BAD}the line is not JSON: it ends in the middle (printed over several lines? it has to "
        f"be one){RIGHT}",
        replies=invoked(b'{\n  "ok": true,\n  "result": 1\n}\n'),
    ),
    Mistake(
        "prints bytes that are not UTF-8",
        f"{BAD}the line is not UTF-8: byte 0xe9 at position 24; encode what is printed as UTF-8"
        f"{RIGHT}",
        replies=invoked(b'{"ok":true,"result":"caf\xe9"}\n'),
    ),
    Mistake(
        "has another name than its descriptor",
        "describes itself with name 'other'; its descriptor says 'm'",
        replies=(GOOD.replace(b'"m"', b'"other"'),),
    ),
    Mistake(
        "calls the host for something that no policy grants",
        'm may not log: no policy grants it: put `allow = ["log"]` in a file, then `stdiod up DIR '
        "--policy FILE`",
        replies=(CALLS, CALLS, CALL, b'{"ok":true,"result":%s}\n'),
        echo=True,
    ),
    Mistake(
        "has Windows line endings behind `#!`",
        "ends in a carriage return (Windows line ending); remove it",
        first_line="#!/usr/bin/env {program}\r",
    ),
    Mistake(
        "names an interpreter that `env` does not find",
        "runs env, and there is no program 'nosuchthing' in its PATH",
        first_line="#!/usr/bin/env nosuchthing",
    ),
)

REPLIES = max(len(one.replies) for one in MISTAKES)


def _octal(data: bytes) -> str:
    return "".join(f"\\{one:03o}" for one in data)


def _around(case: Mistake) -> Iterable[tuple[bytes, bytes | None]]:
    """Return what is printed for each line: alone, or before and after the line itself."""
    last = len(case.replies) - 1
    for number, reply in enumerate(case.replies):
        before, _, after = reply.partition(b"%s")
        yield (before, after) if case.echo and number == last else (reply, None)


def python(case: Mistake) -> str:
    say = "sys.stdout.buffer.write({}){}".format
    flush = "; sys.stdout.buffer.flush()" if case.flush else ""
    return f"""
import sys
{say(case.first, flush)}
for number, line in enumerate(sys.stdin.buffer):
    before, after = {list(_around(case))}[min(number, {len(case.replies) - 1})]
    out = before if after is None else before + line.rstrip() + after
    {say("out", flush) if case.read else ""}
    if number + 1 == {case.lines}: break
"""


def bash(case: Mistake) -> str:
    arms = ""
    for number, (before, after) in enumerate(_around(case), start=1):
        rest = "" if after is None else f"; printf '%s' \"$line\"; printf '{_octal(after)}'"
        pattern = "*" if number == len(case.replies) else number
        arms += f"{pattern}) printf '{_octal(before)}'{rest};; "
    # bash itself keeps nothing back; a tool behind it does.
    keep = "" if case.flush else " | sort"
    return f"""
(printf '{_octal(case.first)}'
while read -r line; do number=$((number + 1))
  {f"case $number in {arms} esac" if case.read else ""}
  if [ $number = {case.lines} ]; then break; fi
done){keep}
"""


def node(case: Mistake) -> str:
    replies = [
        [list(before), None if after is None else list(after)] for before, after in _around(case)
    ]
    shown = str(replies).replace("None", "null")
    write = "process.stdout.write(out)" if case.flush else "kept.push(out)"
    return f"""
const kept = [], replies = {shown};
let number = 0;
process.stdout.write(Buffer.from({list(case.first)}));
require('readline').createInterface({{input: process.stdin}})
  .on('line', (line) => {{
    const [before, after] = replies[Math.min(number, {len(case.replies) - 1})];
    const parts = after ? [before, Buffer.from(line), after] : [before];
    const out = Buffer.concat(parts.map((one) => Buffer.from(one)));
    {write if case.read else ""};
    number += 1;
    if (number === {case.lines}) process.exit(0);
  }})
  .on('close', () => kept.forEach((one) => process.stdout.write(one)))
"""


def c() -> str:
    """Return one program for all cases, since it takes long to compile; it is given a number."""
    rows = ""
    for case in MISTAKES:
        befores = ", ".join(f'"{_octal(before)}"' for before, _ in _around(case))
        afters = ", ".join(
            "0" if after is None else f'"{_octal(after)}"' for _, after in _around(case)
        )
        rows += (
            f'  {{ "{_octal(case.first)}", {{ {befores} }}, {{ {afters} }}, '
            f"{len(case.replies) - 1}, {case.flush:d}, {case.read:d}, {case.lines} }},\n"
        )
    return f"""#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const struct {{
  const char *first, *before[{REPLIES}], *after[{REPLIES}];
  int last, flush, read, lines;
}} mistakes[] = {{
{rows}}}, *it;
int main(int argc, char **argv) {{
  static char line[65536]; int number = 0;
  it = mistakes + atoi(argv[argc - 1]);
  fputs(it->first, stdout);
  if (it->flush) fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {{
    int at = number < it->last ? number : it->last;
    if (it->read) {{
      fputs(it->before[at], stdout);
      if (it->after[at]) {{
        line[strcspn(line, "\\n")] = 0; fputs(line, stdout); fputs(it->after[at], stdout);
      }}
      if (it->flush) fflush(stdout);
    }}
    if (++number == it->lines) break;
  }}
  return 0;
}}
"""


def compiled(compiler: str, folder: Path) -> str:
    """Return the program in C, which is in a folder that several tests share."""
    program = folder / "mistakes"
    if not program.exists():
        source = folder / "mistakes.c"
        source.write_text(c(), encoding="utf-8")
        subprocess.run([compiler, "-o", program, source], check=True)
    return str(program)


def command(language: str, case: Mistake, folder: Path, shared: Path) -> list[str] | None:
    """Write the program and return its command; None if the language is not installed.

    What is written for one test goes into `folder`, for all of them into `shared`.
    """
    if case.first_line:
        tool = folder / "tool"
        tool.write_text(case.first_line.format(program=language) + "\n")
        tool.chmod(0o755)
        return ["./tool"]
    match language:
        case "python":
            return [sys.executable, "-IS", "-c", python(case)]
        case "bash":
            return ["bash", "-c", bash(case)]
        case "node":
            return ["node", "-e", node(case)] if shutil.which("node") else None
        case _:
            compiler = shutil.which("cc")
            if compiler is None:
                return None
            return [compiled(compiler, shared), str(MISTAKES.index(case))]


LANGUAGES = ("bash", "python", "node", "c")


def fields(case: Mistake) -> dict[str, Any]:
    """Return what the descriptor has beside the command."""
    return {"capabilities": ["log"]} if case.echo else {}


HEAD = """# Common mistakes

What new modules of the protocol `module` do wrong most often, and what `up`, `status` and
`invoke` say about it. [Writing a module](writing-a-module.md#a-persistent-module) has the rules,
and `stdiod check` tries them on your module.

"At start_s" means that the module is not ready when `start_s` (10 s) is over. "At the deadline"
means that the call fails when its `invoke_s` is over.

| What the module does | What stdiod says | When |
|---|---|---|
"""


def page() -> str:
    """Return docs/mistakes.md."""
    rows = (f"| {one.name} | {textwrap.shorten(one.said, 90)} | {one.when} |\n" for one in MISTAKES)
    return HEAD + "".join(rows)


if __name__ == "__main__":
    Path("docs/mistakes.md").write_text(page(), encoding="utf-8")
