"""`model.sample`: who answers, by whose choice, with what, and for how long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.kernel.kernel import JournalOptions
from tests.factories import PYTHON, descriptor
from tests.kernel.conftest import LATE, ask, begun, daemon_with
from tests.kernel.host_calls import allowing, caller, error, payload, results
from tests.kernel.noted import invoked, noted
from tests.kernel.test_mcp_servers import served

PROVIDER = str(Path(__file__).with_name("provider.py"))
HI = [{"role": "user", "content": {"type": "text", "text": "hi"}}]


def provider(folder: Path, name: str, result: str = "echo", *options: str) -> Descriptor:
    names = ("messages", *options)
    properties = {one: dict[str, Any]() for one in names}
    complete = {"type": "object", "properties": properties, "additionalProperties": False}
    inputs = {"complete": complete}
    command = [*PYTHON, PROVIDER, name, result]
    return descriptor(folder, command, name=name, kind="provider", inputs=inputs)


def asking(folder: Path, *capabilities: str) -> Descriptor:
    return caller(folder, "a", capabilities=list(capabilities or ("model.sample",)))


def sample(messages: Any = HI, **params: Any) -> dict[str, Any]:
    return payload("model.sample", messages=messages, **params)


async def test_a_provider_answers_and_the_decision_is_in_the_journal(tmp_path: Path) -> None:
    parties = (asking(tmp_path), provider(tmp_path, "p", "echo", "max_tokens"))
    options: dict[str, Any] = {"operator": allowing(tmp_path), "memory": JournalOptions()}
    async with daemon_with(tmp_path, *parties, **options) as daemon:
        messages = [
            *HI,
            {"role": "assistant", "content": [{"type": "text", "text": "a"}] * 2},
        ]
        said = {"systemPrompt": "be brief", "maxTokens": 9, "temperature": 0.5}
        [found] = await results(daemon, sample(messages, **said))
        [decision] = await noted(daemon, "policy:decision")
        completed = await invoked(daemon, "complete")
    output = found["output"]
    assert json.loads(output.pop("content")["text"]) == {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "a\na"},
        ],
        "max_tokens": 9,
    }
    assert output == {"role": "assistant", "model": "m1", "stopReason": "endTurn"}
    assert (decision["status"], decision["module"]) == ("allowed", "a")
    assert decision["data"]["capability"] == "model.sample:p"
    assert completed["data"]["parent_span_id"] == decision["span_id"]


@pytest.mark.parametrize(
    ("listed", "policy", "chosen"),
    [
        ("model.sample", '["model.sample:q"]', "model.sample:q"),
        ("model.sample:p", '["model.sample"]', "model.sample:p"),
        ("model.*", '["model.sample"]\ndeny = ["model.sample:p"]', "model.sample:q"),
    ],
)
async def test_of_several_providers_the_one_that_is_granted_answers(
    listed: str, policy: str, chosen: str, tmp_path: Path
) -> None:
    parties = (asking(tmp_path, listed), provider(tmp_path, "p"), provider(tmp_path, "q"))
    memory = JournalOptions()
    operator = allowing(tmp_path, f"allow = {policy}\n")
    async with daemon_with(tmp_path, *parties, operator=operator, memory=memory) as daemon:
        [found] = await results(daemon, sample())
        assert not found["is_error"]
        decisions = await noted(daemon, "policy:decision")
    assert [one["data"]["capability"] for one in decisions] == [chosen]


async def test_which_of_several_is_not_guessed(tmp_path: Path) -> None:
    parties = (asking(tmp_path), provider(tmp_path, "p"), provider(tmp_path, "q"))
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        [found] = await results(daemon, sample())
        assert '"p", "q"' in error(found, "denied", "forbidden")["message"]
        assert 'allow = ["model.sample:p"]' in found["error"]["message"]


async def test_a_module_that_takes_no_messages_is_none_that_can_answer(tmp_path: Path) -> None:
    other = descriptor(
        tmp_path,
        [*PYTHON, PROVIDER, "o", "echo"],
        name="o",
        kind="provider",
        inputs={"complete": {}},
    )
    async with daemon_with(
        tmp_path, asking(tmp_path), other, operator=allowing(tmp_path)
    ) as daemon:
        [found] = await results(daemon, sample())
        assert "kind provider" in error(found, "invalid_request", "bad_request")["message"]


async def test_what_is_not_granted_is_asked_of_nobody(tmp_path: Path) -> None:
    parties = (asking(tmp_path), provider(tmp_path, "p"), provider(tmp_path, "q"))
    operator = allowing(tmp_path, 'mode = "strict"\n')
    memory = JournalOptions()
    async with daemon_with(tmp_path, *parties, operator=operator, memory=memory) as daemon:
        [found] = await results(daemon, sample())
        error(found, "denied", "forbidden")
        assert daemon.fleet.modules["p"].tally.invocations == 0
        [decision] = await noted(daemon, "policy:decision")
    assert (decision["status"], decision["data"]["capability"]) == ("denied", "model.sample:p")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"messages": ["hi"]},
        {"messages": [{"role": "system", "content": "x"}]},
        {"messages": [{"role": "user", "content": {"type": "image", "data": "eA=="}}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, 3]}]},
        {"messages": HI, "tools": []},
        {"messages": HI, "maxTokens": "9"},
    ],
    ids=str,
)
async def test_what_is_no_text_is_not_sampled(params: dict[str, Any], tmp_path: Path) -> None:
    parties = (asking(tmp_path), provider(tmp_path, "p"))
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        [found] = await results(daemon, payload("model.sample", **params))
        error(found, "invalid_request", "bad_request")


@pytest.mark.parametrize("result", ["{}", "3", '{"content": [3]}'])
async def test_an_answer_without_a_text_is_a_failure_that_names_the_provider(
    result: str, tmp_path: Path
) -> None:
    parties = (asking(tmp_path), provider(tmp_path, "p", result))
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        [found] = await results(daemon, sample())
        assert "p.complete" in error(found, "internal", "internal")["message"]


async def test_it_ends_with_its_request(tmp_path: Path) -> None:
    parties = (asking(tmp_path), provider(tmp_path, "p", "hang"))
    options: dict[str, Any] = {"operator": allowing(tmp_path), "memory": JournalOptions()}
    async with daemon_with(tmp_path, *parties, **options) as daemon:
        handle, asker = begun(daemon, "a", "calls", args={"calls": [sample()], "lines": []})
        while not daemon.fleet.modules["p"].in_flight:
            await trio.lowlevel.checkpoint()
        handle.cancel(LATE)
        assert (await asker.document())["error"]["code"] == "timeout"
        assert (await invoked(daemon, "complete"))["error"]["details"]["reason"] == "parent_ended"


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_a_server_of_either_era_has_its_question_answered(kind: str, tmp_path: Path) -> None:
    parties = (served(tmp_path, kind), provider(tmp_path, "p", '{"text": "Ada"}'))
    async with daemon_with(tmp_path, *parties, operator=allowing(tmp_path)) as daemon:
        document = await ask(daemon, "server", "sample").document()
    said = json.loads(document["result"]["content"][0]["text"])
    content = {"type": "text", "text": "Ada"}
    assert said == {"model": {"role": "assistant", "content": content, "model": "p"}}
