"""Gates: asked before and after an invocation, and what their answers make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.events import Log
from protocol.hook_result import Directive
from supervisor.kernel.kernel import Kernel
from tests.conformance.test_hook_chains import CASES
from tests.factories import GENEROUS_S, actor
from tests.kernel.conftest import Asker, ask, daemon_with
from tests.kernel.hooks.parties import denied, hook, seen, then
from tests.principals import ADA

INPUTS = {"echo": {"type": "object", "properties": {"n": {"type": "integer"}}}}
BRISK = {"backoff": {"initial_s": 0.01}}


def deny(reason: str | None = "no") -> dict[str, Any]:
    return {"action": "deny", "reason": reason}


def modify(data: Any) -> dict[str, Any]:
    return {"action": "modify", "data": data}


def inject(text: str, **fields: Any) -> dict[str, Any]:
    return {"action": "inject_context", "context_injection": text, **fields}


async def answered(daemon: Kernel, op: str = "echo", **content: Any) -> Asker:
    asker = ask(daemon, "m", op, **content)
    await asker.response()
    return asker


async def test_a_gate_is_told_what_is_asked_and_what_came_of_it(tmp_path: Path) -> None:
    gate = hook(tmp_path, gate=["tool:pre", "tool:post", "tool:error"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        session = daemon.sessions.new(ADA)
        asker = await answered(daemon, args={"n": 1}, session_id=session.id)
        failing = await answered(daemon, "exit", args={"code": 3})
        pre, post, _, error = await seen(daemon)
    request_id = asker.responses[0].request_id
    facts = {
        "tool_name": "m",
        "op": "echo",
        "tool_input": {"n": 1},
        "session_id": session.id,
        "request_id": request_id,
    }
    assert pre == {"event": "tool:pre", "data": facts}
    assert post == {"event": "tool:post", "data": {**facts, "result": {"n": 1}}}
    assert error["data"]["error"] == failing.responses[0].document()["error"]
    assert (error["event"], error["data"]["op"]) == ("tool:error", "exit")


async def test_a_denied_request_never_reaches_its_module(tmp_path: Path) -> None:
    gate = hook(tmp_path, answers={"tool:pre": deny("not on a Sunday")}, gate=["tool:pre"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        details = denied(await answered(daemon, "exit", args={"code": 3}))
        assert daemon.fleet.modules["m"].restarts == 0
    assert (details["hook"], details["gate"]) == ("h", "tool:pre")
    assert details["hook_reason"] == "not on a Sunday"
    assert details["message"] == "m.exit was denied by hook h: not on a Sunday"


async def test_gates_are_asked_by_priority_and_a_denial_ends_it(tmp_path: Path) -> None:
    parties = [
        hook(tmp_path, "late", gate=["tool:pre"], priority=90),
        hook(tmp_path, "first", {"*": modify({"n": 1})}, gate=["tool:pre"], priority=1),
        hook(tmp_path, "second", {"*": deny()}, gate=["tool:pre"], priority=2),
    ]
    async with daemon_with(tmp_path, actor(tmp_path), *parties) as daemon:
        assert denied(await answered(daemon, args={"n": 0}))["hook"] == "second"
        found = {name: await seen(daemon, name) for name in ("first", "second", "late")}
    assert found["late"] == []
    assert found["first"][0]["data"]["tool_input"] == {"n": 0}
    assert found["second"][0]["data"]["tool_input"] == {"n": 1}


async def test_what_gates_modify_is_what_the_module_gets_and_the_client(tmp_path: Path) -> None:
    answers = {"tool:pre": modify({"n": 7}), "tool:post": modify({"of": "the hook"})}
    gate = hook(tmp_path, answers=answers, gate=["tool:pre", "tool:post"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        asker = await answered(daemon, args={"n": 1})
        _, post = await seen(daemon)
    assert asker.responses[0].document()["result"] == {"of": "the hook"}
    assert (post["data"]["tool_input"], post["data"]["result"]) == ({"n": 7}, {"n": 7})


async def test_an_error_can_be_replaced(tmp_path: Path) -> None:
    error = {"code": "busy", "message": "come back later", "details": {"in_s": 3}}
    gate = hook(tmp_path, answers={"tool:error": modify(error)}, gate=["tool:error"])
    async with daemon_with(tmp_path, actor(tmp_path, supervision=BRISK), gate) as daemon:
        asker = await answered(daemon, "exit", args={"code": 3})
    told = asker.responses[0].document()["error"]
    assert (told["code"], told["message"]) == ("busy", "come back later")
    assert told["details"] == {"origin": "module", "reported": {"in_s": 3}}


async def test_an_error_or_a_result_can_be_withheld(tmp_path: Path) -> None:
    gate = hook(tmp_path, answers={"*": deny("secret")}, gate=["tool:post", "tool:error"])
    async with daemon_with(tmp_path, actor(tmp_path, supervision=BRISK), gate) as daemon:
        well = denied(await answered(daemon, args={"n": 1}))
        badly = denied(await answered(daemon, "exit", args={"code": 3}))
    assert well["message"] == "the result of m.echo was withheld by hook h: secret"
    assert badly["message"] == "the error of m.exit was withheld by hook h: secret"


@pytest.mark.parametrize(
    ("event", "answer", "problem"),
    [
        ("tool:pre", "nonsense", "result is"),
        ("tool:pre", {"action": "alow"}, "/action"),
        ("tool:pre", {"acton": "deny"}, "did you mean 'action'?"),
        ("tool:pre", modify("words"), "must be an object"),
        ("tool:pre", modify({"n": "one"}), "/n"),
        ("tool:error", modify({"code": ""}), "/data"),
    ],
)
async def test_an_invalid_answer_denies_also_from_an_open_gate(
    tmp_path: Path, event: str, answer: Any, problem: str
) -> None:
    gate = hook(tmp_path, answers={event: answer}, gate=[event], on_failure="open")
    module = actor(tmp_path, inputs={**INPUTS, "exit": {}}, supervision=BRISK)
    async with daemon_with(tmp_path, module, gate) as daemon:
        op, args = ("echo", {"n": 1}) if event == "tool:pre" else ("exit", {"code": 3})
        details = denied(await answered(daemon, op, args=args))
    assert problem in details["problem"]
    assert "invalid response" in details["hook_reason"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("hang", "gave no answer in 0.2 s"),
        ("exit", "failed: unreachable"),
        ("refuse", "failed: broken, it does not feel like it"),
    ],
)
async def test_a_gate_that_fails_denies_if_it_is_closed_and_is_a_warning_if_it_is_open(
    tmp_path: Path, answer: str, why: str
) -> None:
    within_s = 0.2 if answer == "hang" else GENEROUS_S
    gates = [
        hook(tmp_path, name, {"*": answer}, gate=[when], on_failure=name, timeout_s=within_s)
        for name, when in (("open", "tool:pre"), ("closed", "tool:post"))
    ]
    async with daemon_with(tmp_path, actor(tmp_path), *gates) as daemon:
        asker = await answered(daemon)
    details = denied(asker)
    assert details["hook"] == "closed"
    assert why in details["problem"]
    (warning,) = asker.responses[0].document()["warnings"]
    assert warning["reason"] == "hook_failed"
    assert warning["message"].startswith(f"hook open {why}")


async def test_a_gate_that_is_not_there_denies(tmp_path: Path) -> None:
    gate = hook(tmp_path, gate=["tool:pre"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        module = daemon.fleet.modules["h"]
        module.stop("the test")
        await daemon.fleet.wait_until(lambda: module.workers[0].life is None or None)
        assert "h is stopped" in denied(await answered(daemon))["problem"]


async def test_context_is_put_into_the_response_in_order(tmp_path: Path) -> None:
    answers = {
        "tool:pre": inject("mind the step", context_injection_role="user", ephemeral=True),
        "tool:post": inject("well done", append_to_last_tool_result=True),
    }
    gate = hook(tmp_path, answers=answers, gate=["tool:pre", "tool:post"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        document = (await answered(daemon)).responses[0].document()
    assert [tuple(one.values()) for one in document["injected"]] == [
        ("mind the step", "user", True, False),
        ("well done", "system", False, True),
    ]


async def test_what_several_gates_inject_is_joined_as_the_vectors_say(tmp_path: Path) -> None:
    (case,) = (one for one in CASES if one["name"] == "inject merge")
    gates = [
        hook(tmp_path, one["name"], {"*": one["returns"]}, gate=["tool:pre"], priority=at)
        for at, one in enumerate(case["handlers"])
    ]
    async with daemon_with(tmp_path, actor(tmp_path), *gates) as daemon:
        document = (await answered(daemon)).responses[0].document()
    assert document["injected"] == [
        {
            "content": case["result"]["context_injection"],
            "role": case["result"]["context_injection_role"],
            "ephemeral": case["result"]["ephemeral"],
            "append_to_last_tool_result": case["result"]["append_to_last_tool_result"],
        }
    ]


@pytest.mark.parametrize("action", Directive)
@pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
async def test_a_message_for_the_user_is_an_event_whatever_the_action(
    tmp_path: Path, event: str, action: Directive
) -> None:
    answer = {
        "action": action,
        "approval_timeout": 0.01,
        "user_message": "careful",
        "user_message_level": "warning",
    }
    gate = hook(tmp_path, answers={"*": answer}, gate=[event])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        said = (await answered(daemon)).events[0]
    assert isinstance(said, Log)
    assert (said.level, said.message, said.fields) == ("warn", "careful", {"hook": "h"})


async def test_a_result_that_no_gate_can_be_asked_about_is_not_told(tmp_path: Path) -> None:
    gate = hook(tmp_path, gate=["tool:post"])
    deep = '{"requestId":"ID","ok":true,"result":' + "[" * 200 + "]" * 200 + "}"
    async with daemon_with(tmp_path, actor(tmp_path, "no-ids"), gate) as daemon:
        asker = await answered(
            daemon, "say", args={"lines": [deep.replace('"requestId":"ID",', "")]}
        )
        assert "128 levels" in denied(asker)["problem"]


async def test_events_of_a_gated_invocation_flow_as_they_come(tmp_path: Path) -> None:
    gate = hook(tmp_path, answers={"*": "hang"}, gate=["tool:post"])
    async with daemon_with(tmp_path, actor(tmp_path), gate) as daemon:
        asker = ask(daemon, "m", "events", args={"count": 3})
        await asker.heard(3)
        assert not asker.responses
        await then(daemon, held={})
        assert (await asker.response()).ok
