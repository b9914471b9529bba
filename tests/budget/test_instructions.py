"""Instructions, where valgrind can count them: what a line costs between pipe and event.

A figure by itself says as much about Python and the processor as about us. So it is a ratio: to
what `json` of the standard library takes to read and write the same lines.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

LINES = 1000
RATIO = 1.0
"""Measured: 0.56."""

PYTHON = (sys.executable, "-S", "-P", "-c")
SURROUNDINGS = {"PYTHONHASHSEED": "0"}
"""And nothing of the user's: each run is to do the same."""

VALGRIND = shutil.which("valgrind")

COMMON = """
import json, os, sys
sys.path[:0] = {path!r}
from protocol.connection import Request
from protocol.descriptor.loading import parse_descriptor
from protocol.dialects.registry import DIALECTS
from protocol.replies import Operation
descriptor = {{"name": "m", "kind": "tool", "capabilities": [],
    "transport": {{"type": "stdio", "command": ["m"]}}}}
made = parse_descriptor(json.dumps(descriptor).encode(), "/m")
connection = DIALECTS["module"].connect(made, str, {{}})
payload = {{"content": " to the sea and back again"}}
event = {{"version": "0", "type": "ui_event", "event": "message.chunk", "payload": payload}}
event = json.dumps({{**event, "requestId": "r0"}}).encode() + b"\\n"
answers = [b'{{"requestId":"r%d","ok":true,"result":{{"n":1}}}}\\n' % n for n in range({lines})]
requests = [Request(f"r{{n}}", Operation.INVOKE, "echo", {{"n": 1}}) for n in range({lines})]
frames = [{{"requestId": one.request_id, "tool": "m", "operation": "invoke",
    "input": {{"op": "echo", "args": {{"n": 1}}}}}} for one in requests]
"""
NOTHING = "pass"
OURS = """
for request, answer in zip(requests, answers):
    connection.ask(request)
    connection.outgoing.take()
    connection.receive_data(answer)
connection.ask(requests[0])
for _ in range({lines} // 100):
    assert len(connection.receive_data(event * 100)) == 100
"""
BY_JSON = """
for frame, answer in zip(frames, answers):
    json.dumps(frame).encode()
    json.loads(answer)
    json.loads(event)
"""


FORKED = """
for work in {works!r}:
    pid = os.fork()
    if not pid:
        exec(work)
        os._exit(0)
    assert os.waitpid(pid, 0) == (pid, 0)
    print(pid)
"""
"""A fork has the count of its parent, so what they share is imported and counted once."""


def program(*works: str) -> str:
    filled = [work.format(lines=LINES) for work in works]
    return (COMMON + FORKED).format(path=sys.path, lines=LINES, works=filled)


def count(*works: str) -> list[int]:
    """Count the instructions of some works, and of all that comes before any of them."""
    assert VALGRIND is not None
    command = [VALGRIND, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run(
        [*command, *PYTHON, program(*works)],
        capture_output=True,
        text=True,
        env=SURROUNDINGS,
        check=True,
    )
    said = dict(re.findall(r"^==(\d+)== I +refs: +([\d,]+)", done.stderr, re.MULTILINE))
    return [int(said[pid].replace(",", "")) for pid in done.stdout.split()]


@pytest.mark.bound(600)  # as slow as valgrind is
@pytest.mark.skipif(VALGRIND is None, reason="valgrind is not installed")
def test_requests_answers_and_events_cost_about_what_json_alone_would() -> None:
    # Uncounted: it has Python compile and keep what the others import.
    subprocess.run([*PYTHON, program()], check=True, env=SURROUNDINGS)
    base, ours, by_json = count(NOTHING, OURS, BY_JSON)
    assert (ours - base) / (by_json - base) <= RATIO
