"""What a token is good for: by HTTP at the address, where nobody may do anything without one."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.system.daemon import Daemon, shared
from tests.system.descriptors import misbehaving

API = "/api/v1"


class Reply(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


def ask(
    daemon: Daemon, method: str, path: str, token: str | None = None, body: Any = None
) -> Reply:
    """Make one request on a connection of its own."""
    where = daemon.op("status")["daemon"]["http"].removeprefix("http://")
    connection = http.client.HTTPConnection(where, timeout=60)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        given = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, json.loads(text) if text else None, given)
    finally:
        connection.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    modules = (misbehaving("seen"), misbehaving("hidden"))
    with shared(*modules, options=("--http", "127.0.0.1:0")) as one:
        yield one


@pytest.fixture(scope="module")
def tokens(daemon: Daemon) -> dict[str, str]:
    given: dict[str, dict[str, Any]] = {
        "usual": {},
        "reader": {"scopes": ["read"]},
        "narrow": {"modules": ["seen"]},
        "op": {"modules": ["seen.echo"]},
        "all": {"scopes": ["read", "invoke", "admin"]},
    }
    return {
        name: daemon.op("token.new", name=name, **more)["token"] for name, more in given.items()
    }


INVOKE = {"op": "echo", "args": {"a": 1}}
HANG = {"op": "done", "args": {}}


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (("usual", "GET", "/health", None), 200),
        (("usual", "GET", "/modules/hidden", None), 200),
        (("usual", "POST", "/modules/seen/invoke", INVOKE), 200),
        (("usual", "POST", "/modules/seen/stop", {}), 403),
        (("usual", "POST", "/reload", {}), 403),
        (("reader", "GET", "/modules/seen", None), 200),
        (("reader", "GET", "/modules/seen/logs", None), 200),
        (("reader", "POST", "/modules/seen/invoke", INVOKE), 403),
        (("narrow", "GET", "/modules/seen", None), 200),
        (("narrow", "GET", "/modules/hidden", None), 404),
        (("narrow", "GET", "/modules/nothing", None), 404),
        (("narrow", "POST", "/modules/seen/invoke", HANG), 200),
        (("narrow", "POST", "/modules/hidden/invoke", INVOKE), 404),
        (("op", "POST", "/modules/seen/invoke", INVOKE), 200),
        (("op", "POST", "/modules/seen/invoke", HANG), 403),
        (("all", "POST", "/modules/seen/restart", {}), 200),
        (("all", "POST", "/reload", {}), 200),
        (("all", "POST", "/sessions", {}), 201),
        (("all", "GET", "/nowhere", None), 404),
        (("all", "DELETE", "/health", None), 405),
        (("all", "POST", "/modules/seen/invoke", {"op": 3}), 400),
    ],
)
def test_a_token_may_do_what_its_scopes_and_globs_say(
    daemon: Daemon, tokens: dict[str, str], request_of: tuple[str, str, str, Any], status: int
) -> None:
    token, method, path, body = request_of
    reply = ask(daemon, method, API + path, tokens[token], body)
    assert reply.status == status, reply.body


@pytest.mark.parametrize("said", [None, "", "nonsense", "stdiod_x_y"])
def test_without_a_token_that_is_one_nothing_is_told(daemon: Daemon, said: str | None) -> None:
    for path in ("/health", "/modules/seen", "/modules/nothing", "/nowhere"):
        reply = ask(daemon, "GET", API + path, said)
        assert reply.status == 401
        assert reply.headers["www-authenticate"].startswith("Bearer")


def test_a_module_that_a_token_does_not_see_is_not_told_from_one_that_is_not_there(
    daemon: Daemon, tokens: dict[str, str]
) -> None:
    for method, rest, body in (("GET", "", None), ("POST", "/invoke", INVOKE)):
        hidden, nothing = (
            ask(daemon, method, f"{API}/modules/{name}{rest}", tokens["narrow"], body)
            for name in ("hidden", "nothing")
        )
        for reply in (hidden, nothing):
            assert reply.status == 404
        assert str(hidden.body["error"]).replace("hidden", "nothing") == str(nothing.body["error"])
    listed = ask(daemon, "GET", f"{API}/modules", tokens["narrow"]).body
    assert [one["name"] for one in listed["modules"]] == ["seen"]


def test_a_token_is_good_until_it_is_revoked_and_its_name_is_free_again(daemon: Daemon) -> None:
    made = daemon.op("token.new", name="brief")
    assert made["scopes"] == ["read", "invoke"]
    assert made["modules"] == ["*"]
    assert ask(daemon, "GET", f"{API}/health", made["token"]).status == 200
    assert ask(daemon, "GET", f"{API}/health", made["token"][:-1]).status == 401
    taken = daemon.client.op("token.new", name="brief")
    assert taken.verdict == "bad_request/invalid_args"
    assert "brief" in [one["name"] for one in daemon.op("token.list")["tokens"]]
    assert made["token"] not in str(daemon.op("token.list"))
    daemon.op("token.revoke", name="brief")
    assert ask(daemon, "GET", f"{API}/health", made["token"]).status == 401
    assert not daemon.client.op("token.revoke", name="brief").ok
    again = daemon.op("token.new", name="brief")["token"]
    assert again != made["token"]
    assert ask(daemon, "GET", f"{API}/health", again).status == 200


def test_a_token_with_a_rate_waits_and_no_other_does(daemon: Daemon) -> None:
    slow = daemon.op("token.new", name="slow", rate_per_s=0.001)["token"]
    quick = daemon.op("token.new", name="quick")["token"]
    replies = [ask(daemon, "GET", f"{API}/health", slow) for _ in range(3)]
    assert replies[0].status == 200
    refused = replies[-1]
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) > 1
    assert ask(daemon, "GET", f"{API}/health", quick).status == 200


def test_nobody_gives_a_token_more_than_he_has(daemon: Daemon) -> None:
    with daemon.connect() as client:
        assert client.op("narrow", scopes=["admin", "read"]).ok
        assert client.op("token.new", name="more", scopes=["invoke"]).verdict.startswith("forbid")
        assert client.op("token.new", name="same", scopes=["read"]).ok
