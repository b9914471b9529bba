"""Watch a small fleet being supervised: `make demo`.

A daemon is started on the sample modules, in a temporary folder, through the `stdiod` command. Each
step of `story.py` checks what it finds; the exit status is 0 only if all of them went as they
should. A module whose language is missing here is left out, with a word.

Every process of the demo inherits a TMPDIR of its own. By that mark all of them are found at the
end, whoever started them and wherever they went.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import errno
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

import psutil

from scripts.checkout import ROOT, STDIOD, with_tmpdir
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
GONE_WITHIN_S: Final = 30.0
COLUMNS: Final = "88"
"""Always, since what is printed depends on it."""
SHOWN: Final = 400
"""So many characters of what was expected and found are shown."""
INDENT: Final = "    "
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


class Player:
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
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("STDIOD_") and name != "NOTES_FILE"
        } | {"STDIOD_SOCKET": str(self.socket), "TMPDIR": str(self.scratch), "COLUMNS": COLUMNS}
        self._words: dict[str, str] = {}
        """What stands for `<name>`."""
        self._background: subprocess.Popen[str] | None = None

    def play(self, script: str, absent: Mapping[str, str]) -> None:
        """Play a script; `absent` says why a module is not here."""
        for block in re.split(r"^(?=# |== )", script, flags=re.MULTILINE)[1:]:
            title, _, body = block.partition("\n")
            if title.startswith("# "):
                self.heading(title.removeprefix("# "))
                continue
            name, _, needs = title.removeprefix("== ").partition(" (")
            step = Step(name)
            self.steps.append(step)
            for module in filter(None, needs.removesuffix(")").split(", ")):
                step.skipped = step.skipped or absent.get(module)
            try:
                for part in re.split(
                    r"^(?=[$!] )", "" if step.skipped else body, flags=re.MULTILINE
                )[1:]:
                    self._play(part)
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
                self._ended(step)

    def _play(self, part: str) -> None:
        if part.startswith("! "):
            getattr(story, part.removeprefix("! ").strip())(self)
            return
        first, *expected = part.strip().splitlines()
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
        output = Output(silent=self.as_json, limit=int(remark[0]) if "lines" in remark else None)
        ended = self._run(line, output)
        output.finish()
        self.steps[-1].commands.append({"command": line, "exit_status": ended})
        missing = self._differs(expected, output.text)
        if ended != status:
            missing = f"expected exit status {status}, found {ended}; it said: {output.text}"
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

    def start(self, line: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start a command line."""
        words = shlex.split(line.removesuffix("&"))
        stdiod = [*STDIOD, *words[1:]]
        return subprocess.Popen(
            stdiod if words[0] == "stdiod" else ["sh", "-c", line],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, line: str) -> str:
        """Run a command line that nobody sees; return what it printed."""
        with self.start(line) as process:
            try:
                return process.communicate(timeout=COMMAND_WITHIN_S)[0]
            finally:
                process.kill()

    def _run(self, line: str, output: Output) -> int:
        """Run a command line and pass its output on; return its exit status."""
        if line.endswith("&"):
            self._background = self.start(line)
            return 0
        if line == "wait" and self._background is not None:
            output.write(self._background.communicate(timeout=COMMAND_WITHIN_S)[0])
            return self._background.returncode
        # On a terminal it has colours.
        reading, writing = pty.openpty() if self.coloured else os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            try:
                process = self.start(line, writing)
            finally:
                os.close(writing)
            watchdog = threading.Timer(COMMAND_WITHIN_S, process.kill)
            watchdog.daemon = True  # an interrupt may come before the cancel below can be reached
            try:
                watchdog.start()
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                while data := _read(pipe.fileno()):
                    output.write(decoder.decode(data).replace("\r\n", "\n"))
                return process.wait()
            finally:
                watchdog.cancel()
                process.kill()  # what it leaves is found at the end
                process.wait()

    def left(self, *, kill: bool = False) -> list[str]:
        """Wait until all processes of the demo are gone; return those that stay."""
        ends_at = time.monotonic() + GONE_WITHIN_S
        while (left := with_tmpdir(self.scratch)) and time.monotonic() < ends_at:
            for process in left if kill else ():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.02)
        return list(map(str, left))

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

    def _ended(self, step: Step) -> None:
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


