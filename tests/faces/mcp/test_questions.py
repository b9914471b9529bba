"""A client is asked in the course of its request: in the older era, and with input required."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from supervisor.faces.mcp import questions
from supervisor.faces.mcp.server import McpServer
from supervisor.policy.mcp_views import McpOptions, View
from supervisor.policy.principals import Principal
from tests.faces.mcp.clients import McpClient, modern
from tests.faces.mcp.in_process import fixtures, in_flight, mcp_client
from tests.kernel.conftest import daemon_with
from tests.kernel.host_calls import allowing

OWN = View("own", ("fixtures",), prefix=False)
FORM = {"name": {"type": "string"}}
ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}


@asynccontextmanager
async def client_of(folder: Path) -> AsyncIterator[McpClient]:
    operator = allowing(folder)
    views = {"own": OWN}
    async with (
        daemon_with(folder, fixtures(folder), mcp=McpOptions(views), operator=operator) as daemon,
        mcp_client(daemon, "own") as client,
    ):
        yield client


async def asked(client: McpClient) -> dict[str, Any]:
    while "id" not in (line := await client.next()) or "method" not in line:
        pass
    return line


async def test_a_client_of_the_older_era_is_asked_by_requests(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        await client.initialize(**ALL)
        answers: dict[str, Any] = {
            "elicitation/create": ACCEPTED,
            "sampling/createMessage": SAID,
            "roots/list": {"roots": [{"uri": "file:///x"}]},
        }
        call = {"name": "test_input_required_result_multiple_inputs"}
        await client.say("tools/call", call, id="c")
        for _ in answers:
            question = await asked(client)
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": answers[question["method"]]}
            await client.client.send(answer)
        text = (await client.answer("c"))["result"]["content"][0]["text"]
        assert all(word in text for word in ("Ada", "Paris", "file:///x"))


async def test_what_does_not_fit_the_form_is_asked_again_and_a_no_is_a_no(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        await client.initialize(**ALL)
        await client.say("tools/call", {"name": "test_streaming_elicitation"}, id="c")
        for content in ({"nome": "Ada"}, None):
            question = await asked(client)
            assert question["params"]["requestedSchema"]["properties"] == FORM
            result = {"action": "decline"} if content is None else {**ACCEPTED, "content": content}
            await client.client.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
        text = (await client.answer("c"))["result"]["content"][0]["text"]
        assert text == "Hello, None!"


async def call(client: McpClient, name: str, can: Any = None, **more: Any) -> Any:
    params = {"name": name, "_meta": modern(**(ALL if can is None else can)), **more}
    return await client.ask("tools/call", params)


GREETED = "test_input_required_result_elicitation"


async def test_a_question_ends_a_request_of_the_newer_era_until_it_is_answered(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path) as client:
        first = (await call(client, GREETED))["result"]
        assert first["resultType"] == "input_required"
        question = first["inputRequests"]["user_name"]
        assert question["method"] == "elicitation/create"
        again = (await call(client, GREETED, requestState=first["requestState"]))["result"]
        assert again["requestState"] != first["requestState"]
        more = {"requestState": again["requestState"], "inputResponses": {"user_name": ACCEPTED}}
        done = (await call(client, GREETED, **more))["result"]
        assert (done["resultType"], done["content"][0]["text"]) == ("complete", "Hello, Ada!")


async def test_answers_may_come_before_the_questions_and_more_than_was_asked(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path) as client:
        given = {"user_name": ACCEPTED, "other": ACCEPTED}
        done = (await call(client, GREETED, inputResponses=given))["result"]
        assert done["content"][0]["text"] == "Hello, Ada!"
        wrong = await call(client, GREETED, inputResponses=5)
        assert wrong["error"]["code"] == -32602
        unknown = await client.ask("nope", {"_meta": modern(**ALL), "inputResponses": given})
        assert unknown["error"]["code"] == -32601


async def test_a_state_is_good_once_for_one_request_of_one_client(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        state = (await call(client, GREETED))["result"]["requestState"]
        for bad in (f"{state}x", "x", 5, state[:-1]):
            refused = await call(client, GREETED, requestState=bad)
            assert refused["error"]["code"] == -32602
        other = "test_input_required_result_sampling"
        assert "error" in await call(client, other, requestState=state)
        assert "error" in await call(client, GREETED, requestState=state, arguments={"z": 1})
        empty = {"requestState": state, "inputResponses": {"user_name": {}}}
        state = (await call(client, GREETED, **empty))["result"]["requestState"]
        more = {"requestState": state, "inputResponses": {"user_name": ACCEPTED}}
        assert "result" in await call(client, GREETED, **more)
        assert "error" in await call(client, GREETED, **more)


async def test_a_request_whose_client_does_not_come_back_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "PARKED", 1)
    async with client_of(tmp_path) as client:
        first = (await call(client, GREETED))["result"]["requestState"]
        second = (await call(client, GREETED))["result"]["requestState"]
        assert "error" in await call(client, GREETED, requestState=first)
        more = {"requestState": second, "inputResponses": {"user_name": ACCEPTED}}
        assert "result" in await call(client, GREETED, **more)


async def test_a_state_is_no_good_to_somebody_else(tmp_path: Path) -> None:
    options = McpOptions({"own": OWN})
    module = fixtures(tmp_path)
    async with (
        daemon_with(tmp_path, module, mcp=options, operator=allowing(tmp_path)) as daemon,
        mcp_client(daemon, "own") as ada,
        mcp_client(daemon, "own", Principal("bob", "test")) as bob,
    ):
        state = (await call(ada, GREETED))["result"]["requestState"]
        more = {"requestState": state, "inputResponses": {"user_name": ACCEPTED}}
        assert (await call(bob, GREETED, **more))["error"]["code"] == -32602
        assert (await call(ada, GREETED, **more))["result"]["resultType"] == "complete"


async def test_a_state_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PARKED_S", 0.0)
    options = McpOptions({"own": OWN})
    module = fixtures(tmp_path)
    async with (
        daemon_with(tmp_path, module, mcp=options, operator=allowing(tmp_path)) as daemon,
        mcp_client(daemon, "own") as client,
    ):
        state = (await call(client, GREETED))["result"]["requestState"]
        while McpServer.of(daemon).parked._all:
            await trio.testing.wait_all_tasks_blocked()
        more = {"requestState": state, "inputResponses": {"user_name": ACCEPTED}}
        assert (await call(client, GREETED, **more))["error"]["code"] == -32602
        while in_flight(daemon, "fixtures"):
            await trio.testing.wait_all_tasks_blocked()


async def test_a_client_is_asked_for_what_it_can_and_told_what_it_would_have_to(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path) as client:
        named = "test_input_required_result_capabilities"
        some = (await call(client, named, {"sampling": {}}))["result"]
        assert [one["method"] for one in some["inputRequests"].values()] == [
            "sampling/createMessage"
        ]
        error = (await call(client, "test_missing_capability", {}))["error"]
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"sampling": {}}}
