"""An MCP client on lines, of either era, with modules behind it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faces.lines import request
from tests.faces.mcp.clients import META, McpClient, fixtures_document, modern, scripted
from tests.faces.running import Running, running, started
from tests.system.descriptors import actor

OWN = {"own": {"modules": ["fixtures"], "prefix": False}}


@pytest.fixture(scope="module")
def empty() -> Iterator[Running]:
    """A daemon without modules, for the tests that leave it as it was."""
    with started() as daemon:
        yield daemon


@asynccontextmanager
async def client_of() -> AsyncIterator[McpClient]:
    async with running(fixtures_document(), views=OWN) as daemon, daemon.mcp("own") as client:
        yield client


async def test_the_older_era_from_the_handshake_to_a_call() -> None:
    async with client_of() as client:
        early = await client.error("tools/list")
        assert (early["code"], "initialize" in early["message"]) == (-32600, True)
        assert await client.result("ping") == {}
        greeted = await client.initialize("2025-06-18")
        assert greeted["protocolVersion"] == "2025-06-18"
        assert greeted["serverInfo"]["name"] == "stdiod"
        tools = (await client.result("tools/list"))["tools"]
        assert all(one["description"] for one in tools)
        assert tools[0]["name"] == "test_simple_text"
        said = await client.call("test_simple_text")
        assert said["content"][0]["text"].startswith("This is a simple text")
        again = await client.error("initialize", {"protocolVersion": "2025-11-25"})
        assert again["code"] == -32600


async def test_an_unknown_revision_is_answered_with_the_newest_of_the_older_era() -> None:
    async with client_of() as client:
        assert (await client.initialize("1999-01-01"))["protocolVersion"] == "2025-11-25"


async def test_the_newer_era_needs_no_handshake_and_says_so_in_each_result() -> None:
    async with client_of() as client:
        found = await client.result("server/discover", {"_meta": modern()})
        assert found["supportedVersions"][0] == "2026-07-28"
        assert found["resultType"] == "complete"
        assert found["_meta"][f"{META}serverInfo"]["name"] == "stdiod"
        listed = await client.result("tools/list", {"_meta": modern()})
        assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
        assert listed["ttlMs"] >= 0
        call = {"name": "test_simple_text", "_meta": modern()}
        assert (await client.result("tools/call", call))["resultType"] == "complete"
        for old in ("ping", "initialize", "logging/setLevel", "resources/subscribe"):
            assert (await client.error(old, {"_meta": modern()}))["code"] == -32601


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        (None, -32602),
        ({}, -32602),
        ({f"{META}protocolVersion": "2026-07-28"}, -32602),
        ({**modern(), f"{META}protocolVersion": "v999"}, -32022),
        ({**modern(), f"{META}logLevel": "loud"}, -32602),
    ],
)
async def test_a_request_of_the_newer_era_says_all_there_is_to_know(
    meta: Any, code: int, empty: Running
) -> None:
    async with empty.mcp() as client:
        error = await client.error("server/discover", {} if meta is None else {"_meta": meta})
        assert error["code"] == code
        if code == -32022:
            assert error["data"]["requested"] == "v999"
            assert "2026-07-28" in error["data"]["supported"]


async def test_progress_and_logs_are_of_the_request_that_wants_them() -> None:
    async with client_of() as client:
        await client.initialize()
        call = {"name": "test_tool_with_progress", "_meta": {"progressToken": "p"}}
        await client.result("tools/call", call)
        told = [one["params"] for one in client.told if one["method"] == "notifications/progress"]
        assert [(one["progressToken"], one["progress"], one["total"]) for one in told] == [
            ("p", 0, 100),
            ("p", 50, 100),
            ("p", 100, 100),
        ]
        client.told.clear()
        await client.call("test_tool_with_progress")
        await client.call("test_logging_tool")
        assert {one["params"]["level"] for one in client.told} == {"info"}
        assert len(client.told) == 3
        client.told.clear()
        assert await client.result("logging/setLevel", {"level": "error"}) == {}
        await client.call("test_logging_tool")
        quiet = {"name": "test_logging_tool", "_meta": modern()}
        await client.result("tools/call", quiet)
        assert client.told == []
        loud = {"name": "test_logging_tool", "_meta": {**modern(), f"{META}logLevel": "debug"}}
        await client.result("tools/call", loud)
        assert len(client.told) == 3
        assert (await client.error("logging/setLevel", {"level": "loud"}))["code"] == -32602


async def test_failures_are_told_to_the_model_and_mistakes_to_the_client() -> None:
    async with client_of() as client:
        await client.initialize()
        failed = await client.call("test_error_handling")
        assert failed["isError"] is True
        assert "intentionally" in failed["content"][0]["text"]
        invalid = await client.call("test_sampling", prompt=5)
        assert invalid["isError"] is True
        assert "/prompt" in invalid["content"][0]["text"]
        unknown = await client.error("tools/call", {"name": "test_simple_tex"})
        assert unknown["code"] == -32602
        assert "did you mean 'test_simple_text'?" in unknown["message"]
        for params in ({}, {"name": 5}, {"name": "test_simple_text", "arguments": []}):
            assert (await client.error("tools/call", params))["code"] == -32602
        assert (await client.error("no/such"))["code"] == -32601
        for cursor in ("x", 5, [1], {"a": 1}):
            assert (await client.error("tools/list", {"cursor": cursor}))["code"] == -32602


async def test_a_crash_is_told_with_what_it_died_of() -> None:
    module = actor(inputs={"exit": {}})
    async with running(module) as daemon, daemon.mcp() as client:
        await client.initialize()
        died = await client.call("m__exit", code=3, words="out of luck\n")
        assert died["isError"] is True
        assert "out of luck" in died["content"][0]["text"]
        evidence = died["_meta"]["stdiod/error"]
        assert evidence["code"] == "unreachable"
        assert evidence["details"]["exit_code"] == 3


async def test_a_call_is_cancelled_and_not_answered() -> None:
    module = actor(inputs={"hang": {}, "echo": {}})
    async with running(module) as daemon, daemon.mcp() as client:
        await client.initialize()
        await client.result("tools/list")
        await client.say("tools/call", {"name": "m__hang"}, id="h")
        again = {"jsonrpc": "2.0", "id": "h", "method": "ping"}
        await client.client.send(again)
        twice = await client.next()
        assert ("id" in twice, twice["error"]["code"]) == (False, -32600)
        await client.say("notifications/cancelled", {"requestId": "h"})
        await client.say("notifications/cancelled", {"requestId": "x"})
        await client.call("m__echo")
        assert client.told == []


@pytest.mark.fault(47)
async def test_a_cancel_of_true_is_none_of_the_request_1() -> None:
    module = actor(inputs={"late": {}})
    async with running(module) as daemon, daemon.mcp() as client:
        await client.initialize()
        await client.result("tools/list")
        await client.say("tools/call", {"name": "m__late"}, id=1)
        await daemon.has_in_flight(1)
        await client.say("notifications/cancelled", {"requestId": True})
        assert await client.result("ping") == {}
        assert daemon.daemon.status("m")["in_flight"] == 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{\n", -32700),
        (b"\xff\n", -32700),
        (b"[]\n", -32600),
        (b'{"id":1}\n', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}\n', -32600),
    ],
)
async def test_what_is_no_message_is_answered_and_the_next_one_served(
    line: bytes, code: int, empty: Running
) -> None:
    async with empty.mcp() as client:
        await client.client.send(line)
        assert (await client.next())["error"]["code"] == code
        assert await client.result("ping") == {}


async def test_a_client_that_is_gone_has_cancelled() -> None:
    module = actor(inputs={"hang": {}})
    async with running(module) as daemon:
        async with daemon.mcp() as client:
            await client.say("tools/call", {"name": "m__hang", "_meta": modern()}, id="h")
            await daemon.has_in_flight(1)
        await daemon.has_in_flight(0)


async def test_files_come_with_the_answer_or_as_links_that_can_be_read(tmp_path: Path) -> None:
    chart = tmp_path / "chart.txt"
    chart.write_text("a chart")
    line = {"version": "0", "type": "asset", "assetId": "chart", "kind": "text"}
    line |= {"mediaType": "text/plain", "path": str(chart)}
    drawer = actor("no-ids", inputs={"say": {}})
    async with running(drawer, scripted("modern")) as daemon, daemon.mcp() as client:
        await client.initialize()
        drawn = await client.call("server__draw", n=1)
        png = base64.b64encode(b"png").decode()
        assert drawn["content"] == [{"type": "image", "mimeType": "image/png", "data": png}]
        said = [line, {"version": "0", "type": "done", "ok": True, "result": "see there"}]
        linked = await client.call("m__say", lines=[json.dumps(one) for one in said])
        text, link = linked["content"]
        assert (text["text"], link["type"], link["name"]) == ("see there", "resource_link", "chart")
        read = await client.result("resources/read", {"uri": link["uri"]})
        assert read["contents"] == [
            {"uri": link["uri"], "mimeType": "text/plain", "text": "a chart"}
        ]
        error = await client.error("resources/read", {"uri": "stdiod://assets/none"})
        assert (error["code"], error["data"]["uri"]) == (-32602, "stdiod://assets/none")


async def test_a_hosted_server_is_given_back_as_it_is() -> None:
    views = {"own": {"modules": ["server"], "prefix": False}}
    async with (
        running(scripted("legacy"), views=views) as daemon,
        daemon.mcp("own") as client,
    ):
        await client.initialize()
        (drawing, *_) = (await client.result("tools/list"))["tools"]
        schema = {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
        }
        assert drawing["inputSchema"] == schema
        assert drawing["name"] == "draw"
        trace = await client.call("trace")
        assert trace["content"][0]["type"] == "text"
        died = await client.call("die")
        assert died["isError"] is True


async def test_prompts_resources_and_completion_of_a_module() -> None:
    async with client_of() as client:
        await client.initialize()
        prompts = (await client.result("prompts/list"))["prompts"]
        assert prompts[0]["name"] == "test_simple_prompt"
        given = {"arg1": "x", "arg2": "y"}
        got = await client.result(
            "prompts/get", {"name": "test_prompt_with_arguments", "arguments": given}
        )
        assert "arg1='x'" in got["messages"][0]["content"]["text"]
        assert (await client.error("prompts/get", {"name": "none"}))["code"] == -32602
        resources = (await client.result("resources/list"))["resources"]
        assert resources[0]["uri"] == "test://static-text"
        templates = await client.result("resources/templates/list")
        assert len(templates["resourceTemplates"]) == 1
        read = await client.result("resources/read", {"uri": "test://template/5/data"})
        assert '"5"' in read["contents"][0]["text"]
        missing = await client.error("resources/read", {"uri": "test://none"})
        assert (missing["code"], missing["data"]) == (-32602, {"uri": "test://none"})
        for ref in (
            {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
            {"type": "ref/resource", "uri": "test://template/{id}/data"},
        ):
            params = {"ref": ref, "argument": {"name": "arg1", "value": "par"}}
            completed = await client.result("completion/complete", params)
            assert completed["completion"]["values"] == ["paris", "park", "party"]
        assert (await client.error("completion/complete", {"ref": 5}))["code"] == -32602
        wrong = {"ref": {"type": "ref/prompt", "name": "none"}}
        assert (await client.error("completion/complete", wrong))["code"] == -32602
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert await client.result(method, {"uri": "test://watched-resource"}) == {}


async def test_a_view_is_kept_when_called_and_not_only_when_listed() -> None:
    one = actor(name="one", inputs={"echo": {}, "whoami": {}})
    two = actor(name="two", inputs={"echo": {}})
    views = {
        "little": {"modules": ["one.echo"]},
        "none": {"modules": ["three"]},
        "typo": {"modules": ["one.ecko"]},
        "others": {"for": ["bob"]},
    }
    async with running(one, two, views=views) as daemon:
        async with daemon.mcp() as client:
            await client.initialize()
            listed = (await client.result("tools/list"))["tools"]
            assert [tool["name"] for tool in listed] == ["one__echo", "one__whoami", "two__echo"]
        async with daemon.mcp("little") as client:
            await client.initialize()
            listed = (await client.result("tools/list"))["tools"]
            assert [tool["name"] for tool in listed] == ["one__echo"]
            assert (await client.error("tools/call", {"name": "two__echo"}))["code"] == -32602
        async with daemon.mcp("none") as client:
            await client.initialize()
            words = (await client.error("tools/list"))["message"]
            assert "the view none is of three, and no module is that" in words
        async with daemon.mcp("typo") as client:
            await client.initialize()
            words = (await client.error("tools/list"))["message"]
            assert "the view typo is of one.ecko, and no op of a module is that" in words
        async with daemon.lines() as client:
            await client.send(request("a", "supervisor", op="mcp", args={"view": "others"}))
            refused = await client.done()
            assert "there is no view" in refused["error"]["message"]


async def test_changes_are_told_to_both_eras_and_a_name_that_is_gone_says_what_it_was() -> None:
    async with running(scripted("modern")) as daemon, daemon.mcp() as client:
        await client.initialize()
        wanted = {"notifications": {"toolsListChanged": True}, "_meta": modern()}
        await client.say("subscriptions/listen", wanted, id="s")
        first = await client.next()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == {"toolsListChanged": True}
        await client.call("server__grow")
        changes = [one for one in client.told if "list_changed" in one.get("method", "")]
        while len(changes) < 2:
            changes.append(await client.next())
        tagged = [one for one in changes if one["params"]]
        assert [one["method"] for one in tagged] == ["notifications/tools/list_changed"]
        assert tagged[0]["params"]["_meta"] == {f"{META}subscriptionId": "s"}
        names = [one["name"] for one in (await client.result("tools/list"))["tools"]]
        assert "server__grown" in names


async def test_who_may_not_read_is_told_which_scope_it_takes() -> None:
    async with (
        running(fixtures_document()) as daemon,
        daemon.mcp(scopes=["invoke"]) as client,
    ):
        await client.say("initialize", {"protocolVersion": "2025-11-25"}, id=0)
        assert "needs the scope read" in (await client.answer(0))["error"]["message"]
