"""What a client of `stdiod mcp` is told of a server that is not there, and of a call that waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.field.conftest import Connect, server
from tests.field.mcp_client import META, NEWER, OLDER
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.test_host_calls import caller, policy

Host = Callable[..., Daemon]

MESSAGE = "notifications/message"
UNSET = "transport.env.KEY uses ${NO_SUCH_KEY}"


def without_key(name: str) -> dict[str, Any]:
    document = server("plain", name=name)
    document["transport"]["env"] = {"KEY": "${NO_SUCH_KEY}"}
    return document


def without_program(name: str) -> dict[str, Any]:
    document = server("plain", name=name)
    return {**document, "transport": {**document["transport"], "command": ["no-such-program"]}}


def disabled(name: str) -> dict[str, Any]:
    return {**server("plain", name=name), "enabled": False}


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (without_key("echoes"), UNSET),
        (without_program("echoes"), "no-such-program"),
        (disabled("echoes"), "echoes is disabled: `stdiod enable echoes` enables it"),
    ],
    ids=["variable", "program", "disabled"],
)
@pytest.mark.parametrize("revision", [OLDER, NEWER])
def test_a_call_of_a_server_that_is_not_there_says_what_invoke_says(
    host: Host, connect: Connect, missing: dict[str, Any], words: str, revision: str
) -> None:
    daemon = host(server("plain", name="echo"), missing, prefix=True)
    client = connect(daemon, revision=revision)
    assert set(client.tools()) == {"echo__echo"}
    said = daemon.invoke("echoes", "echo").error["message"]
    assert words in said
    result = client.call("echoes__echo")["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(said)


def test_no_tool_of_another_module_is_suggested(host: Host, connect: Connect) -> None:
    daemon = host(server("plain", name="echo"), server("slow", name="echos"), prefix=True)
    client = connect(daemon)
    client.tools()
    words = {
        "echos__echo": "there is no tool \"echos__echo\"; did you mean 'echos__slow'?",
        "echos__slo": "there is no tool \"echos__slo\"; did you mean 'echos__slow'?",
        "ech__echo": "there is no tool \"ech__echo\"; did you mean 'echo__echo'?",
    }
    assert {one: client.call(one)["error"]["message"] for one in words} == words


@pytest.mark.parametrize("revision", [OLDER, NEWER])
def test_a_server_that_is_missing_from_the_list_is_named_with_its_cause(
    host: Host, connect: Connect, revision: str
) -> None:
    daemon = host(server("plain"), without_key("weather"), disabled("off"), prefix=True)
    client = connect(daemon, revision=revision)
    level = {"_meta": {**client.meta, f"{META}logLevel": "warning"}}
    client.ask("tools/list", level if revision == NEWER else {})
    told = client.told(MESSAGE)
    assert told["data"].startswith("not listed: weather is ")
    assert UNSET in told["data"]
    assert "off" not in told["data"].split()
    greeted = client.hello if revision == OLDER else client.ask("server/discover")
    assert UNSET in greeted["instructions"]


def test_without_a_prefix_the_missing_servers_stand_behind_an_unknown_tool(
    host: Host, connect: Connect
) -> None:
    client = connect(host(server("plain"), without_key("weather")))
    client.tools()
    assert UNSET in client.call("forecast")["error"]["message"]


@pytest.mark.parametrize(("revision", "token"), [(OLDER, 7), (NEWER, "t"), (OLDER, None)])
def test_a_client_that_cannot_ask_a_person_is_told_who_can(
    start_daemon: StartDaemon,
    tmp_path: Path,
    connect: Connect,
    *,
    revision: str,
    token: int | str | None,
) -> None:
    document = {**caller("a"), "inputs": {"calls": {"type": "object"}}}
    daemon = start_daemon(document, options=policy(tmp_path, 'mode = "prompt"\n'))
    client = connect(daemon, revision=revision)
    host_call = {"call_id": "c1", "method": "log", "params": {"message": "x"}}
    call = {"name": "a__calls", "arguments": {"calls": [host_call]}}
    number = client.send("tools/call", call, token)
    told = client.told(MESSAGE if token is None else "notifications/progress")
    [question] = daemon.op("approvals")["approvals"]
    words = str(told.get("message", told.get("data")))
    assert words.startswith(question["prompt"])
    assert f"`stdiod approve {question['id']}`" in words
    daemon.op("approve", id=question["id"], answer="allow")
    assert "result" in client.answer(number)
