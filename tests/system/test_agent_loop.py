"""The samples of the agent loop under a real daemon: what each mishap comes to, and 64 at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.modules.samples import DESCRIPTORS, MODULES
from tests.system.client import Answer
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon, shared
from tests.system.descriptors import PATIENT
from tests.system.liveness import BOUND_S

POLICY = MODULES / "policy.toml"
OPTIONS = ("--policy", str(POLICY))
AT_ONCE = 64

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="doorkeeper needs node")


def sample(name: str, **transport: Any) -> dict[str, Any]:
    """Return a sample's descriptor, at home in its own folder, with timeouts for slow machines."""
    document: dict[str, Any] = json.loads(json.dumps(DESCRIPTORS[name]))
    document["transport"] |= {"cwd": str(MODULES / name), **transport}
    supervision = document.setdefault("supervision", {})
    supervision["timeouts"] = PATIENT | {"invoke_s": BOUND_S}
    if "hook" in document:
        document["hook"]["timeout_s"] = BOUND_S
    return document


LOOP = ("orchestrator", "oracle", "memory", "dice")


@pytest.fixture(scope="module")
def loop() -> Iterator[Daemon]:
    with shared(*map(sample, (*LOOP, "planner", "flaky")), options=OPTIONS) as daemon:
        yield daemon


@pytest.fixture
def crew(loop: Daemon) -> Daemon:
    """Wait for those whom another test has killed."""
    loop.op("wait", modules=list(LOOP))
    return loop


@pytest.fixture(scope="module")
def guarded() -> Iterator[Daemon]:
    doorkeeper = sample("doorkeeper", env={"DOORKEEPER_WAIT_S": str(BOUND_S)})
    with shared(*map(sample, (*LOOP, "notes")), doorkeeper, options=OPTIONS) as daemon:
        yield daemon


def ask(daemon: Daemon, prompt: str, session_id: str | None = None) -> str:
    content = {"op": "execute", "args": {"prompt": prompt}, "timeout_s": BOUND_S}
    if session_id is not None:
        content["session_id"] = session_id
    return daemon.client.send("orchestrator", "invoke", content)


def execute(daemon: Daemon, prompt: str, session_id: str | None = None) -> Answer:
    return daemon.client.answer(ask(daemon, prompt, session_id))


def text_of(answer: Answer) -> str:
    chunks = (one for one in answer.events if one.get("event") == "message.chunk")
    return "".join(chunk["payload"]["content"] for chunk in chunks)


def names_of(answer: Answer) -> list[str]:
    return [one["event"] for one in answer.events if one["type"] == "ui_event"]


def invocations(daemon: Daemon, loops: int) -> list[dict[str, Any]]:
    """Read the journal's invocations up to the end of the last loop."""
    entries: list[dict[str, Any]] = []
    with daemon.connect() as reader:
        args = {"event": "module:invoke", "since": 0, "follow": True}
        reader.send("supervisor", "invoke", {"op": "events", "args": args})
        for line in reader.lines():
            if "seq" in line["fields"]:
                entries.append(line["fields"])
            if sum(one["module"] == "orchestrator" for one in entries) == loops:
                break
    return entries


ROLL = 'Let me see.\nuse dice.roll {"dice":"4d1+3"}'


