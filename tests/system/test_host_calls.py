"""Calls to the host, by real modules of a real daemon: other languages, deaths, floods, reloads."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import AT_ONCE, PATIENT, descriptor, timeouts
from tests.system.liveness import BOUND_S

CALLER = Path(__file__).parents[1] / "kernel" / "caller.py"
CAPABILITIES = ["module.*", "session.*", "event.*", "log"]
PEAK_BYTES = 200 << 20
"""Far more than a daemon needs, far less than what the flood would amount to unbounded."""

NODE = r"""
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const waiting = new Map();
let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (text) => {
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  lines.filter(Boolean).forEach((line) => take(JSON.parse(line)));
});
function take({ requestId, type, operation, input, payload }) {
  if (type === "host_result") {
    const one = payload.is_error ? payload.error.message : payload.output.result;
    const found = waiting.get(requestId);
    found.push(one);
    if (found.length === 2) say({ requestId, ok: true, result: found.sort() });
  } else if (operation === "health") say({ requestId, status: "ok" });
  else if (operation === "describe") {
    const known = { name: "node", version: "1", kind: "tool", capabilities: [] };
    say({ requestId, ...known, inputs: {}, outputs: {}, features: ["host_call"] });
  } else {
    waiting.set(requestId, []);
    for (const call_id of ["x", "y"]) {
      const params = { module: "b", op: "echo", args: { call_id } };
      const payload = { call_id, capability: "module.invoke", method: "invoke", params };
      say({ version: "0", type: "host_call", requestId, payload });
    }
  }
}
"""

DEAF = """
import json, sys
line = sys.stdin.readline
def say(**fields):
    print(json.dumps(fields), flush=True)
while True:
    frame = json.loads(line())
    named = {"requestId": frame["requestId"]}
    if frame["operation"] == "health":
        say(**named, status="ok")
    elif frame["operation"] == "describe":
        facts = {"name": sys.argv[1], "version": "1", "kind": "tool", "capabilities": []}
        say(**named, **facts, inputs={}, outputs={}, features=["host_call"])
    elif frame["input"]["op"] == "echo":
        say(**named, ok=True, result=frame["input"]["args"])
    else:
        payload = {"method": "log", "params": {}}
        while True:
            say(**named, version="0", type="host_call", payload={**payload, "call_id": "c" * 250})
"""
"""Calls without end and never reads what comes of it."""

SHY = """
import json, sys
def read():
    return json.loads(sys.stdin.readline())
def say(**fields):
    print(json.dumps(fields), flush=True)
while True:
    frame = read()
    named = {"requestId": frame["requestId"]}
    if frame["operation"] == "health":
        say(**named, status="ok")
    elif frame["operation"] == "describe":
        say(**named, ok=True, result={})
    elif frame["input"]["op"] == "call":
        call = {"call_id": "c", "method": "log", "params": {"message": "x"}}
        say(**named, version="0", type="host_call", payload=call)
        say(**named, ok=read()["payload"]["is_error"])
    else:
        say(**named, ok=True, result=frame["input"]["args"])
