"""`user.ask` and `roots.list`: what a module asks for, under the rules of capabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from protocol.descriptor.model import McpTransport
from protocol.host_events import ApprovalUiEvent
from supervisor.kernel.kernel import JournalOptions, Kernel, RefusedError
from tests.kernel.conftest import Asker, ask, daemon_with, nothing, run_op
from tests.kernel.host_calls import allowing, caller, error, payload, question, result, results
from tests.kernel.noted import noted

FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 1}},
    "required": ["name"],
}
MAY = ["user.ask", "roots.list"]


def begin(daemon: Kernel, **params: Any) -> Asker:
    calls = [payload("user.ask", message="Who?", **params)]
    return ask(daemon, "a", "calls", args={"calls": calls, "lines": []})


async def approve(daemon: Kernel, **args: Any) -> dict[str, Any]:
    id_ = (await question(daemon))["id"]
    found: dict[str, Any] = await run_op(daemon, "approve", {"id": id_, **args}, nothing)
    return found


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (
            {"content": {"name": "Ada", "age": "36"}},
            {"action": "accept", "content": {"name": "Ada", "age": 36}},
        ),
        ({"answer": "deny"}, {"action": "decline"}),
    ],
    ids=str,
)
async def test_what_a_person_fills_in_gets_to_the_module_and_into_no_journal(
    args: dict[str, Any], output: Any, tmp_path: Path
) -> None:
    module = caller(tmp_path, "a", capabilities=MAY)
    async with daemon_with(
        tmp_path, module, operator=allowing(tmp_path), memory=JournalOptions()
    ) as daemon:
        asker = begin(daemon, form=FORM)
        asked = await question(daemon)
        assert (asked["prompt"], asked["asked_by"], asked["form"]) == ("Who?", "module a", FORM)
        with pytest.raises(RefusedError, match="whole number") as refused:
            await approve(daemon, content={"name": "Ada", "age": "old"})
        assert refused.value.failure.details["reason"] == "invalid_args"
        await approve(daemon, **args)
        found = await result(asker)
        assert found["output"] == output
        told = [one for one in asker.events if isinstance(one, ApprovalUiEvent)]
        assert [one.event for one in told] == ["approval.request", "approval.decision"]
        assert "Ada" not in str([one.payload for one in told])
        kept = await noted(daemon, "approval:decision")
        assert len(kept) == 1
        assert "Ada" not in str(kept)


@pytest.mark.parametrize(
    ("params", "args", "words"),
    [
        ({}, {"content": {"a": "b"}}, "no form"),
        ({"form": FORM}, {"answer": "deny", "content": {"a": "b"}}, "has no form to fill in"),
        ({"form": FORM}, {}, "wants"),
    ],
    ids=str,
)
async def test_an_answer_that_does_not_fit_its_question_leaves_it_open(
    params: dict[str, Any], args: dict[str, Any], words: str, tmp_path: Path
) -> None:
    module = caller(tmp_path, "a", capabilities=MAY)
    async with daemon_with(tmp_path, module, operator=allowing(tmp_path)) as daemon:
        asker = begin(daemon, **params)
        with pytest.raises(RefusedError, match=words):
            await approve(daemon, **args)
        await approve(daemon, answer="deny")
        assert (await result(asker))["output"] == {"action": "decline"}


async def test_a_daemon_that_stops_cancels_its_questions(tmp_path: Path) -> None:
    module = caller(tmp_path, "a", capabilities=MAY)
    async with daemon_with(tmp_path, module, operator=allowing(tmp_path)) as daemon:
        asker = begin(daemon)
        await question(daemon)
        daemon.shut_down("a test")
        await daemon.stop_fleet()
        assert (await result(asker))["output"] == {"action": "cancel"}


async def test_roots_are_the_folders_of_the_descriptor(tmp_path: Path) -> None:
    module = caller(tmp_path, "a", capabilities=MAY)
    roots = McpTransport(roots=(".", "sub/../b c", "/elsewhere"))
    module = replace(module, transport=replace(module.transport, mcp=roots))
    async with daemon_with(tmp_path, module, operator=allowing(tmp_path)) as daemon:
        [found] = await results(daemon, payload("roots.list"))
    folder = Path(module.folder)
    paths = [folder, folder / "b c", Path("/elsewhere")]
    assert found["output"] == {"roots": [{"uri": one.as_uri(), "name": one.name} for one in paths]}


@pytest.mark.parametrize(
    ("call", "code", "original"),
    [
        (payload("user.ask"), "invalid_request", "bad_request"),
        (payload("user.ask", message="x", form={}), "invalid_request", "bad_request"),
        (payload("roots.list", x=1), "invalid_request", "bad_request"),
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_asked_of_nobody(
    call: dict[str, Any], code: str, original: str, tmp_path: Path
) -> None:
    module = caller(tmp_path, "a", capabilities=MAY)
    async with daemon_with(tmp_path, module, operator=allowing(tmp_path)) as daemon:
        [found] = await results(daemon, call)
        error(found, code, original)


async def test_who_may_not_ask_does_not(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, caller(tmp_path, "a"), operator=allowing(tmp_path)) as daemon:
        for found in await results(
            daemon, payload("user.ask", message="x"), payload("roots.list", "c2")
        ):
            error(found, "denied", "forbidden")
