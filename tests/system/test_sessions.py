"""Sessions of a real daemon, over its socket: shared by modules, changed by many at once, ended."""

from __future__ import annotations

import itertools
import sys
from typing import Any

from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import PATIENT, descriptor
from tests.system.liveness import BOUND_S

PATCHER = """
import json, sys
for line in sys.stdin:
    frame = json.loads(line)
    named = {"version": "0", "requestId": frame["requestId"]}
    def say(kind, **fields):
        print(json.dumps({**named, "type": kind, **fields}), flush=True)
    if frame["operation"] == "health":
        say("done", ok=True, result={"status": "ok"})
    elif frame["operation"] == "describe":
        facts = {"name": sys.argv[1], "version": "1", "kind": "tool", "capabilities": []}
        say("done", ok=True, result={**facts, "inputs": {}, "outputs": {}})
    elif frame["input"]["op"] == "patch":
        for patch in frame["input"]["args"]["patches"]:
            say("state_patch", patch=patch)
        say("done", ok=True)
"""
"""Sends the patches it is given; any other op it never answers."""


def patcher(name: str) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", "-c", PATCHER, name]
    return descriptor(name, command, supervision={"concurrency": 64, "timeouts": PATIENT})


def send(daemon: Daemon, module: str, session_id: str, op: str = "patch", **args: Any) -> str:
    content = {"op": op, "args": args, "session_id": session_id, "timeout_s": BOUND_S}
    return daemon.client.send(module, "invoke", content)


def test_modules_share_a_state_and_each_patch_has_a_revision_of_its_own(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(patcher("a"), patcher("b"))
    daemon.op("session.new", session_id="s")
    asked = {
        send(daemon, module, "s", patches=[{module: {str(n): k}} for k in range(3)]): (module, n)
        for n, module in itertools.product(range(50), "ab")
    }
    revisions: list[int] = []
    for request_id in asked:
        answer = daemon.client.answer(request_id)
        assert answer.ok
        own = [event["revision"] for event in answer.events]
        assert own == sorted(own)
        revisions += own
    assert sorted(revisions) == list(range(1, 301))
    shown = daemon.op("session.show", session_id="s")
    expected = {str(n): 2 for n in range(50)}
    assert shown["state"] == {"a": expected, "b": expected}
    assert (shown["revision"], shown["status"], shown["invocations"]) == (300, "idle", 100)
    assert len(shown["history"]) == 100


def test_clients_that_compare_and_set_lose_no_change(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    daemon.op("session.new", session_id="s", state={"n": 0})
    clients = [daemon.connect() for _ in range(4)]
    conflicts = 0
    for _ in range(20):
        # All read, then all write: one of them wins each time.
        seen = [one.op("session.show", session_id="s").result for one in clients]
        sent = [
            one.send(
                "supervisor",
                "invoke",
                {
                    "op": "session.patch",
                    "args": {
                        "session_id": "s",
                        "patch": {"n": shown["state"]["n"] + 1},
                        "if_revision": shown["revision"],
                    },
                },
            )
            for one, shown in zip(clients, seen, strict=True)
        ]
        answers = [one.answer(number) for one, number in zip(clients, sent, strict=True)]
        assert [answer.ok for answer in answers].count(True) == 1
        for answer in answers:
            if not answer.ok:
                conflicts += 1
                assert answer.verdict == "bad_request/revision_conflict"
    shown = daemon.op("session.show", session_id="s")
    assert (shown["state"], shown["revision"], conflicts) == ({"n": 20}, 20, 60)
    for one in clients:
        one.close()


def test_the_end_of_a_session_cancels_what_is_in_flight_and_waits_in_the_queue(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(patcher("a"))
    for name in "st":
        daemon.op("session.new", session_id=name)
    hanging = [send(daemon, "a", "s", "hang") for _ in range(70)]  # more than may run at once
    other = send(daemon, "a", "t", "hang")
    # Ops of one connection are served in the order in which they came.
    assert daemon.op("session.show", session_id="s")["in_flight"] == 70
    ended = daemon.op("session.end", session_id="s")
    assert (ended["cancelled"], ended["status"]) == (70, "ended")
    for request_id in hanging:
        assert daemon.client.answer(request_id).verdict == "cancelled/client"
    assert daemon.op("session.show", session_id="t")["status"] == "busy"
    assert daemon.client.answer(send(daemon, "a", "s")).verdict == "bad_request/session_ended"
    daemon.client.cancel(other)
    assert daemon.client.answer(other).verdict == "cancelled/client"
    assert daemon.op("session.show", session_id="t")["status"] == "cancelled"


def test_a_patch_above_a_limit_is_a_warning_and_the_daemon_goes_on(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(patcher("a"))
    daemon.op("session.new", session_id="s")
    deep: Any = 1
    for _ in range(65):
        deep = {"x": deep}
    patches = [{"n": 1}, {"big": "x" * (1 << 20)}, deep, {"n": None}, {"m": [None, 2]}]
    answer = daemon.client.answer(send(daemon, "a", "s", patches=patches))
    assert answer.ok
    assert answer.warnings == ["patch_refused", "patch_refused"]
    assert [event["revision"] for event in answer.events] == [1, 2, 3]
    assert daemon.op("session.show", session_id="s")["state"] == {"m": [None, 2]}
