"""Calls of an MCP server at the same time, how long each may take, and what it waits for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.field.conftest import Connect, server
from tests.system.client import Answer, Client
from tests.system.daemon import Daemon
from tests.system.descriptors import descriptor

SERIAL = str(Path(__file__).with_name("serial_server.py"))
MINUTE_S = 60.0
SHORT_S = 0.1

Host = Callable[..., Daemon]


def serial(folder: Path, *words: str, **supervision: Any) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", SERIAL, str(folder), *words]
    return descriptor("zoo", command, protocol="mcp", supervision=supervision)


def begun(folder: Path, name: str) -> None:
    """Wait until the server has begun with a call."""
    told = folder / "begun"
    until(lambda: told.exists() and name in told.read_text().split(), f"{name} being begun")


def answer(client: Client, op: str, **content: Any) -> Answer:
    return client.answer(client.send("zoo", "invoke", {"op": op, "args": {}, **content}))


def test_two_clients_have_one_server_work_for_both_at_the_same_time(
    host: Host, connect: Connect, tmp_path: Path
) -> None:
    daemon = host(serial(tmp_path, "parallel"))
    one, other = connect(daemon), connect(daemon)
    first = one.send("tools/call", {"name": "meet", "arguments": {}})
    assert other.text("meet") == "meet"
    assert one.answer(first)["result"]["content"][0]["text"] == "meet"


def test_who_waits_for_another_call_is_told_for_which_one(host: Host, tmp_path: Path) -> None:
    daemon = host(serial(tmp_path, concurrency=1))
    daemon.client.send_invoke("zoo", "hold")
    begun(tmp_path, "hold")
    late = answer(daemon.client, "fast", timeout_s=SHORT_S)
    assert late.verdict == "timeout/deadline"
    assert re.fullmatch(
        r"zoo\.fast was not begun in 0\.1 s; it was still waiting for its turn: it waits for "
        r"hold of zoo, concurrency 1 \(\d+ s so far\)",
        late.error["message"],
    )
    assert late.details["waits_for_op"] == "hold"


def test_who_waits_for_a_call_that_was_given_up_is_told_for_which_one(
    host: Host, tmp_path: Path
) -> None:
    patient = {"health_s": MINUTE_S}
    daemon = host(serial(tmp_path, concurrency=1, timeouts=patient))
    held = daemon.client.send_invoke("zoo", "hold")
    begun(tmp_path, "hold")
    daemon.client.cancel(held)
    assert daemon.client.answer(held).verdict == "cancelled/client"
    late = answer(daemon.client, "fast", timeout_s=SHORT_S)
    assert "it waits for hold of zoo, concurrency 1" in late.error["message"]


def test_an_mcp_client_is_told_it_too(host: Host, connect: Connect, tmp_path: Path) -> None:
    daemon = host(serial(tmp_path, concurrency=1, timeouts={"invoke_s": 1}))
    daemon.client.send_invoke("zoo", "hold")
    begun(tmp_path, "hold")
    assert "waits for hold of zoo, concurrency 1" in connect(daemon).text("fast")


def test_who_waits_for_a_start_is_told_so(host: Host) -> None:
    lazy: dict[str, Any] = {"start": "lazy", "timeouts": {"start_s": MINUTE_S}}
    daemon = host(server("slowstart", "1000", **lazy))
    late = daemon.invoke("slowstart", "echo", timeout_s=SHORT_S)
    assert late.error["message"] == (
        f"slowstart.echo was not begun in {SHORT_S:g} s; "
        "it waits for slowstart to start: slowstart is starting"
    )


def test_a_slow_start_names_the_timeout_that_allows_more(host: Host, connect: Connect) -> None:
    timeouts = {"start_s": SHORT_S, "stop_s": SHORT_S, "exit_s": SHORT_S}
    daemon = host(server("slowstart", "1000", timeouts=timeouts))
    words = "supervision.timeouts.start_s allows more"
    assert words in daemon.status("slowstart")["last_exit"]["message"]
    assert words in daemon.invoke("slowstart", "echo").error["message"]
    client = connect(daemon)
    assert words in client.answer(client.send("tools/list"))["error"]["message"]


@pytest.mark.parametrize("size", [10, 60_000], ids=["small", "more than the pipe takes"])
def test_calls_that_are_given_up_cost_a_serial_server_nothing_that_it_is_at(
    host: Host, tmp_path: Path, size: int
) -> None:
    often = {"interval_s": 0.05, "failures": 1000}  # a slow machine misses some while it is idle
    daemon = host(serial(tmp_path, health=often, timeouts={"health_s": 1}))
    pid = daemon.pid("zoo")
    held = daemon.client.send_invoke("zoo", "hold")
    begun(tmp_path, "hold")
    content = {"op": "fast", "args": {"x": "x" * size}, "timeout_s": SHORT_S}
    for _ in range(3):
        late = [daemon.client.send("zoo", "invoke", content) for _ in range(20)]
        ends = {daemon.client.answer(one).verdict for one in late}
        assert ends == {"timeout/deadline"}
    (tmp_path / "release").touch()
    assert daemon.client.answer(held).result["content"][0]["text"] == "hold"
    assert daemon.invoke("zoo", "fast").ok
    assert (daemon.pid("zoo"), daemon.status("zoo")["restarts"]) == (pid, 0)


def test_a_call_behind_one_that_was_given_up_is_not_handed_to_a_server_in_doubt(
    host: Host, tmp_path: Path
) -> None:
    daemon = host(serial(tmp_path, timeouts={"health_s": SHORT_S}))
    pid = daemon.pid("zoo")
    held = daemon.client.send_invoke("zoo", "hold")
    begun(tmp_path, "hold")
    daemon.client.cancel(held)
    assert daemon.invoke("zoo", "fast").ok  # by another process: that one never answered a probe
    assert daemon.pid("zoo") != pid
