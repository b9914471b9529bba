"""What the daemon says to a client that is an MCP server: views, offers, and whole answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faces.lines import Client, request
from tests.faces.mcp.clients import scripted
from tests.faces.running import Running, started
from tests.faces.test_asked_clients import SAMPLE, asked
from tests.system.descriptors import actor

VIEWS: dict[str, dict[str, Any]] = {
    "some": {"modules": ["kv.echo"], "prefix": False},
    "others": {"for": ["bob"]},
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Running]:
    """A daemon whose tests leave it as it was."""
    modules = actor("ids", name="kv", inputs={"echo": {}, "hang": {}}), scripted("modern")
    with started(*modules, views=VIEWS) as daemon:
        yield daemon


@asynccontextmanager
async def connected(daemon: Running) -> AsyncIterator[Client]:
    async with daemon.lines() as client:
        yield client


async def op(client: Client, op: str, **args: Any) -> dict[str, Any]:
    await client.send(request("r", "supervisor", op, **args))
    return await client.done()


async def test_a_connection_is_narrowed_to_a_view_and_told_which(daemon: Running) -> None:
    async with connected(daemon) as client:
        found = (await op(client, "narrow", view="some"))["result"]
        assert found["view"] == {"name": "some", "modules": ["kv.echo"], "prefix": False}
        assert found["modules"] == ["kv.echo"]
        assert found["pid"] > 0
        assert (await op(client, "narrow", view="some"))["result"]["run"] == found["run"]
        assert len(found["directories"]) == 1
        await client.send(request("r", "kv", op="hang"))
        assert not (await client.done())["ok"]
        again = (await op(client, "narrow", view="default"))["result"]
        assert again["view"] == {"name": "default", "modules": None, "prefix": True}
        assert again["modules"] == ["kv.echo"]


async def test_a_view_that_is_not_there_or_for_others_narrows_nothing(daemon: Running) -> None:
    async with connected(daemon) as client:
        for name in ("none", "others"):
            refused = await op(client, "narrow", view=name, modules=["x"])
            assert refused["error"]["details"]["pointer"] == "/view"
        assert (await op(client, "narrow"))["result"]["modules"] == ["*"]


async def test_a_login_is_narrowed_to_a_view(daemon: Running) -> None:
    async with connected(daemon) as client:
        login = (await op(client, "login.open", uid=0))["result"]["handle"]
        narrowing = request("r", "supervisor", "narrow", view="some")
        await client.send({**narrowing, "as": login})
        assert (await client.done())["result"]["modules"] == ["kv.echo"]
        assert (await op(client, "narrow"))["result"]["modules"] == ["*"]


async def test_offers_say_what_serves_and_what_is_covered(daemon: Running) -> None:
    async with connected(daemon) as client:
        plain = (await op(client, "offers"))["result"]
        assert not {"serves", "ops"} & plain["modules"][0].keys()
        found = (await op(client, "offers", detail=True))["result"]["modules"]
        assert [(one["module"], one["serves"], "ops" in one) for one in found] == [
            ("kv", True, False),
            ("server", True, False),
        ]
        await op(client, "narrow", view="some")
        (only,) = (await op(client, "offers", detail=True))["result"]["modules"]
        assert (only["module"], only["ops"]) == ("kv", ["echo"])


async def test_offers_that_are_known_are_left_out(daemon: Running) -> None:
    async with connected(daemon) as client:
        version = (await op(client, "offers"))["result"]["version"]
        assert (await op(client, "offers", known=version))["result"] == {"version": version}
        assert "modules" in (await op(client, "offers", known=version + 1))["result"]


@pytest.mark.parametrize("mcp", [True, False])
async def test_a_servers_answer_comes_whole_for_an_mcp_client(daemon: Running, mcp: bool) -> None:
    async with connected(daemon) as client:
        await client.send({**request("r", "server", op="draw", args={"n": 1}), "mcp": mcp})
        done = await client.done()
        assert ("content" in done["result"], done.get("whole")) == (True, True if mcp else None)


async def test_a_request_says_by_true_or_false_whether_it_is_for_mcp(daemon: Running) -> None:
    async with connected(daemon) as client:
        await client.send({**request("r", "kv", op="echo"), "mcp": "yes"})
        assert '"mcp" of a request is a string' in (await client.done())["error"]["message"]


@pytest.mark.parametrize("mcp", [True, False])
async def test_what_only_the_client_could_have_answered_is_named(tmp_path: Path, mcp: bool) -> None:
    async with asked(tmp_path) as (_, client):
        call = request("r", "a", op="calls", args={"calls": [SAMPLE]})
        await client.client.send({**call, "mcp": mcp})
        done = await client.client.done()
        assert done.get("needed") == (["model.sample"] if mcp else None)
