"""Hooks of a real daemon: killed, hung, flooded, broken and removed while others work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import bounds
from tests.kernel.hooks.parties import HOOK
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import descriptor, misbehaving, timeouts
from tests.system.liveness import BOUND_S
from tests.system.test_sessions import patcher, send

PATCHES = 300


def hook(name: str = "h", answers: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a hook that answers as told (hook.py); fields are those of `hook`."""
    command = [sys.executable, "-I", "-S", HOOK, name, json.dumps(answers or {})]
    supervision = {"concurrency": 4, "timeouts": timeouts(stop_s=0.2, exit_s=0.2)}
    made = descriptor(name, command, supervision=supervision)
    return {**made, "kind": "hook", "hook": {"timeout_s": 60, **fields}}


def until(daemon: Daemon, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask for the status of the hook h until something holds; each ask is a turn of the daemon."""

    def found() -> dict[str, Any] | None:
        status = daemon.status("h")
        return status if holds(status) else None

    return bounds.until(found, "a status of h")


def reason(error: dict[str, Any]) -> tuple[str, str]:
    return error["code"], error["details"]["reason"]


def test_a_hook_that_hangs_under_a_flood_is_in_nobodys_way(start_daemon: StartDaemon) -> None:
    hanging = hook(answers={"*": "hang"}, observe=["session:*"], queue=10)
    daemon = start_daemon(patcher("a"), hanging)
    daemon.op("session.new", session_id="s")
    asked = send(daemon, "a", "s", patches=[{"n": n} for n in range(PATCHES)])
    assert daemon.client.answer(asked).ok
    events = daemon.status("h")["hook"]["events"]
    assert events["waiting"] <= 10
    assert events["in_flight"] <= 4
    assert sum(events[one] for one in ("waiting", "in_flight", "dropped")) == PATCHES + 1


def test_a_hook_that_crashes_at_each_event_is_restarted_and_told_of_later_ones(
    start_daemon: StartDaemon,
) -> None:
    crashing = hook(answers={"session:start": "exit"}, observe=["session:*"])
    crashing["supervision"] |= {"intensity": 1000, "backoff": {"initial_s": 0.01}}
    daemon = start_daemon(crashing)
    for number in range(3):
        daemon.op("session.new", session_id=f"s{number}")
    status = until(daemon, lambda one: one["hook"]["events"]["failed"] == 3)
    assert status["hook"]["events"]["delivered"] == 0
    daemon.op("session.end", session_id="s0")
    until(daemon, lambda one: one["hook"]["events"]["delivered"] == 1)


@pytest.mark.parametrize("on_failure", ["closed", "open"])
def test_a_gate_that_is_killed_while_it_is_asked(
    start_daemon: StartDaemon, on_failure: str
) -> None:
    gate = hook(answers={"tool:pre": "hang"}, gate=["tool:pre"], on_failure=on_failure)
    daemon = start_daemon(misbehaving("m"), gate)
    asked = daemon.client.send_invoke("m", "echo", n=1)
    until(daemon, lambda one: one["in_flight"] == 1)
    os.kill(daemon.pid("h"), signal.SIGKILL)
    answer = daemon.client.answer(asked)
    if on_failure == "open":
        assert answer.ok
        assert answer.warnings == ["hook_failed"]
    else:
        assert reason(answer.error) == ("forbidden", "hook")
        assert "SIGKILL" in answer.details["problem"]


def test_a_client_that_goes_away_takes_its_gate_calls_along(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("m"), hook(answers={"*": "hang"}, gate=["tool:pre"]))
    with daemon.connect() as other:
        other.send_invoke("m", "echo", n=1)
        until(daemon, lambda one: one["in_flight"] == 1)
    until(daemon, lambda one: one["in_flight"] == 0)


@pytest.mark.parametrize("answer", ["hang", {"action": "ask_user"}])
@pytest.mark.parametrize("gate", ["tool:pre", "tool:post"])
def test_the_daemons_end_answers_who_waits_for_a_gate(
    start_daemon: StartDaemon, gate: str, answer: Any
) -> None:
    daemon = start_daemon(misbehaving("m"), hook(answers={gate: answer}, gate=[gate]))
    asked = daemon.client.send_invoke("m", "echo", n=1)
    if answer == "hang":
        until(daemon, lambda one: one["in_flight"] == 1)
    else:
        bounds.until(lambda: daemon.op("approvals")["approvals"], "a question")
    daemon.process.send_signal(signal.SIGTERM)
    error = daemon.client.answer(asked).error
    assert reason(error) == ("cancelled", "shutdown")


def test_a_closed_gate_stays_closed_while_its_descriptor_is_bad_and_opens_with_its_removal(
    start_daemon: StartDaemon,
) -> None:
    gate = hook(answers={"*": {"action": "deny", "reason": "no"}}, gate=["tool:pre"])
    daemon = start_daemon(misbehaving("m"), gate)
    path = daemon.modules / "h.json"
    path.write_text(json.dumps({**gate, "hook": {"gat": ["tool:pre"]}}))
    daemon.op("reload")
    assert daemon.status("h")["quarantined"]
    assert reason(daemon.invoke("m", "echo", n=1).error) == ("forbidden", "hook")
    path.unlink()
    daemon.op("reload")
    assert daemon.invoke("m", "echo", n=1).ok


def test_who_invokes_is_told_that_it_waits_and_how_it_is_approved(
    start_daemon: StartDaemon,
) -> None:
    ask = {"action": "ask_user", "approval_prompt": "Really?"}
    daemon = start_daemon(misbehaving("m"), hook(answers={"*": ask}, gate=["tool:pre"]))
    command = [sys.executable, "-P", "-m", "supervisor.cli", "--socket", str(daemon.socket)]
    invoking = subprocess.Popen(
        [*command, "invoke", "m", "echo", "--args", '{"n":1}', "--timeout", str(BOUND_S)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with invoking:
        assert invoking.stderr is not None
        said = invoking.stderr.readline()
        found = re.search(r"Really\? - answer with stdiod approve (ap-[0-9a-f]+) \[--deny\]", said)
        assert found, said
        daemon.op("approve", id=found[1])
        out, said = invoking.communicate(timeout=BOUND_S)
    assert invoking.returncode == 0, said
    assert json.loads(out) == {"n": 1}
    assert "allowed" in said
