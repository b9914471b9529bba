"""A server that ends by itself while nothing is asked of it: no crash, and a call starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.field.conftest import Connect, server
from tests.field.mcp_client import NEWER, OLDER
from tests.system.daemon import Daemon
from tests.system.descriptors import AT_ONCE, descriptor

SERVERS = Path(__file__).with_name("idle_servers.py")

Host = Callable[..., Daemon]


def idle(word: str, name: str = "", **supervision: Any) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", str(SERVERS), word]
    return descriptor(name or word, command, protocol="mcp", supervision=supervision)


def stdiod(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tell_to_end(daemon: Daemon, module: str) -> None:
    os.kill(daemon.pid(module), signal.SIGUSR1)


def asleep(daemon: Daemon, module: str) -> dict[str, Any]:
    """Wait until it has ended while idle, and return its status."""

    def ended() -> dict[str, Any] | None:
        status = daemon.status(module)
        died = status["last_exit"]
        return status if status["state"] == "down" and died["reason"] == "idle" else None

    return until(ended, f"{module} ending while idle")


def crashed(daemon: Daemon, module: str) -> dict[str, Any]:
    """Wait until it was restarted after a crash, and return its status."""
    return until(
        lambda: status if (status := daemon.status(module))["restarts"] else None,
        f"{module} restarted",
    )


@pytest.mark.parametrize("word", ["plain", "closes"])
def test_a_server_that_ends_while_idle_is_down_and_the_next_call_starts_it(
    host: Host, word: str
) -> None:
    daemon = host(idle(word, timeouts={"exit_s": 60}))
    for _ in range(8):  # more often than `intensity` allows of crashes
        tell_to_end(daemon, word)
        status = asleep(daemon, word)
        assert (status["restarts"], status["next_retry_s"]) == (0, None)
        assert status["last_exit"]["exit_code"] == 0
        assert status["last_exit"]["message"] == "exited with code 0 while nothing was asked of it"
        assert daemon.invoke(word, "pid").ok
    assert '"level": "warning"' not in daemon.log()


def test_a_server_that_ends_after_a_time_without_requests_serves_again_and_again(
    host: Host,
) -> None:
    daemon = host(server("idle_exit"))
    for _ in range(3):
        asleep(daemon, "idle_exit")
        assert daemon.invoke("idle_exit", "echo").ok
    assert daemon.status("idle_exit")["restarts"] == 0


def test_a_server_that_ends_after_each_request_serves_each(host: Host) -> None:
    daemon = host(idle("served"))
    pids = set()
    for _ in range(8):
        pids.add(daemon.invoke("served", "pid").result["content"][0]["text"])
        asleep(daemon, "served")
    assert len(pids) == 8


def test_a_probe_is_nothing_that_a_client_asked(host: Host) -> None:
    daemon = host(idle("probed", health={"interval_s": 0.2}))
    assert asleep(daemon, "probed")["restarts"] == 0


def test_a_server_that_ends_as_soon_as_it_is_ready_is_left_down(host: Host) -> None:
    daemon = host(idle("at_once"))
    assert asleep(daemon, "at_once")["restarts"] == 0
    assert daemon.op("wait", modules=["at_once"])["modules"] == {"at_once": "down"}
    assert "-> backoff" not in str(daemon.client.op("events", last=100).events)


@pytest.mark.parametrize("revision", [NEWER, OLDER])
def test_its_tools_are_listed_while_it_is_down_and_a_call_of_one_starts_it(
    host: Host, connect: Connect, revision: str
) -> None:
    daemon = host(idle("plain"))
    tell_to_end(daemon, "plain")
    asleep(daemon, "plain")
    client = connect(daemon, revision=revision)
    assert list(client.tools()) == ["pid"]
    assert daemon.status("plain")["state"] == "down"
    assert int(client.text("pid")) == daemon.pid("plain")


# What stays a crash.


@pytest.mark.parametrize(("word", "said"), [("three", "exited with code 3"), ("stays", "closed")])
def test_another_end_while_idle_stays_a_crash(host: Host, word: str, said: str) -> None:
    daemon = host(idle(word, timeouts={"exit_s": 0.2}))
    tell_to_end(daemon, word)
    assert said in crashed(daemon, word)["last_exit"]["message"]


def test_a_server_that_is_killed_while_idle_is_restarted(host: Host) -> None:
    daemon = host(idle("plain"))
    os.kill(daemon.pid("plain"), signal.SIGTERM)
    assert crashed(daemon, "plain")["last_exit"]["reason"] == "signaled"


def test_an_end_with_0_in_the_middle_of_a_call_fails_the_call_and_is_a_crash(host: Host) -> None:
    daemon = host(idle("midway"))
    answer = daemon.invoke("midway", "pid")
    assert "exited with code 0 before it answered" in answer.error["message"]
    assert crashed(daemon, "midway")["last_exit"]["reason"] == "exited"


def test_an_end_with_0_before_it_is_ready_is_a_failed_start(host: Host) -> None:
    daemon = host(idle("never"))
    status = daemon.status("never")
    assert status["state"] in ("backoff", "failed", "starting")
    assert status["last_exit"]["reason"] == "exited"


def test_with_permanent_in_its_descriptor_it_is_restarted_at_once(host: Host) -> None:
    daemon = host(idle("plain", restart="permanent"))
    tell_to_end(daemon, "plain")
    assert crashed(daemon, "plain")["last_exit"]["reason"] == "exited"


@pytest.mark.parametrize("rule", [{"never_on": [0]}, {"restart_on": [0]}])
def test_a_rule_of_its_descriptor_comes_before_that(host: Host, rule: dict[str, Any]) -> None:
    daemon = host(idle("plain", backoff=AT_ONCE, **rule))
    tell_to_end(daemon, "plain")
    if "restart_on" in rule:
        crashed(daemon, "plain")
        return
    daemon.wait_state("plain", "down")
    assert "never_on has 0" in daemon.invoke("plain", "pid").error["message"]


# What commands and others say of it.


def test_a_stop_keeps_it_down_and_a_start_starts_it(host: Host) -> None:
    daemon = host(idle("plain"))
    tell_to_end(daemon, "plain")
    asleep(daemon, "plain")
    daemon.op("stop", module="plain")
    assert "is stopped" in daemon.invoke("plain", "pid").error["message"]
    assert daemon.op("start", module="plain")["state"] == "ready"


def test_status_and_doctor_say_why_it_is_down_and_call_it_no_trouble(host: Host) -> None:
    daemon = host(idle("plain"))
    tell_to_end(daemon, "plain")
    asleep(daemon, "plain")
    socket = ["--socket", str(daemon.socket)]
    shown = stdiod("status", *socket)
    assert shown.returncode == 0
    assert "exited with code 0 while nothing was asked of it" in shown.stdout
    assert "no module is in trouble" in stdiod("status", "--failing", *socket).stdout
    found = json.loads(stdiod("doctor", "--json", *socket).stdout)["findings"]
    assert {one["level"] for one in found if one["subject"] == "plain"} == {"ok"}
    log = str(daemon.client.op("logs", module="plain").events)
    assert "while nothing was asked of it; its next request starts it" in log


def test_up_takes_a_server_that_has_ended_while_idle_for_one_that_is_up(folder: Path) -> None:
    modules = folder / "modules"
    modules.mkdir()
    (modules / "at_once.json").write_text(json.dumps(idle("at_once")))
    where = ["--socket", str(folder / "socket"), "--data-dir", str(folder / "data")]
    up = stdiod("up", "--http", "off", *where, str(modules))
    stdiod("down", "--socket", str(folder / "socket"))
    assert up.returncode == 0, up
    assert "1 of 1 module ready" in up.stdout


def test_a_module_that_depends_on_it_starts_it_again(host: Host) -> None:
    daemon = host(idle("plain"), idle("plain", "other", start="lazy", depends_on=["plain"]))
    tell_to_end(daemon, "plain")
    asleep(daemon, "plain")
    assert daemon.invoke("other", "pid").ok
    assert daemon.status("plain")["state"] == "ready"


def test_of_several_instances_each_goes_and_the_next_request_starts_them_all(host: Host) -> None:
    daemon = host(idle("plain", instances={"min": 2, "max": 2}))

    def ready(number: int) -> list[int] | None:
        instances = daemon.status("plain")["instances"]
        pids = [one["pid"] for one in instances if one["state"] == "ready"]
        return pids if len(pids) == len(instances) == number else None

    first, second = until(lambda: ready(2), "both instances")
    os.kill(first, signal.SIGUSR1)
    until(lambda: ready(1), "one instance")
    assert daemon.status("plain")["state"] == "ready"
    os.kill(second, signal.SIGUSR1)
    assert asleep(daemon, "plain")["restarts"] == 0
    assert daemon.invoke("plain", "pid").ok
    until(lambda: ready(2), "both again")
