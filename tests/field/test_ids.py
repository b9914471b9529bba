"""Ids are whole numbers towards servers, and an answer under another id is told of, not lost."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.field.conftest import Connect, server
from tests.field.mcp_client import NEWER, OLDER
from tests.field.odd_servers import IDS, odd
from tests.system.daemon import Daemon

Host = Callable[..., Daemon]

TAKEN = ("string", "float")
SHOWN = {
    "zero": "answered id 0",
    "null": "answered id null",
    "absent": "answered without an id",
    "other": "answered id 1004",
    "words": 'answered id "id-4"',
    "list": "answered id [4]",
}


@pytest.mark.parametrize("how", ["zero", "parse", "exit"])
@pytest.mark.parametrize("revision", [OLDER, NEWER])
def test_a_server_that_has_a_number_where_the_id_stands_serves(
    host: Host, connect: Connect, how: str, revision: str
) -> None:
    client = connect(host(server("intids", how)), revision=revision)
    said = json.loads(client.text("echo", a="x"))
    assert said["arguments"] == {"a": "x"}
    assert type(said["_meta"]["progressToken"]) is int


def test_the_handshake_fails_at_once_with_the_id_that_came_and_the_id_that_was_asked(
    host: Host,
) -> None:
    daemon = host(*[odd("ids", how) for how in IDS])
    for how in IDS:
        answer = daemon.invoke(how, "echo")
        if how in TAKEN:
            assert answer.result == {"content": [{"type": "text", "text": "hi"}]}
        else:
            shown = {"first": "answered id 1"}.get(how, SHOWN.get(how, ""))
            words = shown.replace("4", "2") + "; the request has id 2"
            assert words in answer.error["message"], how


def test_so_does_the_only_call_and_it_is_not_served_by_what_came(host: Host) -> None:
    daemon = host(*[odd("ids", how, "calls") for how in SHOWN])
    for how, shown in SHOWN.items():
        error = daemon.invoke(how, "echo").error
        assert error["message"] == f"the server {shown}; the request has id 4", how
        assert error["details"]["reason"] == "invalid_event"


def test_an_mcp_client_is_told_of_each_such_answer_at_once(host: Host, connect: Connect) -> None:
    client = connect(host(odd("ids", "zero", "calls")))
    assert client.tools().keys() == {"echo", "silent"}
    for number in (4, 5):
        assert client.text("echo") == f"the server answered id 0; the request has id {number}"


def test_an_id_as_a_string_or_with_a_fraction_is_taken_and_told_of_once(host: Host) -> None:
    daemon = host(*[odd("ids", how, "calls") for how in TAKEN])
    for how in TAKEN:
        for told in (["odd_message"], []):
            answer = daemon.invoke(how, "echo")
            assert answer.ok
            assert answer.warnings == told


@pytest.mark.parametrize(("how", "shown"), [("first", "answered id 1"), ("zero", "answered id 0")])
def test_where_it_may_be_the_answer_to_another_request_the_deadline_tells_of_it(
    host: Host, how: str, shown: str
) -> None:
    daemon = host(odd("ids", how, "calls"))
    other = daemon.client.send_invoke(how, "silent")
    error = daemon.invoke(how, "echo", timeout_s=1).error
    assert error["code"] == "timeout"
    assert error["message"].endswith(f"; the server {shown}; the open requests have ids 4, 5")
    daemon.client.cancel(other)
    error = daemon.invoke(how, "echo", timeout_s=1).error
    assert (error["code"], shown in error["message"]) == ("timeout", how == "zero")