class Output:
    """The output of a command: kept whole, and shown indented, piece by piece as it comes."""

    def __init__(self, *, silent: bool, limit: int | None) -> None:
        """Show the first `limit` lines."""
        self.text = ""
        self._silent, self._limit = silent, limit
        self._lines, self._at_start = 0, True

    def write(self, text: str) -> None:
        """Take a piece; it may end anywhere."""
        self.text += text
        for line in re.findall(r"[^\n]*\n|[^\n]+", text):
            if self._limit is None or self._lines < self._limit:
                self._show(line)
            self._at_start = line.endswith("\n")
            self._lines += self._at_start

    def finish(self) -> None:
        """Say how much was left out."""
        if self._limit is not None and self._lines > self._limit:
            self._show(f"… {self._lines - self._limit} more lines\n")
        elif not self._at_start:
            self._show("\n")

    def _show(self, line: str) -> None:
        if self._silent:
            return
        # What a command rewrites in place stays indented too.
        shown = line.replace(CLEAR_LINE, CLEAR_LINE + INDENT)
        sys.stdout.write(INDENT + shown if self._at_start and line != "\n" else shown)
        sys.stdout.flush()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError as error:
        if error.errno == errno.EIO:
            return b""  # how a pseudo-terminal says that nobody writes to it any more
        raise


def main() -> int:
    """Run the demo; returns the exit status."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stdiod-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        player = Player(folder, as_json=options.json)
        try:
            present, missing = _copy_runnable(options.modules, folder / "modules")
            policy = (folder / "modules" / story.POLICY).exists()
            script = story.story(present, missing, policy=policy)
            samples = {path.parent.name for path in MODULES.glob("*/module.json")}
            absent = {one: f"there is no module {one} here" for one in samples - present.keys()}
            player.play(script, absent | missing)
        except KeyboardInterrupt:
            player.verdict("interrupted; cleaned up", well=False)
            return INTERRUPTED
        finally:
            # Another Ctrl-C is not to leave behind what this one cleans up.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with contextlib.suppress(subprocess.TimeoutExpired):
                player.call("stdiod down")
            player.left(kill=True)
    failed = [step.step for step in player.steps if not step.ok]
    if failed:
        player.verdict(f"not as it should be: {', '.join(failed)}", well=False)
        return 1
    done = sum(step.skipped is None for step in player.steps)
    took_s = time.monotonic() - began_at
    player.verdict(f"all {done} steps went as they should, in {took_s:.0f} s", well=True)
    player.show_next()
    return 0


def _copy_runnable(source: Path, target: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Copy the modules that can run here; return their descriptors, and what the others lack."""
    present: dict[str, Any] = {}
    missing: dict[str, str] = {}
    target.mkdir()
    if (source / story.POLICY).exists():
        shutil.copyfile(source / story.POLICY, target / story.POLICY)
    for path in sorted(source.glob("*/module.json")):
        try:
            descriptor = json.loads(path.read_text(encoding="utf-8"))
            name, program = descriptor["name"], descriptor["transport"]["command"][0]
        except (ValueError, LookupError, TypeError):
            # Not for us to judge: `stdiod validate` says what is wrong with it.
            shutil.copytree(path.parent, target / path.parent.name)
            continue
        if name == COMPILED:
            program = (shlex.split(os.environ.get("CC", "")) or ["cc"])[0]
        if "/" in program or shutil.which(program):
            shutil.copytree(path.parent, target / path.parent.name)
            present[name] = descriptor
        else:
            missing[name] = f"there is no {program} here"
    return present, missing


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one object per step")
    parser.add_argument(
        "--modules", type=Path, default=MODULES, metavar="DIR", help="instead of the samples"
    )
    return parser.parse_args()


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
