"""The samples that stream or can be cancelled, driven alone."""

import json
import os
from pathlib import Path

import pytest

from tests.modules.samples import Json, Running, frame


def test_crowd_answers_64_at_once_and_keeps_their_streams_apart(tmp_path: Path) -> None:
    with Running("crowd", tmp_path) as crowd:
        prompts = {f"r-{n}": f"story number {n}" for n in range(64)}
        requests = [
            frame("invoke", {"op": "complete", "args": {"prompt": prompt, "delay_ms": 1}}, key)
            for key, prompt in prompts.items()
        ]
        # All in one write: no stream has ended before the last request is there.
        assert crowd.process.stdin is not None
        data = b"".join(requests)
        assert os.write(crowd.process.stdin.fileno(), data) == len(data)
        stdout, _ = crowd.process.communicate()
    order = [json.loads(line) for line in stdout.splitlines()]
    first_end = next(n for n, event in enumerate(order) if event["type"] == "done")
    assert {event["requestId"] for event in order[:first_end]} == prompts.keys()
    for key in prompts:
        *chunks, done = [event for event in order if event["requestId"] == key]
        assert all(chunk["event"] == "message.chunk" for chunk in chunks)
        assert "".join(c["payload"]["content"] for c in chunks) == done["result"]["text"]
        assert (done["ok"], done["result"]["words"]) == (True, 24)


def test_crowd_completes_the_same_prompt_in_the_same_way(tmp_path: Path) -> None:
    with Running("crowd", tmp_path) as crowd:
        ask = [{"prompt": prompt, "delay_ms": 0} for prompt in ("the sea", "the sea", "the lamp")]
        first, second, other = (crowd.invoke("complete", args)["result"]["text"] for args in ask)
        assert first == second != other
        assert crowd.invoke("complete", {})["error"]["code"] == "bad_request"


@pytest.mark.parametrize(
    ("name", "op", "args"),
    [
        ("crowd", "complete", {"prompt": "wait", "delay_ms": 60_000}),
        ("planner", "sleep", {"seconds": 86_400}),
    ],
)
def test_a_sample_with_the_feature_cancel_can_be_interrupted(
    name: str, op: str, args: Json, tmp_path: Path
) -> None:
    with Running(name, tmp_path) as module:
        assert module.ask("describe")["features"] == ["cancel"]
        module.write(frame("invoke", {"op": op, "args": args}, "long"))
        module.write(frame("cancel", {}, "unknown") + frame("cancel", {}, "long"))
        _, done = module.answer("long")
        assert (done["ok"], done["error"]["code"]) == (False, "cancelled")
        assert module.ask("health")["status"] == "ok"
        assert module.finish() == (0, [], "")


def test_planner_streams_its_steps_as_it_finds_them(tmp_path: Path) -> None:
    with Running("planner", tmp_path) as planner:
        planner.write(frame("invoke", {"op": "plan", "args": {"goal": "fix the roof then rest"}}))
        events, done = planner.answer("r-1")
        chunks = [e["payload"]["content"] for e in events if e["type"] == "ui_event"]
        steps = done["result"]["steps"]
        assert chunks == [f"{n}. {step}\n" for n, step in enumerate(steps, start=1)]
        assert [e["message"] for e in events if e["type"] == "log"] == [
            "Thinking about: fix the roof",
            "Thinking about: rest",
        ]
        for goal in ("", " , "):
            assert planner.invoke("plan", {"goal": goal})["error"]["code"] == "bad_request"


def test_planner_stays_responsive_while_it_thinks(tmp_path: Path) -> None:
    with Running("planner", tmp_path) as planner:
        planner.write(frame("invoke", {"op": "sleep", "args": {"seconds": 86_400}}, "long"))
        assert planner.read()["requestId"] == "long"
        planner.write(frame("invoke", {"op": "sleep", "args": {"seconds": 0}}, "short"))
        planner.write(frame("health", {}, "health"))
        answered: set[str] = set()
        while answered != {"short", "health"}:
            message = planner.read()
            if message.get("type", "done") == "done":
                answered.add(message["requestId"])
        planner.write(frame("cancel", {}, "long"))
        while (message := planner.read())["type"] != "done":
            pass
        assert (message["requestId"], message["error"]["code"]) == ("long", "cancelled")
