"""Clients and hosted servers of either era: each thing that MCP has, in all four combinations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol.trace_context import EXAMPLE, is_traceparent
from tests.faces.mcp.clients import META, McpClient, hosted, modern
from tests.faces.running import PERMISSIVE, running
from tests.system.descriptors import actor

OWN = {"own": {"modules": ["hosted"], "prefix": False}}
NOTE = "note://1"
ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
PERSON = {"action": "accept", "content": {"name": "Ada"}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Ada"}, "model": "m"}
ROOTS = {"roots": [{"uri": "file:///x"}]}
ANSWERS = {
    "elicitation/create": PERSON,
    "sampling/createMessage": SAID,
    "roots/list": ROOTS,
}


class Talk:
    """A client of one era, which answers what it is asked."""

    def __init__(self, client: McpClient, *, is_modern: bool) -> None:
        self.client = client
        self.is_modern = is_modern
        self.can: dict[str, Any] = ALL
        """What it says that it can, in each request of the newer era."""

    async def ask(
        self, method: str, meta: dict[str, Any] | None = None, **params: Any
    ) -> dict[str, Any]:
        """Ask; returns the answer once all questions before it are answered."""
        if self.is_modern:
            params["_meta"] = {**modern(**self.can), f"{META}logLevel": "info", **(meta or {})}
        elif meta:
            params["_meta"] = meta
        while True:
            answer = await self._asked(method, params)
            result = answer.get("result", {})
            if result.get("resultType") != "input_required":
                return answer
            wanted = result["inputRequests"]
            params["inputResponses"] = {key: ANSWERS[one["method"]] for key, one in wanted.items()}
            if "requestState" in result:
                params["requestState"] = result["requestState"]

    async def _asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        await self.client.say(method, params, id="a")
        while True:
            line = await self.client.next()
            if "method" not in line:
                assert line["id"] == "a"
                return line
            if "id" in line:
                answer = {"jsonrpc": "2.0", "id": line["id"], "result": ANSWERS[line["method"]]}
                await self.client.client.send(answer)
            else:
                self.client.told.append(line)

    async def result(self, method: str, **params: Any) -> Any:
        answer = await self.ask(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments}
        return await self.result("tools/call", meta=meta, **params)

    def told(self, method: str) -> list[dict[str, Any]]:
        """Take what was told under a method."""
        found = [one["params"] for one in self.client.told if one["method"] == method]
        self.client.told.clear()
        return found


async def tools(talk: Talk) -> None:
    listed = {one["name"]: one for one in (await talk.result("tools/list"))["tools"]}
    assert listed["add"]["annotations"] == {"readOnlyHint": True}
    assert listed["add"]["outputSchema"]["required"] == ["sum"]
    found = await talk.call("add", a=1, b=2)
    assert found["structuredContent"] == {"sum": 3}
    assert found["content"] == [{"type": "text", "text": '{"sum": 3}'}]


async def what_the_older_era_has_no_form_for(talk: Talk) -> None:
    listed = {one["name"]: one for one in (await talk.result("tools/list"))["tools"]}
    assert ("outputSchema" in listed["many"]) is talk.is_modern
    found = await talk.call("many")
    assert found.get("structuredContent") == ([1] if talk.is_modern else None)
    assert found["content"] == [{"type": "text", "text": "[1]"}]


async def failures(talk: Talk) -> None:
    failed = await talk.call("fail")
    assert (failed["isError"], failed["content"][0]["text"]) == (True, "it failed")
    refused = (await talk.ask("tools/call", name="refuse", arguments={}))["error"]
    assert refused == {"code": -32050, "message": "refused", "data": {"why": "so"}}


async def prompts(talk: Talk) -> None:
    assert [one["name"] for one in (await talk.result("prompts/list"))["prompts"]] == ["greet"]
    got = await talk.result("prompts/get", name="greet", arguments={"who": "Ada"})
    assert got["messages"][0]["content"]["text"] == "Greet Ada"


async def resources(talk: Talk) -> None:
    listed = (await talk.result("resources/list"))["resources"]
    assert [one["uri"] for one in listed] == [NOTE]
    templates = (await talk.result("resources/templates/list"))["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == ["note://{id}"]
    for uri in (NOTE, "note://7"):
        read = await talk.result("resources/read", uri=uri)
        assert read["contents"] == [{"uri": uri, "text": "a note"}]
    missing = (await talk.ask("resources/read", uri="other://1"))["error"]
    assert (missing["code"], missing["message"]) == (-32602, "no such note")


async def completion(talk: Talk) -> None:
    ref = {"type": "ref/prompt", "name": "greet"}
    params = {"ref": ref, "argument": {"name": "who", "value": "A"}}
    assert (await talk.result("completion/complete", **params))["completion"]["values"] == ["Ada"]


async def progress(talk: Talk) -> None:
    await talk.call("progress", meta={"progressToken": "t"})
    told = talk.told("notifications/progress")
    assert [(one["progressToken"], one["progress"], one["total"]) for one in told] == [
        ("t", 1, 2),
        ("t", 2, 2),
    ]
    await talk.call("progress")
    assert talk.told("notifications/progress") == []


async def traces(talk: Talk) -> None:
    heard = json.loads((await talk.call("trace", {"traceparent": EXAMPLE}))["content"][0]["text"])
    assert (heard[:36], heard != EXAMPLE) == (EXAMPLE[:36], True)
    other = await talk.call("trace", {"traceparent": EXAMPLE.upper()})  # it is none: ignored
    assert is_traceparent(heard := json.loads(other["content"][0]["text"]))
    assert heard[:36] != EXAMPLE[:36]


async def logging(talk: Talk) -> None:
    await talk.call("log")
    assert talk.told("notifications/message") == [
        {"level": "warning", "logger": "hosted", "data": "look"}
    ]


async def cancel(talk: Talk) -> None:
    before = json.loads((await talk.call("given_up"))["content"][0]["text"])
    meta = {"progressToken": "h", **(modern() if talk.is_modern else {})}
    params = {"name": "hang", "arguments": {}, "_meta": meta}
    await talk.client.say("tools/call", params, id="hang")
    while (await talk.client.next())["method"] != "notifications/progress":
        pass
    await talk.client.say("notifications/cancelled", {"requestId": "hang"})
    after = json.loads((await talk.call("given_up"))["content"][0]["text"])
    assert after == before + 1


async def questions(talk: Talk) -> None:
    for what, answer in (("person", PERSON), ("model", SAID), ("roots", ROOTS)):
        said = json.loads((await talk.call(f"ask_{what}"))["content"][0]["text"])
        assert {key: said[key] for key in answer} == answer


async def a_client_that_cannot_be_asked(talk: Talk) -> None:
    """In the older era it says so once: `test_what_a_client_cannot_do`."""
    if talk.is_modern:
        talk.can = {}
        refused = (await talk.ask("tools/call", name="ask_model", arguments={}))["error"]
        talk.can = ALL
        assert refused["code"] == -32021
        assert refused["data"] == {"requiredCapabilities": {"sampling": {}}}


async def updates(talk: Talk) -> None:
    other = "other://1"
    if talk.is_modern:
        filter_ = {"resourceSubscriptions": [NOTE, other]}
        params = {"notifications": filter_, "_meta": modern()}
        await talk.client.say("subscriptions/listen", params, id="s")
        acknowledged = (await talk.client.next())["params"]["notifications"]
        assert acknowledged == {"resourceSubscriptions": [NOTE]}
    else:
        assert await talk.result("resources/subscribe", uri=NOTE) == {}
    for below, uri in ((False, NOTE), (True, f"{NOTE}/page")):
        assert json.loads((await talk.call("touch", below=below))["content"][0]["text"]) == [NOTE]
        told = talk.told("notifications/resources/updated")
        while not told:
            line = await talk.client.next()
            told = [line["params"]]
            assert line["method"] == "notifications/resources/updated"
        assert [one["uri"] for one in told] == [uri]
        if talk.is_modern:
            assert told[0]["_meta"] == {f"{META}subscriptionId": "s"}
    if talk.is_modern:
        await talk.client.say("notifications/cancelled", {"requestId": "s"})
    else:
        assert await talk.result("resources/unsubscribe", uri=NOTE) == {}
    while json.loads((await talk.call("touch"))["content"][0]["text"]):
        pass  # the server is told, and does no more
    talk.client.told.clear()


ROWS: tuple[Callable[[Talk], Awaitable[None]], ...] = (
    tools,
    what_the_older_era_has_no_form_for,
    failures,
    prompts,
    resources,
    completion,
    progress,
    traces,
    logging,
    cancel,
    questions,
    a_client_that_cannot_be_asked,
    updates,
)


@asynccontextmanager
async def clients_of(kind: str, way: str = "op") -> AsyncIterator[McpClient]:
    async with (
        running(hosted(kind), views=OWN, policy=PERMISSIVE) as daemon,
        daemon.mcp("own") if way == "op" else daemon.bridge("own") as client,
    ):
        yield client


@pytest.mark.parametrize("server", ["modern", "legacy"])
@pytest.mark.parametrize("client", ["modern", "legacy"])
@pytest.mark.parametrize("way", ["op", "bridge"])
async def test_all_that_mcp_has_passes_from_era_to_era(way: str, client: str, server: str) -> None:
    async with clients_of(server, way) as connected:
        talk = Talk(connected, is_modern=client == "modern")
        if not talk.is_modern:
            await connected.initialize(**ALL)
        for row in ROWS:
            await row(talk)


@pytest.mark.parametrize("server", ["modern", "legacy"])
async def test_what_a_client_cannot_do_or_its_revision_has_not_is_said_in_words(
    server: str,
) -> None:
    async with clients_of(server) as client:
        await client.initialize("2024-11-05")
        unasked = await client.call("ask_model")
        assert unasked["isError"] is True
        assert "model.sample" in unasked["content"][0]["text"]
        linked = await client.call("link")
        assert linked["content"][0]["type"] == "text"
        assert NOTE in linked["content"][0]["text"]


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_another_process_is_asked_again_and_who_follows_is_told(kind: str) -> None:
    async with running(hosted(kind), views=OWN) as daemon, daemon.mcp("own") as client:
        await client.initialize()
        other = await client.error("resources/subscribe", {"uri": "other://1"})
        assert (other["code"], "cannot be followed" in other["message"]) == (-32602, True)
        assert await client.result("resources/subscribe", {"uri": NOTE}) == {}
        daemon.daemon.op("restart", module="hosted")
        while (told := await client.next())["method"] != "notifications/resources/updated":
            pass
        assert told["params"] == {"uri": NOTE}
        while (await client.call("touch"))["content"][0]["text"] == "[]":
            pass  # it is being asked


async def test_a_module_that_is_no_server_says_what_has_changed() -> None:
    inputs: dict[str, Any] = {"say": {}, "resources/read": {}}
    module = actor("no-ids", inputs=inputs)
    update = {"version": "0", "type": "ui_event", "event": "resource.updated"}
    lines: list[dict[str, Any]] = [
        {**update, "payload": {"uri": uri}} for uri in ("note://2", f"{NOTE}/page", NOTE)
    ]
    lines.append({"version": "0", "type": "done", "ok": True})
    async with running(module) as daemon, daemon.mcp() as client:
        await client.initialize()
        assert await client.result("resources/subscribe", {"uri": NOTE}) == {}
        await client.call("m__say", lines=[json.dumps(one) for one in lines])
        updates = [one["params"]["uri"] for one in client.told]
        while len(updates) < 2:
            updates.append((await client.next())["params"]["uri"])
        assert updates == [f"{NOTE}/page", NOTE]


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_a_tool_may_vanish_while_it_is_called_and_what_cannot_be_listed_is_said(
    kind: str,
) -> None:
    async with (
        running(hosted(kind, "no-prompts"), views=OWN) as daemon,
        daemon.mcp("own") as client,
    ):
        await client.initialize()
        unlisted = await client.error("prompts/list")
        assert (unlisted["code"], "no prompts today" in unlisted["message"]) == (-32603, True)
        listed = (await client.result("tools/list"))["tools"]
        assert "vanish" in [one["name"] for one in listed]
        last = await client.call("vanish")
        assert last["content"][0]["text"] == '"gone"'
        changes = [one["method"] for one in client.told] or [(await client.next())["method"]]
        assert changes == ["notifications/tools/list_changed"]
        listed = (await client.result("tools/list"))["tools"]
        assert "vanish" not in [one["name"] for one in listed]
        again = await client.ask("tools/call", {"name": "vanish", "arguments": {}})
        assert again["result"]["isError"] is True
        assert "hosted has no op 'vanish'" in again["result"]["content"][0]["text"]
