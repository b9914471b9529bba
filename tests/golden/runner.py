"""Play scenarios to a daemon as its clients do, and write down what comes out.

A file `NAME.golden` is a group: it says how its daemon is started, and has scenarios that are
played one after the other. What is not indented is input, what is indented is what came out (below
`file` it is the content of the file). `#` begins a comment.

    modules PROGRAM...              before all scenarios: how the daemon is started (its words)
    daemon WORDS...
    === a scenario, in a sentence
    file PATH                       write a file, below the folder of the group
    $ COMMAND                       type it; stderr is marked with `2:`, then the exit status
    call MODULE OP [ARGS [INPUT]]   invoke over the control socket, and wait for `done`
    op OP [ARGS]                    one of the daemon's own ops, in the same way
    ready MODULE...                 wait until they are ready, after a crash
    http METHOD PATH [| HEADER: VALUE]... [| BODY]
                                    over http.sock; `tcp` is the address
    A = socket                      open a connection by the name A; a process is `A = run COMMAND`,
                                    a stream `A = http ...`, a WebSocket `A = ws PATH [| ...]`
    A > TEXT                        write a line
    A ? JSON                        write a request, and wait for its answer
    A < REGEX                       wait for such a line; without REGEX, for the end
    A ! SIGNAL                      send a process a signal; `A close` closes a connection
    let NAME REGEX                  from now on $NAME is what REGEX found in the last output

Before any of them may stand, each followed by `::`: `raw` (as it came, not as JSON), `sorted`
(lines in no order), `quiet` (nothing is written down), `pick PATH...` (members of JSON, `*` is
each), `grep REGEX` (lines), `until REGEX` (again and again until the output has it).
"""

from __future__ import annotations

import contextlib
import difflib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bounds import WAIT_S, until
from tests.golden.channels import (
    UPGRADE,
    Channel,
    answering,
    begins,
    closing,
    head,
    process_channel,
    socket_channel,
    web_socket_channel,
)
from tests.golden.mask import Mask, spread

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INDENT = "    "


@dataclass
class Step:
    text: str
    block: list[str] = field(default_factory=list)


@dataclass
class Scenario:
    title: str
    steps: list[Step] = field(default_factory=list)

    def lines(self) -> list[str]:
        shown = [f"=== {self.title}"] if self.title else []
        for step in self.steps:
            shown += [step.text, *((INDENT + line).rstrip() for line in step.block)]
        return shown


def groups() -> list[Path]:
    return sorted(HERE.glob("*.golden"))


def read(path: Path) -> list[Scenario]:
    """Return the scenarios of a group, before them what begins it."""
    found = [Scenario("")]
    for line in path.read_text().splitlines():
        if line.startswith("=== "):
            found.append(Scenario(line[4:]))
        elif line.startswith(INDENT) or not line:
            if line or found[-1].steps[-1].text.startswith("file "):
                found[-1].steps[-1].block.append(line[len(INDENT) :])
        else:
            found[-1].steps.append(Step(line))
    for step in (step for scenario in found for step in scenario.steps):
        while step.block and not step.block[-1]:
            step.block.pop()
    return found


