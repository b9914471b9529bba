"""Watch a small fleet being supervised: `make demo`.

A daemon is started on the sample modules, in a temporary folder, through the `stdiod` command, and
the lines of `demo.txt` are played; they begin with how they are written. The exit status is 0 only
if each step went as it should. A module whose language is missing here is left out, with a word.

Every process of the demo inherits a TMPDIR of its own. By that mark all of them are found at the
end, whoever started them and wherever they went.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from scripts.checkout import ROOT, STDIOD, wait_gone

MODULES: Final = ROOT / "modules"
COMPILED: Final = "primes"
"""This one is a shell script to look at, and needs a C compiler."""
LINES: Final = ROOT / "scripts" / "demo.txt"
PERSISTENT: Final = ("dice", "textstats", "primes")
"""The first of these that is there is killed."""
AT_ONCE: Final = 64
INTERRUPTED: Final = 130
COMMAND_WITHIN_S: Final = 90.0
"""The longest command compiles a module."""
UNTIL_S: Final = 20.0
"""For what takes a moment: a restart, a question to a person."""
GONE_WITHIN_S: Final = 30.0
COLUMNS: Final = "88"
"""Always, since what is printed depends on it."""
SHOWN: Final = 400
"""So many characters of what was found instead are shown."""
OWN: Final = ("STDIOD_", "NOTES_FILE", "TMPDIR", "COLUMNS")
"""Variables of the demo that nobody else sets."""

NEXT: Final = """
What to type next
  STDIOD up modules                start the samples in the background
  STDIOD top                       watch them; q quits
  STDIOD invoke dice roll dice=2d6 call one
  STDIOD down                      stop all of it
  STDIOD new hello --lang python   begin a module; docs/first-module.md goes on"""


def story(present: Mapping[str, Any], missing: Mapping[str, str], *, policy: bool) -> str:
    """Return the story for the modules that can run here, by name."""
    begin, meet, rest = LINES.read_text(encoding="utf-8").split("%%\n")
    text = begin.replace("MISSING", "\n".join(f"== {name} ({name})" for name in missing))
    text = text.replace("NUMBER", str(len(present)))
    text = text.replace("WITH_POLICY", "--policy modules/policy.toml" if policy else "")
    for name, descriptor in present.items():
        capabilities = ", ".join(descriptor["capabilities"])
        said = meet.replace("NAME", name).replace("VERSION", descriptor["version"])
        said = said.replace("KIND", descriptor["kind"])
        text += said.replace("CAPABILITIES", f"capabilities {capabilities}" if capabilities else "")
    victim = next((name for name in PERSISTENT if name in present), PERSISTENT[0])
    return text + rest.replace("VICTIM", victim).replace("AT_ONCE", str(AT_ONCE))


@dataclass
class Step:
    step: str
    ok: bool = True
    skipped: str | None = None
    commands: list[dict[str, Any]] = field(default_factory=list)
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
        self._as_json = as_json
        self._coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._words: dict[str, str] = {}
        """What stands for `<name>`."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
        own = {"STDIOD_SOCKET": str(self.socket), "TMPDIR": str(self.scratch), "COLUMNS": COLUMNS}
        self._environment = inherited | own
        self._background: subprocess.Popen[str] | None = None

    def play(self, text: str, absent: Mapping[str, str]) -> None:
        """Play a story; `absent` says why a module is not here."""
        for block in re.split(r"^(?=# |== )", text, flags=re.MULTILINE)[1:]:
            title, _, body = block.partition("\n")
            if title.startswith("# "):
                self.print(f"\n{title.removeprefix('# ')}", "1;36")
                continue
            name, _, needs = title.removeprefix("== ").rstrip(")").partition(" (")
            reasons = (absent[module] for module in needs.split(", ") if module in absent)
            step = Step(name, skipped=next(reasons, None), fault="interrupted")
            self.steps.append(step)
            try:
                if step.skipped is None:
                    for part in re.split(r"^(?=[$!] )", body, flags=re.MULTILINE)[1:]:
                        self._play(part.strip())
                step.fault = None
            except MismatchError as mismatch:
                step.fault = str(mismatch)
            except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as e:
                # What was printed or answered has not even the form that was expected.
                step.fault = f"{type(e).__name__}: {e}"
            finally:
                step.ok = step.fault is None
                self._show(step)

    def _play(self, part: str) -> None:
        """Run a command and compare what it prints, or call a function."""
        first, *expected = part.splitlines()
        if first.startswith("! "):
            FUNCTIONS[first.removeprefix("! ")](self)
            return
        words, _, remark = first.removeprefix("$ ").partition("  # ")
        line = re.sub(r"<(\w+)>", lambda name: self._words.get(name[1], name[0]), words)
        status = 0
        if expected and (found := re.fullmatch(r"\(exit status (\d+)\)", expected[-1])):
            status = int(found[1])
            expected.pop()
        self.print(f"\n  $ {line}", "1")
        ends_at = time.monotonic() + UNTIL_S
        ended, printed = self.run(line)
        while (missing := self._differs(expected, printed)) and remark == "until":
            if time.monotonic() > ends_at:
                break
            time.sleep(0.05)
            ended, printed = self.run(line)
        for one in printed.splitlines():
            self.print(f"    {one}")
        self.steps[-1].commands.append({"command": line, "exit_status": ended})
        if ended != status:
            missing = f"expected exit status {status}, found {ended}; it said: {printed}"
        if missing is not None:
            raise MismatchError(f"`{line}`: {missing}")

    def _differs(self, expected: list[str], printed: str) -> str | None:
        """Return the first line that is not there in words; keep what stands for names."""
        for line in expected:
            pattern = re.escape(line).replace(r"\.\.\.", ".*")
            for name in dict.fromkeys(re.findall(r"<(\w+)>", line)):
                known = re.escape(self._words[name]) if name in self._words else r"[^\s,)]+"
                before, _, after = pattern.partition(f"<{name}>")
                after = after.replace(f"<{name}>", f"(?P={name})")
                pattern = f"{before}(?P<{name}>{known}){after}"
            found = re.search(pattern, printed)
            if found is None:
                return f"expected {line}, found {json.dumps(printed, ensure_ascii=False)[:SHOWN]}"
            self._words |= found.groupdict()
            printed = printed[found.end() :]
        return None

    def run(self, line: str) -> tuple[int, str]:
        """Run a command line; return exit status and output, of `...&` when there is a `wait`."""
        process, self._background = self._background, None
        if line != "wait" or process is None:
            words = shlex.split(line.removesuffix("&"))
            of_ours = words[0] == "stdiod"
            started = subprocess.Popen(
                [*STDIOD, *words[1:]] if of_ours else ["sh", "-c", line],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            if line.endswith("&"):
                self._background = started
                return 0, ""
            process, self._background = started, process
        try:
            printed, _ = process.communicate(timeout=COMMAND_WITHIN_S)
            return process.returncode, printed
        finally:
            process.kill()  # what it leaves is found at the end

    def print(self, text: str, style: str = "") -> None:
        """Print for people only."""
        if not self._as_json:
            print(f"\x1b[{style}m{text}\x1b[0m" if style and self._coloured else text, flush=True)

    def _show(self, step: Step) -> None:
        if self._as_json:
            print(json.dumps(asdict(step)), flush=True)
        elif step.skipped is not None:
            self.print(f"  - {step.step}: skipped, {step.skipped}", "33")
        elif step.fault is not None:
            self.print(f"  FAILED: {step.step}: {step.fault}", "1;31")
        else:
            self.print(f"  ok: {step.step}", "32")


def ask_all(demo: Demo) -> None:
    """Ask one process many things at once, over one connection to the control socket."""
    invoke = {"tool": "crowd", "operation": "invoke"}
    asked = [
        json.dumps({"requestId": f"q{number}", **invoke, "input": {"op": "complete", "args": args}})
        for number in range(1, AT_ONCE + 1)
        for args in [{"prompt": f"Verse {number}", "delay_ms": 25}]
    ]
    demo.print(f"  {AT_ONCE} lines into the control socket, as any program can:\n  {asked[0]}")
    begun: dict[str, str] = {}
    said: dict[str, str] = {}
    begun_before_first_end = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(COMMAND_WITHIN_S)
        client.connect(str(demo.socket))
        client.sendall("".join(f"{line}\n" for line in asked).encode())
        with client.makefile("r", encoding="utf-8", newline="\n") as answers:
            while len(said) < AT_ONCE and (line := answers.readline()):
                event = json.loads(line)
                name = event["requestId"]
                if event["type"] == "done":
                    begun_before_first_end = begun_before_first_end or len(begun)
                    said[name] = event["result"]["text"]
                else:
                    begun[name] = begun.get(name, "") + event["payload"]["content"]
    if begun != said or begun_before_first_end != AT_ONCE:
        raise MismatchError(f"expected each answer as it was streamed, found {said} of {begun}")
    demo.print(f"  q1: {said['q1']}\n  all had begun before the first one ended")


def look_for_processes(demo: Demo) -> None:
    if left := wait_gone(demo.scratch, GONE_WITHIN_S):
        raise MismatchError(f"expected none, found {[str(one) for one in left]}")


FUNCTIONS: Final = {"ask_all": ask_all, "look_for_processes": look_for_processes}


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=f"{__doc__}".partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one object per step")
    parser.add_argument(
        "--modules", type=Path, default=MODULES, metavar="DIR", help="instead of the samples"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stdiod-demo-", ignore_cleanup_errors=True) as name:
        demo = Demo(Path(name).resolve(), as_json=options.json)
        try:
            present, missing = copy_runnable(options.modules, demo.folder / "modules")
            policy = (demo.folder / "modules" / "policy.toml").exists()
            samples = {path.parent.name for path in MODULES.glob("*/module.json")}
            absent = {one: f"there is no module {one} here" for one in samples - present.keys()}
            demo.play(story(present, missing, policy=policy), absent | missing)
        except KeyboardInterrupt:
            demo.print("\nFAILED: interrupted; cleaned up", "1;31")
            return INTERRUPTED
        finally:
            # Another Ctrl-C is not to leave behind what this one cleans up.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            demo.run("stdiod down")
            wait_gone(demo.scratch, GONE_WITHIN_S, kill=True)
    if failed := [step.step for step in demo.steps if not step.ok]:
        demo.print(f"\nFAILED: not as it should be: {', '.join(failed)}", "1;31")
        return 1
    done = sum(step.skipped is None for step in demo.steps)
    took_s = time.monotonic() - began_at
    demo.print(f"\nok: all {done} steps went as they should, in {took_s:.0f} s", "1;32")
    stdiod = Path(os.path.relpath(Path(sys.executable).with_name("stdiod")))
    demo.print(NEXT.replace("STDIOD", str(stdiod)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
