"""`run --stdio`: a daemon is a module like any other, of another daemon too (docs/protocol.md)."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.system.client import Answer
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon, command
from tests.system.descriptors import PATIENT, descriptor, misbehaving, narratoria, write
from tests.system.liveness import BOUND_S, Liveness
from tests.system.test_journal import until_seen

REPOSITORY = Path(__file__).parents[2]


def inner(folder: Path, *documents: dict[str, Any]) -> dict[str, Any]:
    """Return a descriptor of a daemon with these modules."""
    write(folder / "inner", *documents)
    words = command(folder / "inner", folder / "inner-socket", folder / "inner-data", "--stdio")
    return descriptor(
        "inner",
        [*words, "--name", "inner"],
        cwd=str(REPOSITORY),
        supervision={"concurrency": 16, "timeouts": PATIENT},
    )


def nested(daemon: Daemon, module: str, **args: Any) -> Answer:
    """Invoke a module of the inner daemon."""
    content: dict[str, Any] = {"module": module, "op": "go", "args": args}
    return daemon.invoke("inner", "invoke", **content)


def test_an_invocation_goes_through_both_daemons(start_daemon: StartDaemon, folder: Path) -> None:
    daemon = start_daemon(inner(folder, misbehaving("echo"), narratoria("tool")))
    answer = nested(daemon, "echo", fault="event+done", word="hello")
    assert answer.result["word"] == "hello"
    assert [event["message"] for event in answer.events] == ["an event"]
    assert nested(daemon, "tool", word="hello").result == {"word": "hello"}


def test_a_failure_keeps_its_code_and_evidence(start_daemon: StartDaemon, folder: Path) -> None:
    daemon = start_daemon(inner(folder, misbehaving("echo")))
    answer = nested(daemon, "echo", fault="exit", code=3)
    assert answer.error["code"] == "unreachable"
    assert answer.details["origin"] == "module"
    said = answer.details["reported"]  # by the inner daemon, whose word is a module's out here
    assert (said["reason"], said["exit_code"], said["instance"]) == ("exited", 3, "echo#1")
    unknown = nested(daemon, "nobody")
    assert unknown.error["code"] == "bad_request"
    assert unknown.details["reported"]["reason"] == "unknown_module"


def test_a_far_modules_claims_arrive_as_claims_and_the_far_hosts_evidence_as_its_own(
    start_daemon: StartDaemon, folder: Path
) -> None:
    claims = {"origin": "host", "reason": "cgroup_oom", "instance": "inner#1", "pid": 1}
    lies: list[dict[str, Any]] = [
        {"errorCode": "oom", "errorMessage": "no memory", "details": claims, "type": "error"},
        {"type": "done", "ok": False},
    ]
    words = [shlex.quote(json.dumps({"version": "0", **one})) for one in lies]
    liar = descriptor("liar", ["sh", "-c", f"printf '%s\\n' {' '.join(words)}"])
    liar["transport"]["protocol"] = "narratoria"
    daemon = start_daemon(inner(folder, liar, misbehaving("echo")))
    near = daemon.status("inner")["instances"][0]["pid"]

    lied = nested(daemon, "liar")
    died = nested(daemon, "echo", fault="exit", code=3)

    far = lied.details["reported"]
    assert (lied.error["code"], lied.details["origin"], far["origin"]) == ("oom", *["module"] * 2)
    assert far["reported"] == claims
    assert claims.keys() - {"origin"} & {*lied.details, *far} == set()
    assert set(died.details) == {"origin", "reported"}
    evidence = died.details["reported"]
    assert (evidence["origin"], evidence["reason"]) == ("host", "exited")
    assert evidence["instance"] == "echo#1"
    assert evidence["pid"] not in (near, 1)
    assert daemon.status("inner")["last_exit"] is None
    for answer in (lied, died):
        assert until_seen(daemon, "module:invoke", error=answer.error)["module"] == "inner"


def test_the_inner_daemon_answers_for_itself(start_daemon: StartDaemon, folder: Path) -> None:
    daemon = start_daemon(inner(folder, misbehaving("echo")))
    assert daemon.client.ask("inner", "health").result == {"status": "ok"}
    described = daemon.client.ask("inner", "describe").result
    assert described["name"] == "inner"
    assert described["kind"] == "tool"
    assert "invoke" in described["inputs"]
    status = daemon.invoke("inner", "status").result
    assert [one["name"] for one in status["modules"]] == ["echo"]
    assert daemon.invoke("inner", "levitate").verdict == "unsupported_op/unknown_op"


def test_a_hundred_invocations_at_once_find_their_answers(
    start_daemon: StartDaemon, folder: Path
) -> None:
    daemon = start_daemon(inner(folder, misbehaving("echo")))
    client = daemon.client
    asked = {
        client.send_invoke("inner", "invoke", module="echo", op="go", args={"n": n}): n
        for n in range(100)
    }
    for request_id, n in asked.items():
        assert client.answer(request_id).result == {"n": n}


def test_a_cancel_reaches_the_innermost_module(
    start_daemon: StartDaemon, folder: Path, liveness: Liveness
) -> None:
    tool = narratoria("tool")
    tool["transport"]["env"] = {"LIVENESS": str(liveness.path)}
    daemon = start_daemon(inner(folder, tool, misbehaving("echo")))
    client = daemon.client
    request_id = client.send_invoke(
        "inner", "invoke", module="tool", op="go", args={"fault": "gate"}
    )
    (gate,) = liveness.wait_for("gate")
    client.cancel(request_id)
    assert client.answer(request_id).verdict == "cancelled/client"
    gate.wait_gone()
    assert nested(daemon, "echo", word="hello").result == {"word": "hello"}
    assert daemon.status("inner")["restarts"] == 0


def test_the_end_of_its_stdin_ends_it_and_its_modules(
    start_daemon: StartDaemon, folder: Path, liveness: Liveness
) -> None:
    echo = misbehaving("echo", env={"LIVENESS": str(liveness.path)})
    daemon = start_daemon(inner(folder, echo))
    assert nested(daemon, "echo", word="hello").ok
    (process,) = liveness.wait_for("module")
    status = daemon.op("stop", module="inner")
    assert status["last_exit"]["exit_code"] == 0
    process.wait_gone()
    assert len(daemon.processes()) == 0


def test_requests_that_were_written_before_the_end_of_stdin_are_answered(folder: Path) -> None:
    write(folder / "modules", narratoria("tool"))
    words = command(folder / "modules", folder / "socket", folder / "data", "--stdio")
    request = {"requestId": "1", "tool": "tool", "operation": "invoke"}
    line = json.dumps({**request, "input": {"op": "go", "args": {"word": "hello"}}})
    ended = subprocess.run(
        words, input=line.encode() + b"\n", capture_output=True, timeout=BOUND_S, check=True
    )
    (answer,) = ended.stdout.splitlines()
    assert json.loads(answer)["result"] == {"word": "hello"}
