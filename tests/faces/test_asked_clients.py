"""Clients of lines that can be asked in the course of their requests (`"asks"`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from supervisor.faces.questions import OPEN_QUESTIONS
from supervisor.kernel.kernel import Capacity, HeldBounds
from tests.bounds import WAIT_S
from tests.faces.in_process import connected
from tests.faces.lines import Client, request
from tests.kernel.agents import agent
from tests.kernel.conftest import daemon_with, own
from tests.kernel.host_calls import allowing, caller, payload
from tests.principals import ADA

MAY = ["user.ask", "roots.list", "model.sample"]
SAMPLE = payload("model.sample", messages=[{"role": "user", "content": "hello"}])


class Asked:
    """A client of a daemon with the module `a`, which makes the calls it is told to."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def calls(self, *calls: dict[str, Any], asks: Any = MAY, number: str = "r") -> None:
        asking = request(number, "a", op="calls", args={"calls": list(calls)})
        await self.client.send({**asking, "asks": asks})

    async def line(self) -> dict[str, Any]:
        with trio.fail_after(WAIT_S):
            line = await self.client.line()
        assert line is not None
        return line

    async def question(self, number: str = "r") -> dict[str, Any]:
        """Return the payload of the next question."""
        line = await self.line()
        assert (line["version"], line["type"], line["requestId"]) == ("0", "host_call", number)
        found: dict[str, Any] = line["payload"]
        return found

    async def answer(self, number: str, call_id: str, **payload: Any) -> None:
        said = {"call_id": call_id, **payload}
        await self.client.send({"type": "host_result", "requestId": number, "payload": said})

    async def results(self) -> list[dict[str, Any]]:
        """Return what the module got for its calls."""
        done = await self.line()
        assert done["type"] == "done"
        assert done["ok"], done
        found: list[dict[str, Any]] = done["result"]["results"]
        return found


@asynccontextmanager
async def asked(folder: Path, **options: Any) -> AsyncIterator[tuple[Any, Asked]]:
    module = caller(folder, "a", capabilities=MAY)
    async with (
        daemon_with(folder, module, operator=allowing(folder), **options) as daemon,
        connected(daemon) as client,
    ):
        yield daemon, Asked(client)


async def refusal(client: Asked) -> str:
    """Return the words of the refusal of a line."""
    done = await client.line()
    assert (done["type"], done["ok"], done.get("requestId")) == ("done", False, None)
    assert done["error"]["details"]["reason"] == "malformed_request"
    return str(done["error"]["message"])


@pytest.mark.parametrize("call", [payload("roots.list"), SAMPLE], ids=lambda call: call["method"])
async def test_what_a_module_asks_for_its_client_is_asked(
    call: dict[str, Any], tmp_path: Path
) -> None:
    async with asked(tmp_path) as (_, client):
        await client.calls(call)
        question = await client.question()
        assert question == {
            "call_id": "q1",
            "method": call["method"],
            "params": call["params"],
            "key": "c1",
        }
        await client.answer("r", "q1", output={"a": 1}, is_error=False)
        assert await client.results() == [{"call_id": "c1", "output": {"a": 1}, "is_error": False}]


async def test_a_client_that_fails_to_answer_is_a_failed_call_of_the_module(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as (_, client):
        await client.calls(SAMPLE)
        await client.question()
        error = {"code": "denied", "message": "not today"}
        await client.answer("r", "q1", output={}, is_error=True, error=error)
        (result,) = await client.results()
        assert result["error"]["message"] == "the client answered with the error denied: not today"


async def test_a_client_is_asked_only_what_its_request_names(tmp_path: Path) -> None:
    async with asked(tmp_path) as (_, client):
        await client.calls(payload("roots.list"), asks=["model.sample"])
        assert (await client.results())[0]["output"] == {"roots": []}
        await client.calls(payload("roots.list"), asks=["roots.list", "roots.listen"])
        done = await client.line()
        assert (done["requestId"], done["error"]["message"]) == (
            "r",
            "\"asks\" has 'roots.listen', a client may be asked roots.list, user.ask, model.sample",
        )
        await client.calls(payload("roots.list"), asks="roots.list")
        done = await client.line()
        assert done["error"]["message"] == (
            '"asks" of a request is a string, it must be an array of strings'
        )
        nameless = request(None, "a", op="calls", args={"calls": []})
        await client.client.send({**nameless, "asks": MAY})
        assert "needs a" in await refusal(client)


async def test_an_answer_to_a_question_that_is_not_open_is_refused_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as (_, client):
        await client.calls(payload("roots.list"))
        await client.question()
        for number, call_id in (("r", "q2"), ("s", "q1"), ("r", "c1")):
            await client.answer(number, call_id, output={})
            words = await refusal(client)
            assert words == (
                f"no question {call_id!r} of the request {number!r} is open: it was answered,"
                " withdrawn, or never asked"
            )
        await client.answer("r", "q1", output={"roots": []})
        await client.results()
        await client.answer("r", "q1", output={"roots": []})
        assert "no question 'q1'" in await refusal(client)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"payload": {}}, '"requestId" of a host_result is missing, it must be a string'),
    ({"requestId": "r"}, '"payload" of a host_result is missing, it must be an object'),
    ({"requestId": "r", "payload": {}}, '"call_id" of a host_result is missing, it must be a'),
    (
        {"requestId": "r", "payload": {"call_id": "q1", "output": [1]}},
        '"output" of a host_result is an array of 1, it must be an object',
    ),
    (
        {"requestId": "r", "payload": {"call_id": "q1", "is_error": 1}},
        '"is_error" of a host_result is the number 1, it must be true or false',
    ),
    (
        {"requestId": "r", "payload": {"call_id": "q1", "is_error": True, "error": {"code": 1}}},
        '"error" of a host_result is ',
    ),
]