def test_the_loop_streams_text_calls_a_tool_and_leaves_a_state(crew: Daemon) -> None:
    crew.op("session.new", session_id="loop")
    answer = execute(crew, ROLL, "loop")
    assert answer.result["tools"] == [{"name": "dice.roll", "ok": True}]
    said = 'dice.roll answered {"rolls": [1, 1, 1, 1], "total": 7}'
    assert answer.result["content"] == said
    assert text_of(answer) == f"Let me see.{said}"
    assert [one for one in names_of(answer) if one != "message.chunk"] == [
        "tool.call_start",
        "tool.call_complete",
    ]
    state = crew.op("session.show", session_id="loop")["state"]
    assert [one["role"] for one in state["memory"]["messages"].values()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert state["orchestrator"] == answer.result


def test_a_session_is_prompted_and_the_loop_or_the_agent_answers(crew: Daemon) -> None:
    roles = {"orchestrator": "orchestrator", "context": "memory", "provider": "oracle"}
    crew.op("session.new", session_id="s", roles={**roles, "tools": ["dice"]})
    crew.op("session.new", session_id="t")
    for session_id, content, text, called in (
        ("s", ROLL, 'dice.roll answered {"rolls": [1, 1, 1, 1], "total": 7}', 1),
        ("t", "write a letter", "1. List what a letter must say\n", 0),
    ):
        args = {"session_id": session_id, "content": content}
        asked = {"op": "session.prompt", "args": args}
        answer = crew.client.answer(crew.client.send("supervisor", "invoke", asked))
        assert answer.result["content"].startswith(text)
        names = names_of(answer)
        assert names.count("tool.call_start") == names.count("tool.call_complete") == called
        assert names[-1] == "message.complete"


def test_what_was_said_outlives_the_context_manager(crew: Daemon) -> None:
    crew.op("session.new", session_id="outlived")
    execute(crew, ROLL, "outlived")
    os.kill(crew.pid("memory"), signal.SIGKILL)
    crew.op("restart", module="memory")
    execute(crew, ROLL, "outlived")
    messages = crew.op("session.show", session_id="outlived")["state"]["memory"]["messages"]
    assert len(messages) == 8


def test_without_a_policy_nothing_may_be_called(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(*map(sample, LOOP))
    answer = execute(daemon, ROLL)
    assert answer.error["code"] == "forbidden"
    assert "module.invoke:memory.add_message" in answer.error["message"]


@needs_node
def test_a_dangerous_argument_is_refused_and_the_loop_goes_on(guarded: Daemon) -> None:
    answer = execute(guarded, 'use notes.add {"text":"rm -rf /"}')
    assert answer.result["tools"] == [{"name": "notes.add", "ok": False, "code": "forbidden"}]
    assert "not let through" in answer.result["content"]
    refused = guarded.invoke("notes", "add", text="rm -rf /")
    assert refused.verdict == "forbidden/hook"
    assert refused.details["hook"] == "doorkeeper"


@needs_node
def test_an_approval_that_nobody_gives_is_a_refusal(start_daemon: StartDaemon) -> None:
    doorkeeper = sample("doorkeeper", env={"DOORKEEPER_WAIT_S": "0.05"})
    daemon = start_daemon(*map(sample, (*LOOP, "notes")), doorkeeper, options=OPTIONS)
    answer = execute(daemon, 'use notes.add {"text":"sudo reboot"}')
    assert answer.result["tools"] == [{"name": "notes.add", "ok": False, "code": "forbidden"}]


@needs_node
def test_an_approval_that_is_given_lets_the_call_through(guarded: Daemon) -> None:
    with guarded.connect() as keeper:
        keeper.send("supervisor", "invoke", {"op": "approvals", "args": {"follow": True}})
        asked = ask(guarded, 'use notes.add {"text":"sudo reboot"}')
        question = next(line for line in keeper.lines() if "sudo reboot" in json.dumps(line))
        waiting = guarded.op("approvals")["approvals"]
        assert len(waiting) == 1, question
        guarded.op("approve", id=waiting[0]["id"])
    assert guarded.client.answer(asked).result["tools"] == [{"name": "notes.add", "ok": True}]


def test_a_tool_that_crashes_is_told_to_the_provider(crew: Daemon) -> None:
    answer = execute(crew, 'use flaky.exit {"code":3}')
    assert answer.result["tools"] == [{"name": "flaky.exit", "ok": False, "code": "internal"}]
    assert "exited with code 3" in answer.result["content"]


def test_a_provider_killed_in_mid_stream_ends_the_loop_in_words(crew: Daemon) -> None:
    asked = ask(crew, "well then\nhang")
    for line in crew.client.lines():
        if line.get("payload") == {"content": " then"}:
            break
    os.kill(crew.pid("oracle"), signal.SIGKILL)
    # What came before the kill was read above, line by line; the answer is the next terminal line.
    done = crew.client.answer(asked)
    assert done.error["code"] == "unreachable"
    assert "oracle" in done.error["message"]
    assert "SIGKILL" in done.error["message"]


def test_64_loops_over_one_provider_all_end_and_their_spans_nest(start_daemon: StartDaemon) -> None:
    # A daemon of its own: the journal is to have nothing but these.
    daemon = start_daemon(*map(sample, LOOP), options=OPTIONS)
    asked = [ask(daemon, f"number {n}\n{ROLL}") for n in range(AT_ONCE)]
    for n, request_id in enumerate(asked):
        answer = daemon.client.answer(request_id)
        assert answer.result["tools"] == [{"name": "dice.roll", "ok": True}]
        assert text_of(answer).startswith(f"number {n} Let me see.")
    entries = invocations(daemon, loops=AT_ONCE)
    roots = {one["span_id"] for one in entries if one["module"] == "orchestrator"}
    assert len(roots) == AT_ONCE
    children = Counter(
        (one["module"], one["data"]["parent_span_id"])
        for one in entries
        if one["module"] != "orchestrator"
    )
    # Of each: four messages kept and two views, two answers of the provider, one roll.
    expected = {"memory": 6, "oracle": 2, "dice": 1}
    assert children == {(name, root): count for name, count in expected.items() for root in roots}