class Group:
    """The daemon of a group, its folder, and the clients of the scenario that is played."""

    def __init__(self, path: Path, stdiod: Path) -> None:
        self.scenarios = read(path)
        self.home = Path(tempfile.mkdtemp(prefix="g-")).resolve()
        self._stdiod = stdiod
        self._daemon: subprocess.Popen[bytes] | None = None
        self._variables: dict[str, str] = {}
        self._channels: dict[str, Channel] = {}
        self._last = ""
        self._requests = 0
        self._mask = Mask({})
        self._environment = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "PATH": f"{self.home}/bin:{stdiod.parent}:{os.defpath}",
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "TERM": "dumb",
        }
        for name in ("bin", "run", "modules", "tmp"):
            (self.home / name).mkdir(mode=0o700)
        for program in (HERE / "modules").glob("*.*"):
            shutil.copy(program, self.home / "bin")

    def play(self) -> Iterator[tuple[Scenario, Scenario]]:
        """Play all; give each scenario as it is written down, and as it came out."""
        begin, *scenarios = self.scenarios
        for step in begin.steps:
            match step.text.split(" ", 1):
                case "file", path:
                    self._file(path, step.block)
                case "daemon", words:
                    self._start(words)
        for scenario in scenarios:
            self._mask = Mask(
                {
                    str(self.home): "HOME",
                    str(ROOT): "SRC",
                    str(self._stdiod.parent): "BIN",
                    os.path.realpath(sys.executable): "PYTHON",
                }
            )
            self._requests = 0
            played = [self._play(step) for step in scenario.steps]
            self._close_channels()
            yield scenario, Scenario(scenario.title, played)

    def _play(self, step: Step) -> Step:
        if step.text.startswith("#"):
            return step
        text = self._filled(step.text)
        if text.startswith("file "):
            self._file(text[5:], [self._filled(line) for line in step.block])
            return step
        if text.startswith("let "):
            _, name, pattern = text.split(" ", 2)
            found = re.search(pattern, self._last)
            self._variables[name] = found[1] if found else "(not found)"
            return Step(step.text, [] if found else ["(not found)"])
        return Step(step.text, self._shown(text))

    def _filled(self, text: str) -> str:
        for name in sorted(self._variables, key=len, reverse=True):
            text = text.replace(f"${name}", self._variables[name])
        return text

    def _shown(self, text: str) -> list[str]:
        """Do a step, and return what is written down of it."""
        modifiers: dict[str, str] = {}
        while found := re.match(r"(raw|sorted|quiet|pick|grep|until)(?: (.*?))?? :: (.*)", text):
            modifiers[found[1]] = found[2]
            text = found[3]
        if "until" in modifiers:
            try:
                lines = until(lambda: self._matching(text, modifiers["until"]), text)
            except AssertionError as late:
                lines = [f"({late})"]
        else:
            lines = self._do(text)
        self._last = "\n".join(lines)
        if "quiet" in modifiers:
            return []
        lines = [line for line in lines if line]
        if "grep" in modifiers:
            lines = [line for line in lines if re.search(modifiers["grep"], line)]
        if "pick" in modifiers:
            shown = [list(self._picked(line, modifiers["pick"].split())) for line in lines]
        else:
            shown = [list(self._mask.line(line, raw="raw" in modifiers)) for line in lines]
        if "sorted" in modifiers:
            shown.sort()
        return [one for several in shown for one in several]

    def _matching(self, text: str, pattern: str) -> list[str] | None:
        before = self._requests
        lines = self._do(text)
        if re.search(pattern, "\n".join(lines)):
            return lines
        self._requests = before
        return None

    def _picked(self, line: str, paths: list[str]) -> Iterator[str]:
        try:
            value = self._mask.value(json.loads(line.removeprefix("data: ")))
        except ValueError:
            yield from self._mask.line(line)
            return
        if isinstance(value, dict) and value.get("type") == "done":
            value = value.get("result", value)
        for path in paths:
            for name, member in _members(value, path.split("."), ""):
                first, *rest = spread(member)
                yield f"{name} {first}"
                yield from rest

    def _do(self, text: str) -> list[str]:
        word, _, rest = text.partition(" ")
        match word:
            case "$":
                return self._typed(rest)
            case "call":
                module, op, *more = rest.split(" ", 2)
                args, also = _two_documents(more[0] if more else "{}")
                return self._ask(module, "invoke", {"op": op, "args": args, **also})
            case "op":
                op, _, args = rest.partition(" ")
                return self._ask("supervisor", op, json.loads(args or "{}"))
            case "ready":
                lines = self._ask("supervisor", "wait", {"modules": rest.split(), "for": "ready"})
                return [line for line in lines if '"ok":false' in line.replace(" ", "")]
            case "http" | "tcp":
                with self._answer(word, rest) as answer:
                    body = answer.read().decode(errors="replace")
                    return [*head(answer), *body.splitlines()]
        verb, _, rest = rest.partition(" ")
        return self._channel(word, verb, rest)

    def _channel(self, name: str, verb: str, rest: str) -> list[str]:
        match verb:
            case "=":
                kind, _, words = rest.partition(" ")
                self._channels[name] = self._open(kind, words)
                return self._channels[name].take(begins, "the head") if kind == "http" else []
            case ">":
                self._channels[name].write(rest)
                return []
            case "?":
                self._channels[name].write(rest)
                return self._channels[name].take(answering(json.loads(rest)), rest)
            case "<":
                pattern = re.compile(rest)
                wanted = (lambda line: bool(pattern.search(line))) if rest else None
                return self._channels[name].take(wanted, rest or "the end")
            case "!":
                process = self._channels[name].process
                assert process, f"{name} is no process"
                process.send_signal(signal.Signals[f"SIG{rest}"])
                return []
            case "close":
                self._channels.pop(name).close()
                return []
        raise AssertionError(f"no step: {name} {verb} {rest}")

    def _open(self, kind: str, words: str) -> Channel:
        match kind:
            case "socket":
                return socket_channel(self._connect("stdiod.sock"))
            case "run":
                return self._run(words)
            case "http" | "tcp":
                answer = self._answer(kind, words)
                shown = iter([*(f"{line}\n".encode() for line in head(answer)), b"(head)\n"])
                return Channel(
                    lambda: next(shown, b"") or answer.readline(), lambda _: None, closing(answer)
                )
            case "ws":
                return self._web_socket(words)
        raise AssertionError(f"no channel: {kind}")

    def _ask(self, tool: str, operation: str, content: dict[str, Any]) -> list[str]:
        if "socket" not in self._channels:
            self._channels["socket"] = self._open("socket", "")
        self._requests += 1
        request = {
            "requestId": f"q{self._requests}",
            "tool": tool,
            "operation": operation,
            "input": content,
        }
        self._channels["socket"].write(json.dumps(request))
        return self._channels["socket"].take(answering(request), f"{tool} {operation}")

    def _typed(self, command: str) -> list[str]:
        try:
            typed = subprocess.run(
                ["bash", "-c", command],
                cwd=self.home,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=WAIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [f"(not within {WAIT_S:g} s)"]
        shown = typed.stdout.decode(errors="replace").splitlines()
        shown += [f"2: {line}" for line in typed.stderr.decode(errors="replace").splitlines()]
        return [*shown, *([f"exit {typed.returncode}"] if typed.returncode else [])]

    def _run(self, command: str) -> Channel:
        with (self.home / "stderr").open("ab") as standard_error:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.home,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=standard_error,
            )
        return process_channel(process)

    def _connect(self, name: str) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.home / "run" / "stdiod" / name))
        except OSError:
            connection.close()
            raise
        connection.settimeout(WAIT_S)
        return connection

    def _send(self, face: str, words: str) -> socket.socket:
        first, *rest = words.split(" | ")
        method, path = first.split(" ", 1)
        headers = {"Host": "localhost"}
        body = b""
        if face == "tcp":
            host, port = self._address()
            headers["Host"] = f"{host}:{port}"
            connection = socket.create_connection((host, port), WAIT_S)
        else:
            connection = self._connect("http.sock")
        for part in rest:
            name, colon, value = part.partition(": ")
            if colon and re.fullmatch(r"[A-Za-z-]+", name):
                headers[name] = value
            else:
                body = part.encode()
                headers.setdefault("Content-Type", "application/json")
                headers["Content-Length"] = str(len(body))
        headers.setdefault("Connection", "close")
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return connection

    def _answer(self, face: str, words: str) -> http.client.HTTPResponse:
        with self._send(face, words) as connection:  # the answer has a file of its own
            answer = http.client.HTTPResponse(connection, method=words.split(" ", 1)[0])
            answer.begin()
            return answer

    def _address(self) -> tuple[str, int]:
        with self._connect("stdiod.sock") as connection:
            connection.sendall(b'{"requestId":"h","tool":"supervisor","operation":"status"}\n')
            with connection.makefile("rb") as lines:
                url = json.loads(lines.readline())["result"]["daemon"]["http"]
        host, _, port = url.partition("://")[2].rpartition(":")
        return host, int(port)

    def _web_socket(self, words: str) -> Channel:
        path, *headers = words.split(" | ")
        return web_socket_channel(
            self._send("http", " | ".join([f"GET {path}", *UPGRADE, *headers]))
        )

    def _file(self, path: str, block: list[str]) -> None:
        target = self.home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(block) + "\n"
        temporary = target.with_name(f".{target.name}")
        temporary.write_text(text)
        temporary.rename(target)

    def _start(self, words: str) -> None:
        with (self.home / "daemon.log").open("ab") as log:
            self._daemon = subprocess.Popen(
                ["bash", "-c", f"exec stdiod run {words}"],
                cwd=self.home,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        daemon = self._daemon

        def listens() -> bool:
            assert daemon.poll() is None, (self.home / "daemon.log").read_text()
            with contextlib.suppress(OSError), self._connect("stdiod.sock"):
                return True
            return False

        until(listens, "the daemon listens")
        self._ask("supervisor", "wait", {"for": "verdict"})
        self._close_channels()

    def _close_channels(self) -> None:
        while self._channels:
            self._channels.popitem()[1].close()

    def close(self) -> None:
        self._close_channels()
        if self._daemon and self._daemon.poll() is None:
            self._daemon.terminate()
            try:
                self._daemon.wait(WAIT_S)
            finally:
                self._daemon.kill()
        shutil.rmtree(self.home, ignore_errors=True)


def _two_documents(text: str) -> tuple[Any, dict[str, Any]]:
    args, end = json.JSONDecoder().raw_decode(text)
    return args, json.loads(text[end:] or "{}")


def _members(value: Any, path: list[str], name: str) -> Iterator[tuple[str, Any]]:
    if not path:
        yield name, value
        return
    first, *rest = path
    if isinstance(value, list):
        value = {str(number): member for number, member in enumerate(value)}
    if not isinstance(value, dict):
        return
    for key in sorted(value) if first == "*" else [first]:
        if key in value:
            yield from _members(value[key], rest, f"{name}.{key}".lstrip("."))


def heed_interrupts() -> None:
    """Let what is started heed SIGINT, too: a shell has it ignored in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def play(path: Path, stdiod: Path) -> Iterator[tuple[Scenario, Scenario]]:
    group = Group(path, stdiod)
    try:
        yield from group.play()
    finally:
        group.close()


def difference(path: Path, stdiod: Path) -> str:
    """Play a group, and return in words and as a diff what is not as it is written down."""
    shown: list[str] = []
    for written, played in play(path, stdiod):
        if written.lines() != played.lines():
            shown += difflib.unified_diff(
                written.lines(), played.lines(), f"{path.name}: {written.title}", "now", lineterm=""
            )
    if shown:
        shown.append(f'write it down anew: make golden GOLDEN_ARGS="--record {path.stem}"')
    return "\n".join(shown)


def record(path: Path, stdiod: Path) -> None:
    """Play a group, and write down what came out."""
    begin = read(path)[0]
    lines = begin.lines()
    for _, played in play(path, stdiod):
        lines += ["", *played.lines()]
    path.write_text("\n".join(lines) + "\n")
