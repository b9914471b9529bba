"""Watch a small fleet being supervised: `make demo`.

A daemon is started on the sample modules, in a temporary folder, through the `stdiod` command, and
the script of `story.py` is played. The exit status is 0 only if each step went as it should. A
module whose language is missing here is left out, with a word.

Every process of the demo inherits a TMPDIR of its own. By that mark all of them are found at the
end, whoever started them and wherever they went.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from scripts.checkout import ROOT, STDIOD, wait_gone
from scripts.demo import story

MODULES: Final = ROOT / "modules"
COMPILED: Final = "primes"
"""This one is a shell script to look at, and needs a C compiler."""

NEXT: Final = {
    "up modules": "start the samples in the background",
    "top": "watch them; q quits",
    "invoke dice roll dice=2d6": "call one",
    "down": "stop all of it",
    "new hello --lang python": "begin a module; docs/first-module.md goes on",
}
"""What to type when the demo has ended."""

INTERRUPTED: Final = 130
COMMAND_WITHIN_S: Final = 90.0
"""The longest command compiles a module."""
UNTIL_S: Final = 20.0
"""For what takes a moment: a restart, a question to a person."""
COLUMNS: Final = "88"
"""Always, since what is printed depends on it."""
SHOWN: Final = 400
"""So many characters of what was expected and found are shown."""
CLEAR_LINE: Final = "\r\x1b[K"


@dataclass
class Step:
    """One thing that has to go as expected."""

    step: str
    ok: bool = True
    skipped: str | None = None
    commands: list[dict[str, Any]] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    fault: str | None = None


class MismatchError(Exception):
    """Something did not go as it should; says what was expected and what was found."""


class Demo:
    """A folder, the `stdiod` command in it, and where people look."""

    def __init__(self, folder: Path, *, as_json: bool) -> None:
        """Print for people, in colours on a terminal; or one JSON object per step."""
        self.folder, self.socket, self.scratch = folder, folder / "socket", folder / "tmp"
        self.scratch.mkdir()
        self.steps: list[Step] = []
        self.as_json = as_json
        self.coloured = not as_json and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        self._marks = ("✓", "✗") if utf8 else ("ok:", "FAILED:")
        self._words: dict[str, str] = {}
        """What stands for `<name>`."""
        own = {"STDIOD_SOCKET": str(self.socket), "TMPDIR": str(self.scratch), "COLUMNS": COLUMNS}
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("STDIOD_") and name != "NOTES_FILE"
        }
        self._options: dict[str, Any] = {
            "cwd": folder,
            "env": inherited | own,
            "stdin": subprocess.DEVNULL,
            "stderr": subprocess.STDOUT,
        }
        self._background: list[tuple[subprocess.Popen[bytes], int]] = []

    def play(self, script: str, absent: Mapping[str, str]) -> None:
        """Play a script; `absent` says why a module is not here."""
        for block in re.split(r"^(?=# |== )", script, flags=re.MULTILINE)[1:]:
            title, _, body = block.partition("\n")
            if title.startswith("# "):
                self.heading(title.removeprefix("# "))
                continue
            name, _, needs = title.removeprefix("== ").rstrip(")").partition(" (")
            reasons = (absent[module] for module in needs.split(", ") if module in absent)
            step = Step(name, skipped=next(reasons, None))
            self.steps.append(step)
            try:
                if step.skipped is None:
                    for part in re.split(r"^(?=[$!] )", body, flags=re.MULTILINE)[1:]:
                        self._play(part.strip())
            except MismatchError as mismatch:
                step.fault = str(mismatch)
            except subprocess.TimeoutExpired as error:
                step.fault = f"`{error.cmd}` did not end in {error.timeout:g} s"
            except (OSError, ValueError, LookupError, TypeError) as error:
                # What was printed or answered has not even the form that was expected.
                step.fault = f"{type(error).__name__}: {error}"
            except BaseException:
                step.fault = "interrupted"
                raise
            finally:
                step.ok = step.fault is None
                self._show(step)

    def _play(self, part: str) -> None:
        first, *expected = part.splitlines()
        if first.startswith("! "):
            getattr(story, first.removeprefix("! "))(self)
            return
        words, _, remark = first.removeprefix("$ ").partition("  # ")
        line = re.sub(r"<(\w+)>", lambda name: self._words.get(name[1], name[0]), words)
        status = 0
        if expected and (found := re.fullmatch(r"\(exit status (\d+)\)", expected[-1])):
            status = int(found[1])
            expected.pop()
        ends_at = time.monotonic() + UNTIL_S
        while remark == "until" and time.monotonic() < ends_at:
            if self._differs(expected, self.call(line)) is None:
                break
            time.sleep(0.05)
        self.print(f"\n  {self._paint('1', f'$ {line}')}")
        ended, printed = self._run(line, int(remark[0]) if "lines" in remark else None)
        self.steps[-1].commands.append({"command": line, "exit_status": ended})
        missing = self._differs(expected, printed)
        if ended != status:
            missing = f"expected exit status {status}, found {ended}; it said: {printed}"
        if missing is not None:
            raise MismatchError(f"`{line}`: {missing}")

    def _differs(self, expected: list[str], printed: str) -> str | None:
        """Return the first line that is not there in words; keep what stands for names."""
        rest = re.sub(r"\x1b\[[0-9;]*m", "", printed)
        for line in expected:
            pattern = re.escape(line).replace(r"\.\.\.", ".*")
            for name in dict.fromkeys(re.findall(r"<(\w+)>", line)):
                known = re.escape(self._words[name]) if name in self._words else r"[^\s,)]+"
                before, _, after = pattern.partition(f"<{name}>")
                after = after.replace(f"<{name}>", f"(?P={name})")
                pattern = f"{before}(?P<{name}>{known}){after}"
            found = re.search(pattern, rest)
            if found is None:
                return f"expected {line}, found {json.dumps(rest, ensure_ascii=False)[:SHOWN]}"
            self._words |= found.groupdict()
            rest = rest[found.end() :]
        return None

    def expect(self, what: str, expected: Any, found: Any) -> None:
        """Check something else; `what` is said when it is as expected."""
        if expected != found:
            words = f"expected {json.dumps(expected)[:SHOWN]}, found {json.dumps(found)[:SHOWN]}"
            raise MismatchError(f"{what}: {words}")
        self.steps[-1].checks.append(what)

    # Processes.

    def call(self, line: str) -> str:
        """Run a command line that nobody sees; return what it printed."""
        options = {**self._options, "stdout": subprocess.PIPE, "timeout": COMMAND_WITHIN_S}
        done = subprocess.run(_command(line), text=True, check=False, **options)
        return str(done.stdout)

    def _start(self, line: str) -> tuple[subprocess.Popen[bytes], int]:
        """Start a command line; return its process, and where its output comes from."""
        # On a terminal it has colours.
        reading, writing = pty.openpty() if self.coloured else os.pipe()
        try:
            return subprocess.Popen(_command(line), stdout=writing, **self._options), reading
        finally:
            os.close(writing)

    def _run(self, line: str, most: int | None) -> tuple[int, str]:
        """Run a command line and show its first lines; return exit status and output."""
        if line.endswith("&"):
            self._background.append(self._start(line.removesuffix("&")))
            return 0, ""
        process, reading = self._background.pop() if line == "wait" else self._start(line)
        watchdog = threading.Timer(COMMAND_WITHIN_S, process.kill)
        watchdog.daemon = True  # an interrupt may come before the cancel below can be reached
        printed: list[str] = []
        try:
            watchdog.start()
            # An OSError is how a pseudo-terminal says that nobody writes to it any more.
            with os.fdopen(reading, "rb") as output, contextlib.suppress(OSError):
                for data in output:
                    printed.append(data.decode(errors="replace").replace("\r\n", "\n"))
                    if most is None or len(printed) <= most:
                        # Of what a command rewrites in place, the last remains.
                        self.print(f"    {printed[-1].rpartition(CLEAR_LINE)[2]}".rstrip())
            if most is not None and len(printed) > most:
                self.print(f"    … {len(printed) - most} more lines")
            return process.wait(), "".join(printed)
        finally:
            watchdog.cancel()
            process.kill()  # what it leaves is found at the end
            process.wait()

    # What people see.

    def print(self, text: str) -> None:
        """Print for people only."""
        if not self.as_json:
            print(text, flush=True)

    def heading(self, text: str) -> None:
        """Begin a section."""
        self.print(f"\n{self._paint('1;36', text)}")

    def verdict(self, text: str, *, well: bool) -> None:
        """Show how the demo ended."""
        words = f"{self._marks[not well]} {text}"
        self.print(f"\n{self._paint('1;32' if well else '1;31', words)}")

    def show_next(self) -> None:
        """Show what to type next."""
        stdiod = Path(sys.executable).with_name("stdiod")
        with contextlib.suppress(ValueError):
            stdiod = stdiod.relative_to(Path.cwd())
        self.heading("What to type next")
        width = max(map(len, NEXT))
        for words, what in NEXT.items():
            self.print(f"  {self._paint('1', f'{stdiod} {words.ljust(width)}')}  {what}")

    def _show(self, step: Step) -> None:
        well, ill = self._marks
        if self.as_json:
            print(json.dumps(asdict(step)), flush=True)
        elif step.skipped is not None:
            self.print(f"  {self._paint('33', f'- {step.step}')}: skipped, {step.skipped}")
        elif step.fault is not None:
            self.print(f"  {self._paint('1;31', f'{ill} {step.step}')}: {step.fault}")
        else:
            checks = f": {'; '.join(step.checks)}" if step.checks else ""
            self.print(f"  {self._paint('32', f'{well} {step.step}')}{checks}")

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.coloured else text


def _command(line: str) -> list[str]:
    words = shlex.split(line)
    return [*STDIOD, *words[1:]] if words[0] == "stdiod" else ["sh", "-c", line]


def copy_runnable(source: Path, target: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Copy the modules that can run here; return their descriptors, and what the others lack."""
    present: dict[str, Any] = {}
    missing: dict[str, str] = {}
    shutil.copytree(source, target)
    for path in sorted(target.glob("*/module.json")):
        # What is wrong with a descriptor is not for us to judge: `stdiod validate` says it.
        with contextlib.suppress(ValueError, LookupError, TypeError):
            descriptor = json.loads(path.read_text(encoding="utf-8"))
            name, program = descriptor["name"], descriptor["transport"]["command"][0]
            if name == COMPILED:
                program = (shlex.split(os.environ.get("CC", "")) or ["cc"])[0]
            if "/" in program or shutil.which(program):
                present[name] = descriptor
            else:
                missing[name] = f"there is no {program} here"
                shutil.rmtree(path.parent)
    return present, missing


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