"""
"""Calls without saying that it does, and reads what comes of it."""


def module(name: str, command: list[str], **supervision: Any) -> dict[str, Any]:
    settings = {"concurrency": 8, "timeouts": PATIENT, "backoff": AT_ONCE, **supervision}
    made = descriptor(name, command, supervision=settings)
    return {**made, "capabilities": CAPABILITIES}


def caller(name: str, **supervision: Any) -> dict[str, Any]:
    return module(name, [sys.executable, "-I", "-S", str(CALLER), name], **supervision)


def policy(folder: Path, text: str = 'mode = "permissive"\n') -> tuple[str, ...]:
    file = folder / "policy.toml"
    file.write_text(text)
    return ("--policy", str(file))


def payload(method: str, call_id: str = "c1", **params: Any) -> dict[str, Any]:
    return {"call_id": call_id, "capability": method, "method": method, "params": params}


def log_result(daemon: Daemon) -> dict[str, Any]:
    answer = daemon.invoke("a", "calls", calls=[payload("log", message="x")])
    assert answer.ok, answer
    [found] = answer.result["results"]
    result: dict[str, Any] = found
    return result


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_a_module_in_another_language_makes_two_calls_at_a_time(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    node = module("node", ["node", "-e", NODE])
    daemon = start_daemon(node, caller("b"), options=policy(tmp_path))
    answer = daemon.invoke("node", "go")
    assert answer.ok, answer
    assert answer.result == [{"call_id": "x"}, {"call_id": "y"}]


def test_a_module_that_calls_without_the_feature_spoils_no_other_call(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(module("shy", [sys.executable, "-I", "-S", "-c", SHY], concurrency=1))
    answer = daemon.invoke("shy", "call")
    assert answer.error["details"]["reason"] == "unknown_type"
    for number in range(3):
        assert daemon.invoke("shy", "echo", n=number).result == {"n": number}
    assert daemon.status("shy")["restarts"] == 0


def test_a_module_that_calls_and_does_not_read_holds_up_nobody_and_is_replaced(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    deaf = module(
        "deaf",
        [sys.executable, "-I", "-S", "-c", DEAF, "deaf"],
        concurrency=1,
        timeouts=timeouts(invoke_s=10, health_s=2, stop_s=0.1, exit_s=0.1),
    )
    daemon = start_daemon(deaf, caller("b"), options=policy(tmp_path))
    other = daemon.connect()
    flood = daemon.client.send("deaf", "invoke", {"op": "flood", "args": {}})
    for number in range(50):
        assert other.invoke("b", "echo", BOUND_S, n=number).result == {"n": number}
    other.close()
    answer = daemon.client.answer(flood)
    assert answer.error["code"] == "timeout"
    daemon.op("wait", modules=["deaf"])
    assert daemon.invoke("deaf", "echo", n=1).result == {"n": 1}
    assert daemon.status("deaf")["restarts"] >= 1
    assert daemon.peak_bytes() < PEAK_BYTES


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_death_in_the_middle_of_a_call_leaves_nothing_open(
    victim: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    a, b = caller("a", intensity=100), caller("b", intensity=100)
    daemon = start_daemon(a, b, options=policy(tmp_path))
    call = {"op": "calls", "args": {"calls": [payload("invoke", module="b", op="hang")]}}
    open_call = daemon.client.send("a", "invoke", call)
    with daemon.connect() as looker:
        until(lambda: looker.op("status", module="b").result["in_flight"], "the call reaching b")
    os.kill(daemon.pid(victim), signal.SIGKILL)
    answer = daemon.client.answer(open_call)
    if victim == "a":
        assert answer.error["code"] == "unreachable"
    else:
        [result] = answer.result["results"]
        assert result["error"]["code"] == "io"
        assert result["error"]["details"]["code"] == "unreachable"
        assert result["error"]["details"]["reason"] == "signaled"
    daemon.op("wait", modules=["a", "b"])
    assert [daemon.status(one)["in_flight"] for one in "ab"] == [0, 0]
    assert not log_result(daemon)["is_error"]


def test_a_policy_is_read_again_by_a_signal_and_a_bad_one_is_not_used(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    options = policy(tmp_path, 'deny = ["log"]\n')
    daemon = start_daemon(caller("a"), options=options)
    assert log_result(daemon)["error"]["code"] == "denied"

    def reload(number: int) -> dict[str, Any]:
        daemon.process.send_signal(signal.SIGHUP)
        daemon.op("reloaded", number=number)
        found: dict[str, Any] = daemon.op("status")["daemon"]["policy"]
        return found

    policy(tmp_path, 'mode = "permissive"\n')
    assert reload(1)["problem"] is None
    assert log_result(daemon)["is_error"] is False
    policy(tmp_path, 'mode = "lax"\n')
    assert ": mode" in reload(2)["problem"]
    assert log_result(daemon)["is_error"] is False
    words = "the last good one stays in use"
    until(lambda: words in daemon.log(), "a word in the log")
    for dry_run in (True, False):
        assert ": mode" in daemon.op("reload", dry_run=dry_run)["policy_problem"]
    policy(tmp_path, 'mode = "strict"\n')
    assert daemon.op("reload", dry_run=True)["policy_problem"] is None


def test_what_a_module_is_told_of_its_state_is_on_disk(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon(caller("a"), options=policy(tmp_path))
    daemon.op("session.new", session_id="s")
    calls = [payload("session.write", patch={"n": 1}), payload("event.emit", "c2", event="my:own")]
    content = {"op": "calls", "args": {"calls": calls}, "session_id": "s"}
    answer = daemon.client.answer(daemon.client.send("a", "invoke", content))
    assert {one["is_error"] for one in answer.result["results"]} == {False}
    assert daemon.op("session.show", session_id="s")["state"] == {"n": 1}
    seen = daemon.client.op("events", event="my:*", last=100)
    entries = [one["fields"] for one in seen.events if "event" in one.get("fields", {})]
    assert [(one["event"], one["module"], one["session_id"]) for one in entries] == [
        ("my:own", "a", "s")
    ]
