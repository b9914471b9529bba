"""The mistakes of newcomers, each in four languages: what they wrote, as small as it can be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

GOOD = '{"status":"ok","name":"m","kind":"tool","version":"1","capabilities":[],"inputs":{}}'


class Mistake(NamedTuple):
    """What was done wrong, what is said of it, and when: `at once`, or `at start_s`."""

    name: str
    said: str
    when: str
    end: str = "\n"
    flush: bool = True
    read: bool = True
    first_line: str = ""
    """Of a file that is to be run, where its text matters and not its language."""


MISTAKES = (
    Mistake(
        "does not flush its stdout, or reads all of stdin before it answers",
        "it does not flush its stdout after each line, or reads to the end of its input before it "
        "answers",
        "at start_s",
        flush=False,
    ),
    Mistake(
        "ends its answers without a newline",
        "it printed a line without a newline at its end",
        "at start_s",
        end="",
    ),
    Mistake("does not answer `health`", "it printed nothing", "at start_s", read=False),
    Mistake(
        "has Windows line endings behind `#!`",
        "ends in a carriage return (Windows line ending); remove it",
        "at once",
        first_line="#!/usr/bin/env {program}\r",
    ),
    Mistake(
        "names an interpreter that `env` does not find",
        "runs env, and there is no program 'nosuchthing' in its PATH",
        "at once",
        first_line="#!/usr/bin/env nosuchthing",
    ),
)


def _octal(text: str) -> str:
    return "".join(f"\\{ord(one):03o}" for one in text)


def python(case: Mistake) -> str:
    out = "sys.stdout.buffer"
    data = repr(_bytes(case))
    loop = f"""
while sys.stdin.readline():
    {out}.write({data})
    {f"{out}.flush()" if case.flush else ""}
"""
    return f"import sys\n{loop if case.read else 'sys.stdin.read()'}"


def bash(case: Mistake) -> str:
    say = f"printf '{_octal(_bytes(case).decode('latin-1'))}'"
    if not case.read:
        return "cat > /dev/null"
    # bash itself keeps nothing back; a tool behind it does.
    keep = "" if case.flush else " | sort"
    return f"(while read -r line; do {say}; done){keep}"


def node(case: Mistake) -> str:
    data = f"Buffer.from({list(_bytes(case))})"
    if not case.read:
        return "process.stdin.resume()"
    write = f"process.stdout.write({data})" if case.flush else f"kept.push({data})"
    return f"""
const kept = [];
require('readline').createInterface({{input: process.stdin}})
  .on('line', () => {write})
  .on('close', () => kept.forEach((one) => process.stdout.write(one)))
"""


def c(case: Mistake) -> str:
    data = _octal(_bytes(case).decode("latin-1"))
    flush = "fflush(stdout);" if case.flush else ""
    body = f'fputs("{data}", stdout); {flush}' if case.read else ""
    return f"""#include <stdio.h>
int main(void) {{ char line[65536];
  while (fgets(line, sizeof line, stdin)) {{ {body} }} return 0; }}
"""


def _bytes(case: Mistake) -> bytes:
    return (GOOD + case.end).encode()


def command(language: str, case: Mistake, folder: Path) -> list[str] | None:
    """Write the program and return its command; None if the language is not installed."""
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
            source = folder / "tool.c"
            source.write_text(c(case))
            subprocess.run([compiler, "-o", folder / "tool", source], check=True)
            return [str(folder / "tool")]


LANGUAGES = ("bash", "python", "node", "c")

HEAD = """# Mistakes, and what is said of them

What modules of newcomers do wrong at their start, and what `up`, `status` and `invoke` say of it.
Each is tried in bash, Python, Node and C; this page is made from the cases
(`python -m tests.mistakes.cases`).

| What the module does | What is said | When |
|---|---|---|
"""


def page() -> str:
    """Return docs/mistakes.md."""
    return HEAD + "".join(f"| {one.name} | {one.said} | {one.when} |\n" for one in MISTAKES)


if __name__ == "__main__":
    Path("docs/mistakes.md").write_text(page(), encoding="utf-8")