def main() -> int:
    """Play the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="demo", description=f"{__doc__}".partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one object per step")
    parser.add_argument(
        "--modules", type=Path, default=MODULES, metavar="DIR", help="instead of the samples"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stdiod-demo-", ignore_cleanup_errors=True) as name:
        demo = Demo(Path(name).resolve(), as_json=options.json)
        try:
            (demo.folder / "plan.json").write_text(json.dumps(story.PLAN))
            present, missing = copy_runnable(options.modules, demo.folder / "modules")
            policy = (demo.folder / "modules" / story.POLICY).exists()
            script = story.story(present, missing, policy=policy)
            samples = {path.parent.name for path in MODULES.glob("*/module.json")}
            absent = {one: f"there is no module {one} here" for one in samples - present.keys()}
            demo.play(script, absent | missing)
        except KeyboardInterrupt:
            demo.verdict("interrupted; cleaned up", well=False)
            return INTERRUPTED
        finally:
            # Another Ctrl-C is not to leave behind what this one cleans up.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with contextlib.suppress(subprocess.TimeoutExpired):
                demo.call("stdiod down")
            wait_gone(demo.scratch, story.GONE_WITHIN_S, kill=True)
    failed = [step.step for step in demo.steps if not step.ok]
    if failed:
        demo.verdict(f"not as it should be: {', '.join(failed)}", well=False)
        return 1
    done = sum(step.skipped is None for step in demo.steps)
    took_s = time.monotonic() - began_at
    demo.verdict(f"all {done} steps went as they should, in {took_s:.0f} s", well=True)
    demo.show_next()
    return 0


if __name__ == "__main__":
    sys.exit(main())
