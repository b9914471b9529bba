"""What a `prepare` that is under way, or was done, means to a daemon and to those after it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.descriptors import PYTHON, misbehaving
from tests.system.liveness import Liveness


def prepared(fault: str, liveness: Liveness) -> dict[str, Any]:
    """Return a module whose preparation does that."""
    document = misbehaving("one", env={"LIVENESS": str(liveness.path)})
    document["transport"]["prepare"] = [*PYTHON, f"start={fault}"]
    return document


@pytest.mark.fault(2)
@pytest.mark.parametrize("how", ["kill", "stop", "end"])
def test_nothing_of_it_outlives_a_stop_or_the_daemon(
    start_daemon: StartDaemon, liveness: Liveness, how: str
) -> None:
    daemon = start_daemon(prepared("grandchild+escapee+hang", liveness), wait=False)
    members = [
        *liveness.wait_for("module"),
        *liveness.wait_for("grandchild"),
        *liveness.wait_for("escapee"),
    ]
    assert daemon.status("one")["state"] == "preparing"
    if how == "kill":
        daemon.process.kill()
        daemon.process.wait()
    elif how == "stop":
        assert daemon.op("stop", module="one")["state"] == "down"
    else:
        daemon.end()
    for member in members:
        member.wait_gone()
    if how == "kill":
        daemon.client.close()
        daemon.process.returncode = 0  # asked for


def test_its_success_outlives_the_daemon_until_it_is_asked_for_anew(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    document = prepared("stderr+gate", liveness)
    daemon = start_daemon(document, wait=False)
    (gate,) = liveness.wait_for("gate")
    waiting = daemon.client.send("supervisor", "invoke", {"op": "wait", "args": {}})
    told = next(daemon.client.lines())
    assert told["message"].startswith("one is preparing: `stdiod logs -f one`")

    def said() -> dict[str, Any] | None:
        # The process may be there before the daemon knows of it, or has read what it wrote.
        instances = daemon.status("one")["instances"]
        return next((one for one in instances if one.get("last_line") == "the last words"), None)

    shown = until(said, "the last line of the process that prepares")
    assert (shown["id"], shown["state"]) == ("one#1", "preparing")
    gate.release()
    assert daemon.client.answer(waiting).ok
    daemon.end()

    daemon = start_daemon(document)
    assert daemon.status("one")["state"] == "ready"
    assert len(liveness.wait_for("gate")) == 1
    restart = {"op": "restart", "args": {"module": "one", "prepare": True}}
    restarting = daemon.client.send("supervisor", "invoke", restart)
    liveness.wait_for("gate", 2)[1].release()
    assert daemon.client.answer(restarting).result["state"] == "ready"


def test_a_module_without_one_cannot_be_prepared_anew(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("one"))
    answer = daemon.client.op("restart", module="one", prepare=True)
    assert answer.verdict == "bad_request/invalid_args"
    assert answer.error["message"] == "one has no transport.prepare in its descriptor"
    assert daemon.status("one")["instances"][0]["id"] == "one#1"


def test_a_limit_holds_for_it_too(start_daemon: StartDaemon, liveness: Liveness) -> None:
    document = prepared("allocate+hang", liveness)
    document["transport"]["prepare"].append(f"bytes={1 << 29}")
    document["supervision"] |= {"limits": {"memory_bytes": 1 << 27}, "restart": "temporary"}
    daemon = start_daemon(document)
    status = daemon.status("one")
    assert (status["state"], status["last_exit"]["reason"]) == ("down", "memory_limit")
    assert status["last_exit"]["message"].startswith("could not be prepared: ")
