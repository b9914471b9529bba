"""What a hosted server adds to MCP: passed on where it is alone, and said where it is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.field.conftest import Connect, server
from tests.field.mcp_client import META, NEWER, OLDER, McpClient
from tests.system.daemon import Daemon
from tests.system.descriptors import descriptor

SERVER = Path(__file__).with_name("extension_server.py")

EXTRAS = {
    "experimental": {"claude/channel": {}},
    "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}},
}
CHANNEL = "notifications/claude/channel"

Host = Callable[..., Daemon]
both_eras = pytest.mark.parametrize("revision", [NEWER, OLDER])


def extended(revision: str = OLDER, name: str = "extended", **capabilities: Any) -> dict[str, Any]:
    said = json.dumps(capabilities or EXTRAS)
    command = [sys.executable, "-I", "-S", str(SERVER), revision, said]
    return descriptor(name, command, protocol="mcp")


def capabilities(client: McpClient, revision: str) -> dict[str, Any]:
    found = client.ask("server/discover") if revision == NEWER else client.hello
    return dict(found["capabilities"])


def log(daemon: Daemon, module: str = "extended") -> str:
    return "\n".join(one["message"] for one in daemon.client.op("logs", module=module).events)


def listen(client: McpClient) -> int:
    """Have a client of the newer era told of what there is."""
    asked = client.send("subscriptions/listen", {"notifications": {}})
    client.told("notifications/subscriptions/acknowledged")
    return asked


@both_eras
@pytest.mark.parametrize("spoken", [NEWER, OLDER])
def test_a_client_of_one_server_is_told_what_that_adds_to_mcp(
    host: Host, connect: Connect, revision: str, spoken: str
) -> None:
    client = connect(host(extended(spoken)), revision=revision)
    told = capabilities(client, revision)
    assert {field: told[field] for field in EXTRAS} == EXTRAS
    assert told["tools"] == {"listChanged": True}


def test_a_notification_of_an_extension_comes_to_a_client_of_the_older_era(
    host: Host, connect: Connect
) -> None:
    clients = [client := connect(daemon := host(extended())), connect(daemon)]
    params = {"content": "ü", "meta": {"chat_id": "5"}, "_meta": {"a": 1}}
    client.call("tell", method=CHANNEL, params=params)
    for one in clients:
        assert one.told(CHANNEL) == {**params, "number": 0}


@pytest.mark.parametrize("spoken", [NEWER, OLDER])
def test_a_notification_of_an_extension_comes_to_a_client_of_the_newer_era_that_listens(
    host: Host, connect: Connect, spoken: str
) -> None:
    client = connect(host(extended(spoken)), revision=NEWER)
    asked = listen(client)
    theirs = {"a": 1, f"{META}subscriptionId": "of the server"}
    client.call("tell", method="codex/event", params={"_meta": theirs})
    told = client.told("codex/event")
    assert told["_meta"] == {"a": 1, f"{META}subscriptionId": asked}


def test_what_mcp_defines_itself_is_not_passed_on_as_of_an_extension(
    host: Host, connect: Connect
) -> None:
    client = connect(host(extended()))
    for method in ("notifications/cancelled", "notifications/tasks/status", "notifications/ours"):
        client.call("tell", method=method)
    client.told("notifications/ours")
    assert client.notifications == []


def test_a_server_that_adds_nothing_has_no_notifications_passed_on(
    host: Host, connect: Connect
) -> None:
    daemon = host(extended(OLDER, tools={}))
    client = connect(daemon)
    client.call("tell", method=CHANNEL)
    client.ask("ping")
    assert client.notifications == []
    assert "extensions" not in capabilities(client, OLDER)
    assert "extensions or experimental" not in log(daemon)


@both_eras
def test_of_several_servers_it_is_not_passed_on_and_the_log_of_each_says_so(
    host: Host, connect: Connect, revision: str
) -> None:
    daemon = host(extended(), server("plain"))
    client = connect(daemon, revision=revision)
    if revision == NEWER:
        listen(client)
    client.call("tell", method=CHANNEL)
    client.ask("tools/list")
    assert not EXTRAS.keys() & capabilities(client, revision).keys()
    assert CHANNEL not in [one["method"] for one in client.notifications]
    said = log(daemon)
    words = "only through a view of this module alone"
    assert said.count(words) == 1
    assert '"claude/channel", "io.modelcontextprotocol/ui"' in said


def test_a_view_of_one_of_several_servers_passes_on_what_that_adds(
    start_daemon: Callable[..., Daemon], connect: Connect, tmp_path: Path
) -> None:
    config = tmp_path / "stdiod.toml"
    config.write_text('[mcp.views.one]\nmodules = ["extended"]\nprefix = false\n')
    daemon = start_daemon(extended(), server("plain"), options=("--config", str(config)))
    client = connect(daemon, "--view", "one")
    assert EXTRAS.items() <= capabilities(client, OLDER).items()
    client.call("tell", method=CHANNEL)
    client.told(CHANNEL)


def test_another_module_that_comes_ends_it(host: Host, connect: Connect) -> None:
    daemon = host(extended())
    client = connect(daemon)
    client.tools()  # it is told of changes to what it knows
    client.call("tell", method=CHANNEL)
    client.told(CHANNEL)
    (daemon.modules / "plain.json").write_text(json.dumps(server("plain")))
    client.told("notifications/tools/list_changed")
    client.call("tell", method=CHANNEL)
    client.ask("tools/list")
    assert client.notifications == []


@pytest.mark.parametrize(
    ("said", "passed_on", "is_told"),
    [
        ({"experimental": {"a": {}, "b": True, "c": None}}, {"experimental": {"a": {}}}, True),
        ({"experimental": None, "extensions": {}}, {}, False),
        ({"experimental": [], "extensions": "x"}, {}, True),
        ({"extensions": {"a": {"long": "x" * (64 << 10)}}}, {}, True),
        ({"extensions": {"a": json.loads('{"a":' * 70 + "{}" + "}" * 70), "b": {}}},
         {"extensions": {"b": {}}}, True),
    ],
)  # fmt: skip
def test_an_odd_capability_never_costs_the_others(
    host: Host,
    connect: Connect,
    said: dict[str, Any],
    passed_on: dict[str, Any],
    is_told: bool,
) -> None:
    daemon = host(extended(OLDER, **said))
    client = connect(daemon)
    told = capabilities(client, OLDER)
    assert {field: told[field] for field in EXTRAS if field in told} == passed_on
    assert ("of its capabilities" in log(daemon)) is is_told
    assert list(client.tools()) == ["tell"]


def test_a_flood_reaches_a_client_that_does_not_read_within_bounds(
    host: Host, connect: Connect
) -> None:
    daemon = host(extended())
    connect(daemon)  # it does not read
    for _ in range(20):
        params = {"text": "x" * 10_000}
        answer = daemon.invoke("extended", "tell", method=CHANNEL, params=params, times=1000)
        assert answer.ok
    held = daemon.op("status")["daemon"]["held_bytes"]
    assert held["total"] < 8 << 20, held
    assert daemon.peak_bytes() < 300 << 20
    client = connect(daemon)
    client.call("tell", method=CHANNEL)
    client.told(CHANNEL)


def test_a_client_that_reads_again_is_told_of_what_comes_then(host: Host, connect: Connect) -> None:
    daemon = host(extended())
    slow = connect(daemon)
    daemon.invoke("extended", "tell", method=CHANNEL, params={"text": "x" * 5000}, times=2000)
    first = slow.told(CHANNEL)
    assert first["number"] == 0

    def last() -> bool | None:
        slow.call("tell", method="notifications/last")
        return any(one["method"] == "notifications/last" for one in slow.notifications) or None

    until(last, "what comes after the flood")


def test_a_notification_that_is_too_long_is_dropped_and_the_rest_goes_on(
    host: Host, connect: Connect
) -> None:
    client = connect(host(extended()))
    client.call("tell", method=CHANNEL, params={"text": "x" * (1 << 20)})
    client.call("tell", method=CHANNEL, params={"text": "short"})
    assert client.told(CHANNEL)["text"] == "short"


@both_eras
def test_a_method_of_an_extension_is_not_found(host: Host, connect: Connect, revision: str) -> None:
    client = connect(host(extended()), revision=revision)
    answer = client.answer(client.send("ui/open", {}))
    assert answer["error"]["code"] == -32601


def test_check_takes_such_a_server_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "extended.json").write_text(json.dumps(extended()))
    command = [sys.executable, "-m", "supervisor.cli", "check", str(tmp_path / "extended.json")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
