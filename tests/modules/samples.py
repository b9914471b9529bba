"""The sample modules, each driven alone as a plain process, without the daemon.

A module is started as its descriptor says, in its own folder, with the few environment variables
the daemon would pass on, and a TMPDIR of the test. Nothing here sleeps. A watchdog kills
a module that takes longer than PATIENCE_S, with its group, and so ends every read that waits.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

MODULES = Path(__file__).parents[2] / "modules"

PATIENCE_S = 60.0  # generous: a loaded machine must not fail a test

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "PYENV_ROOT", "PYENV_VERSION")

Json = dict[str, Any]

DESCRIPTORS: dict[str, Json] = {
    path.parent.name: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(MODULES.glob("*/module.json"))
}

PERSISTENT = [n for n, d in DESCRIPTORS.items() if d["transport"]["protocol"] == "module"]

PER_INVOCATION = [n for n, d in DESCRIPTORS.items() if d["transport"]["protocol"] == "narratoria"]


def required_programs(name: str) -> list[str]:
    program = str(DESCRIPTORS[name]["transport"]["command"][0])
    return [program, os.environ.get("CC", "cc").split()[0]] if name == "primes" else [program]


def take_time(folder: Path) -> None:
    """Have nothing of the samples in a folder given up, however slow the machine is."""
    names = ("start", "health", "describe", "invoke", "exit", "linger", "stop")
    for path in folder.glob("*/module.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        supervision = document.setdefault("supervision", {})
        supervision["timeouts"] = {f"{name}_s": PATIENCE_S for name in names}
        if "hook" in document:
            document["hook"]["timeout_s"] = PATIENCE_S
        path.write_text(json.dumps(document), encoding="utf-8")


def environment(name: str, tmp: Path, **extra: str) -> dict[str, str]:
    named = DESCRIPTORS[name]["transport"].get("pass_env", ())
    passed = (*INHERITED, *(one.removesuffix("?") for one in named))
    kept = {key: os.environ[key] for key in passed if key in os.environ and key != "NOTES_FILE"}
    return kept | {"TMPDIR": str(tmp)} | extra


Answer = Callable[[str, Json], Json]
"""Takes the method and the params of a host call; returns its output, or {"error": ...}."""


def kind_host(method: str, params: Json) -> Json:
    """Answer host calls as a daemon would whose modules are there and agree with everything."""
    match method, params:
        case "session.read", _:
            return {"state": {}, "revision": 0}
        case "module.invoke", {"op": "get_messages_for_request"}:
            return {"ok": True, "result": {"messages": [{"role": "user", "content": "hello"}]}}
        case "module.invoke", {"op": "complete"}:
            result = {"content": "I hear you.", "tool_calls": [], "usage": {}}
            return {"ok": True, "result": result}
        case "module.invoke", _:
            return {"ok": True, "result": {"count": 1}}
        case _:
            return {}


class Running:
    """A started module: write requests, read its lines, and learn how it ended."""

    host: Answer = staticmethod(kind_host)
    """Answers the host calls that come while a terminal line is awaited."""

    def __init__(self, name: str, tmp: Path, **env: str) -> None:
        for program in required_programs(name):
            if shutil.which(program) is None:
                pytest.skip(f"the sample {name} needs {program}, which is not installed here")
        self.process = subprocess.Popen(
            DESCRIPTORS[name]["transport"]["command"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=MODULES / name,
            env=environment(name, tmp, **env),
            start_new_session=True,
        )
        self.watchdog = threading.Timer(PATIENCE_S, self.kill)
        self.watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.watchdog.cancel()
        self.watchdog.join()
        self.kill()
        self.process.communicate()

    def kill(self) -> None:
        if self.process.returncode is None:  # not reaped, so the number is still its own
            os.killpg(self.process.pid, signal.SIGKILL)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), f"no whole line but {line!r}"
        message = json.loads(line.decode("utf-8", errors="strict"))
        assert isinstance(message, dict)
        return message

    def answer(self, request_id: object) -> tuple[list[Json], Json]:
        """Read up to the terminal line of this request; return its events and that line."""
        events: list[Json] = []
        while True:
            message = self.read()
            assert message.get("requestId") == request_id
            if message.get("type") == "host_call":
                self.serve(request_id, message["payload"])
                continue
            if message.get("type", "done") == "done":
                return events, message
            events.append(message)

    def serve(self, request_id: object, call: Json) -> None:
        """Answer a host call."""
        output = self.host(call["method"], call["params"])
        result = {"call_id": call["call_id"], "output": output, "is_error": False}
        if "error" in output:
            result = {**result, "output": {}, "is_error": True, "error": output["error"]}
        line = {"type": "host_result", "requestId": request_id, "payload": result}
        self.write(json.dumps(line).encode() + b"\n")

    def ask(self, operation: str, given: Json | None = None, request_id: object = "r-1") -> Json:
        self.write(frame(operation, given or {}, request_id))
        return self.answer(request_id)[1]

    def invoke(self, op: str, args: Json, session: str = "s-1") -> Json:
        return self.ask("invoke", {"op": op, "args": args, "session_id": session})

    def finish(self) -> tuple[int, list[bytes], str]:
        """Close stdin; return the exit status, the lines that were left, and stderr."""
        stdout, stderr = self.process.communicate()
        return self.process.returncode, stdout.splitlines(), stderr.decode()


def frame(operation: str, given: Json, request_id: object = "r-1") -> bytes:
    """Return a request as its line, in UTF-8 rather than in ASCII escapes."""
    request = {"requestId": request_id, "tool": "it", "operation": operation, "input": given}
    return json.dumps(request, ensure_ascii=False).encode() + b"\n"


def perform(name: str, tmp: Path, stdin: bytes, **env: str) -> tuple[int, list[bytes], str]:
    """Give a module all its input at once; return exit status, output lines, stderr."""
    with Running(name, tmp, **env) as module:
        stdout, stderr = module.process.communicate(stdin)
        return module.process.returncode, stdout.splitlines(), stderr.decode()


def events_of(lines: list[bytes]) -> list[Json]:
    """Return the events, which must be those of a whole and orderly Spec 001 invocation."""
    events: list[Json] = [json.loads(line) for line in lines]
    assert all(event["version"] == "0" for event in events)
    assert [event["type"] for event in events].count("done") == 1
    assert events[-1]["type"] == "done"
    return events
