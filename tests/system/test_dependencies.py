"""`depends_on`: started in order and when ready, stopped in reverse."""

from __future__ import annotations

import json
import os
import signal

from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving, narratoria
from tests.system.liveness import Liveness


def moves(daemon: Daemon, after: str) -> list[str]:
    """Return the modules that reached a state, in order, as the daemon logged it."""
    lines = [json.loads(line) for line in daemon.log().splitlines()]
    return [
        one["module"] for one in lines if one["event"] == "module state" and one["after"] == after
    ]


def chain() -> list[dict[str, object]]:
    # The names sort against the order they must start in.
    return [
        misbehaving("c", "starting=3"),
        misbehaving("b", "starting=3", depends_on=["c"]),
        misbehaving("a", depends_on=["b", "c"]),
    ]


def test_a_module_starts_when_what_it_depends_on_is_ready_and_stops_before_it(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(*chain())
    daemon.op("wait")
    assert daemon.invoke("a", word="hello").result == {"word": "hello"}
    daemon.end()  # all that was logged is written then
    assert moves(daemon, "starting") == ["c", "b", "a"]
    assert moves(daemon, "ready") == ["c", "b", "a"]
    assert moves(daemon, "down") == ["a", "b", "c"]


def test_a_lazy_module_wakes_what_it_depends_on(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(
        misbehaving("store", start="lazy"),
        misbehaving("shop", start="lazy", depends_on=["store"]),
    )
    assert daemon.status("store")["state"] == "down"
    assert daemon.invoke("shop", word="hello").result == {"word": "hello"}
    daemon.end()
    assert moves(daemon, "ready") == ["store", "shop"]


def test_a_module_waits_for_what_failed_and_says_so(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(
        misbehaving("broken", "start=exit", "code=3", intensity=0, retry_failed_s=3600),
        misbehaving("needy", depends_on=["broken"]),
        narratoria("witness"),
    )
    verdict = daemon.client.op("wait", modules=["needy"])
    assert verdict.verdict == "unreachable/not_ready"
    assert "broken" in verdict.error["message"]
    status = daemon.status("needy")
    assert (status["state"], status["waits_for"]) == ("down", ["broken"])
    assert daemon.invoke("witness").ok


def test_a_dependency_that_crashes_leaves_its_dependants_running(
    start_daemon: StartDaemon, liveness: Liveness
) -> None:
    daemon = start_daemon(*chain())
    daemon.op("wait")
    pid = daemon.pid("a")
    assert daemon.invoke("c", fault="exit").verdict == "unreachable/exited"
    daemon.usable("c")
    assert daemon.invoke("a").ok
    assert daemon.pid("a") == pid


def test_who_runs_while_what_it_depends_on_is_gone_is_told_and_shows_it(
    start_daemon: StartDaemon,
) -> None:
    never_s = 3600
    later = {"initial_s": never_s, "max_s": never_s, "jitter": 0}
    daemon = start_daemon(misbehaving("kv", backoff=later), misbehaving("shop", depends_on=["kv"]))
    daemon.op("wait")
    pid = daemon.pid("shop")
    os.kill(daemon.pid("kv"), signal.SIGKILL)  # again at once
    daemon.usable("kv")
    os.kill(daemon.pid("kv"), signal.SIGKILL)
    daemon.wait_state("kv", "backoff")
    status = daemon.status("shop")
    assert (status["state"], status["missing"], daemon.pid("shop")) == ("ready", ["kv"], pid)
    logged = [event["message"] for event in daemon.client.op("logs", module="shop").events]
    told = "kv, which it depends on, went from ready to backoff: was killed by SIGKILL"
    assert any(told in message for message in logged), logged
    daemon.op("start", module="kv")
    assert daemon.status("shop")["missing"] == []