async def test_an_answer_that_cannot_be_read_is_refused_and_the_question_stays(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as (_, client):
        await client.calls(payload("roots.list"))
        await client.question()
        for wrong, _ in WRONG:
            await client.client.send({"type": "host_result", **wrong})
        told = [await refusal(client) for _ in WRONG]
        for words, (_, expected) in zip(told, WRONG, strict=True):
            assert words.startswith(expected[:30]), words
        await client.answer("r", "q1", output={"roots": []})
        assert not (await client.results())[0]["is_error"]


async def test_a_question_whose_time_is_over_is_withdrawn(tmp_path: Path) -> None:
    async with asked(tmp_path) as (_, client):
        await client.calls({**payload("roots.list"), "timeout_ms": 50})
        await client.question()
        withdrawn = await client.line()
        assert withdrawn == {
            "version": "0",
            "type": "host_cancel",
            "requestId": "r",
            "payload": {"call_id": "q1"},
        }
        assert (await client.results())[0]["error"]["code"] == "timeout"


async def test_an_answer_passes_the_requests_that_wait_for_it(tmp_path: Path) -> None:
    bounds = Capacity(held=HeldBounds(party=100_000))
    async with asked(tmp_path, bounds=bounds) as (_, client):
        args = {"calls": [payload("roots.list")], "pad": "x" * 200_000}
        await client.client.send({**request("r", "a", op="calls", args=args), "asks": MAY})
        await client.question()
        await client.client.send(request("late", "a", "health"))  # it holds too much for that
        await client.answer("r", "q1", output={"roots": []})
        assert len(await client.results()) == 1
        assert (await client.line())["requestId"] == "late"


async def test_the_questions_of_a_request_are_over_with_it(tmp_path: Path) -> None:
    async with asked(tmp_path) as (_, client):
        await client.calls(payload("roots.list"))
        await client.question()
        await client.client.send({"requestId": "r", "operation": "cancel"})
        done = await client.line()
        assert (done["type"], done["requestId"], done["ok"]) == ("done", "r", False)
        await client.answer("r", "q1", output={"roots": []})
        assert "no question 'q1'" in await refusal(client)


async def test_more_questions_than_a_client_may_have_fail_and_the_others_stay(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as (_, client):
        many = [payload("roots.list", f"c{number}") for number in range(OPEN_QUESTIONS)]
        await client.calls(*many)
        for _ in many:
            await client.question()
        await client.calls(payload("roots.list"), number="s")
        (result,) = await client.results()
        assert result["error"]["message"] == f"{OPEN_QUESTIONS} questions to the client are open"
        await client.answer("r", "q1", output={"roots": []})
        await client.calls(payload("roots.list"), number="t")
        await client.question("t")


FORM = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}


async def test_a_person_at_the_client_answers_what_a_module_asks_a_person(tmp_path: Path) -> None:
    async with asked(tmp_path) as (daemon, client):
        await client.calls(payload("user.ask", message="Who?", form=FORM))
        assert (await client.line())["event"] == "approval.request"
        question = await client.question()
        assert question["params"] == {"message": "Who?", "form": FORM}
        await client.answer("r", "q1", output={"action": "accept", "content": {"who": 1}})
        again = await client.question()  # that did not fit
        assert (again["call_id"], again["params"]) == ("q2", question["params"])
        await client.answer("r", "q2", output={"action": "accept", "content": {"who": "Ada"}})
        assert (await client.line())["event"] == "approval.decision"
        (result,) = await client.results()
        assert result["output"] == {"action": "accept", "content": {"who": "Ada"}}
        assert daemon.approvals.waiting(ADA) == []


async def test_a_question_that_somebody_else_has_answered_is_withdrawn(tmp_path: Path) -> None:
    async with asked(tmp_path) as (daemon, client):
        await client.calls(payload("user.ask", message="Who?", form=FORM))
        told = await client.line()
        await client.question()
        args = {"id": told["approval"], "content": {"who": "Eve"}}
        assert (await own(daemon, ADA, "approve", **args))["allowed"]
        lines = [await client.line() for _ in range(2)]
        assert {line["type"] for line in lines} == {"host_cancel", "ui_event"}
        assert (await client.results())[0]["output"]["content"] == {"who": "Eve"}


async def test_a_person_who_declines_is_no_allowance(tmp_path: Path) -> None:
    async with asked(tmp_path) as (_, client):
        await client.calls(payload("user.ask", message="Who?", form=FORM))
        await client.line()
        await client.question()
        await client.answer("r", "q1", output={"action": "decline"})
        assert (await client.line())["event"] == "approval.decision"
        assert (await client.results())[0]["output"] == {"action": "decline"}


async def test_the_client_of_a_prompt_is_asked_as_that_of_an_invocation(tmp_path: Path) -> None:
    module = agent(tmp_path, capabilities=["roots.list"])
    async with (
        daemon_with(tmp_path, module, operator=allowing(tmp_path)) as daemon,
        connected(daemon) as stream,
    ):
        client = Asked(stream)
        session = (await own(daemon, ADA, "session.new"))["session_id"]
        prompt = request("r", "supervisor", "session.prompt", session_id=session, content="roots")
        await client.client.send({**prompt, "asks": MAY})
        while (line := await client.line())["type"] != "host_call":
            assert line["type"] == "ui_event"
        assert line["payload"]["method"] == "roots.list"
        await client.answer("r", line["payload"]["call_id"], output={"roots": []})
        while (line := await client.line())["type"] != "done":
            pass
        assert line["result"]["content"] == "False"
