"""A client is asked in the course of its request: in the older era, and with input required."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.faces.mcp.clients import McpClient, fixtures_document, modern
from tests.faces.mcp.test_http import headers_of, message
from tests.faces.running import LOOPBACK, PERMISSIVE, Running, started

VIEWS = {"own": {"modules": ["fixtures"], "prefix": False}}
FORM = {"name": {"type": "string"}}
ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Running]:
    """A daemon with the module that asks; its tests leave it as it was."""
    with started(fixtures_document(), views=VIEWS, policy=PERMISSIVE, http=LOOPBACK) as daemon:
        yield daemon


@pytest.fixture
async def client(daemon: Running) -> AsyncIterator[McpClient]:
    async with daemon.mcp("own") as client:
        yield client


async def asked(client: McpClient) -> dict[str, Any]:
    while "id" not in (line := await client.next()) or "method" not in line:
        pass
    return line


async def test_a_client_of_the_older_era_is_asked_by_requests(client: McpClient) -> None:
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


async def test_what_does_not_fit_the_form_is_asked_again_and_a_no_is_a_no(
    client: McpClient,
) -> None:
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
    client: McpClient,
) -> None:
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
    client: McpClient,
) -> None:
    given = {"user_name": ACCEPTED, "other": ACCEPTED}
    done = (await call(client, GREETED, inputResponses=given))["result"]
    assert done["content"][0]["text"] == "Hello, Ada!"
    wrong = await call(client, GREETED, inputResponses=5)
    assert wrong["error"]["code"] == -32602
    unknown = await client.ask("nope", {"_meta": modern(**ALL), "inputResponses": given})
    assert unknown["error"]["code"] == -32601


async def test_a_state_is_good_once_for_one_request_of_one_client(client: McpClient) -> None:
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


async def test_a_state_is_no_good_to_somebody_else(daemon: Running) -> None:
    ada, bob = await daemon.token(name="ada"), await daemon.token(name="bob")
    async with daemon.tcp() as client:

        async def call(token: str, **more: Any) -> Any:
            asked = message("tools/call", {"name": GREETED, "_meta": modern(**ALL), **more})
            said = [*headers_of(asked).items()]
            return (await client.ask("POST", "/mcp/own", asked, token=token, headers=said)).json

        state = (await call(ada))["result"]["requestState"]
        more = {"requestState": state, "inputResponses": {"user_name": ACCEPTED}}
        assert (await call(bob, **more))["error"]["code"] == -32602
        assert (await call(ada, **more))["result"]["resultType"] == "complete"


async def test_a_client_is_asked_for_what_it_can_and_told_what_it_would_have_to(
    client: McpClient,
) -> None:
    named = "test_input_required_result_capabilities"
    some = (await call(client, named, {"sampling": {}}))["result"]
    assert [one["method"] for one in some["inputRequests"].values()] == ["sampling/createMessage"]
    error = (await call(client, "test_missing_capability", {}))["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"sampling": {}}}
