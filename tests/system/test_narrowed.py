"""A connection or a login that has given up rights: what it may not use looks as if not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.bounds import until
from tests.system.client import Answer, Client
from tests.system.daemon import Daemon, shared
from tests.system.descriptors import misbehaving

Ask = Callable[[Client, str], Answer]

OF_A_MODULE: dict[str, Ask] = {
    "invoke": lambda client, name: client.invoke(name, "echo"),
    "health": lambda client, name: client.ask(name, "health"),
    "describe": lambda client, name: client.ask(name, "describe"),
    "status": lambda client, name: client.op("status", module=name),
    "logs": lambda client, name: client.op("logs", module=name),
    "start": lambda client, name: client.op("start", module=name),
    "stop": lambda client, name: client.op("stop", module=name),
    "restart": lambda client, name: client.op("restart", module=name),
    "wait": lambda client, name: client.op("wait", modules=[name]),
    "record": lambda client, name: client.op("record", module=name),
    "explain": lambda client, name: client.op("policy.explain", module=name, capability="log"),
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    modules = [misbehaving(name) for name in ("seen", "hidden")]
    modules += [misbehaving(name, start="lazy") for name in ("asleep", "hidden-asleep")]
    with shared(*modules) as one:
        yield one


@pytest.fixture(params=["connection", "login"])
def narrowed(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def narrow(**kept: Any) -> Client:
        client = daemon.connect()
        clients.append(client)
        if request.param == "login":
            client.login = client.op("login.open", uid=os.geteuid()).result["handle"]
        assert client.op("narrow", **kept).ok
        return client

    yield narrow
    for client in clients:
        client.close()


def without_name(answer: Answer, name: str) -> str:
    return str(answer.error).replace(name, "NAME")


@pytest.mark.parametrize("asked", OF_A_MODULE)
def test_a_module_that_is_not_its_to_see_is_unknown(
    asked: str, daemon: Daemon, narrowed: Callable[..., Client]
) -> None:
    ask, client = OF_A_MODULE[asked], narrowed(modules=["seen", "asleep"])
    unknown = without_name(ask(client, "nothing"), "nothing")
    assert without_name(ask(client, "hidden"), "hidden") == unknown
    assert "unknown_module" in unknown
    assert "hidden" not in unknown
    assert daemon.status("hidden")["state"] == "ready"


def test_lists_are_of_the_modules_that_are_its_to_see(
    daemon: Daemon, narrowed: Callable[..., Client]
) -> None:
    client = narrowed(modules=["seen", "asleep"])
    assert [one["name"] for one in client.op("status").result["modules"]] == ["asleep", "seen"]
    told = [one["fields"] for one in client.op("events", since=0).events]
    named = {one["module"] for one in told if one.get("module")}
    assert "seen" in named <= {"seen", "asleep"}

    def offered() -> list[str]:
        return [one["module"] for one in client.op("offers").result["modules"]]

    # What it offers is not known before it has been started once, which is asked for here.
    until(lambda: daemon.status("asleep")["state"] == "ready" or not offered(), "its start")
    assert offered() == ["asleep", "seen"]
    assert daemon.status("hidden-asleep")["state"] == "down"


@pytest.mark.parametrize(
    ("scopes", "works", "forbidden"),
    [
        (["read"], ["health", "describe", "status", "logs", "wait"], ["invoke", "stop", "record"]),
        (["invoke"], ["invoke"], ["status", "logs", "stop", "restart"]),
        (["read", "invoke"], ["invoke", "status"], ["start", "stop", "restart"]),
        ([], [], ["invoke", "status", "logs", "stop"]),
    ],
)
def test_without_a_scope_it_may_not_do_what_that_is_for(
    scopes: list[str], works: list[str], forbidden: list[str], narrowed: Callable[..., Client]
) -> None:
    client = narrowed(scopes=scopes)
    assert [one for one in works if not OF_A_MODULE[one](client, "seen").ok] == []
    for one in forbidden:
        answer = OF_A_MODULE[one](client, "seen")
        assert answer.verdict.startswith("forbidden"), (one, answer)
    for op in ("reload", "shutdown", "token.list"):
        assert client.op(op).verdict.startswith("forbidden"), op


def test_what_is_given_up_does_not_come_back(narrowed: Callable[..., Client]) -> None:
    client = narrowed(modules=["seen", "asleep"], scopes=["read", "invoke"])
    assert client.op("narrow", modules=["seen", "hidden"]).ok
    assert client.op("narrow", modules=["*"], scopes=["read", "invoke", "admin"]).ok
    assert [one["name"] for one in client.op("status").result["modules"]] == ["seen"]
    assert not client.op("token.list").ok
    assert client.op("narrow", scopes=[]).ok
    assert not client.op("status").ok


def test_a_part_of_a_module_is_its_ops_and_not_the_module(narrowed: Callable[..., Client]) -> None:
    client = narrowed(modules=["seen.echo"])
    assert client.invoke("seen", "echo", a=1).result == {"a": 1}
    assert client.invoke("seen", "done").verdict.startswith("forbidden")
    assert not client.op("stop", module="seen").ok
    assert [one["name"] for one in client.op("status").result["modules"]] == ["seen"]
