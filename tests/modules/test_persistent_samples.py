"""What every persistent sample does, driven alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from tests.modules.samples import DESCRIPTORS, PERSISTENT, Json, Running, frame

# A request of each persistent module, and what its result must hold at least.
REAL: dict[str, tuple[str, Json, Json]] = {
    "audit": ("report", {}, {"total": 0, "errors": 0, "events": {}}),
    "crowd": ("complete", {"prompt": "a river", "delay_ms": 0, "max_words": 7}, {"words": 7}),
    "doorkeeper": ("on_event", {"event": "tool:pre"}, {"action": "continue"}),
    "memory": ("add_message", {"message": {"role": "user", "content": "hi"}}, {"count": 1}),
    "oracle": (
        "complete",
        {"messages": [{"role": "user", "content": "it is\nuse dice.roll"}]},
        {"content": "it is", "usage": {"input_tokens": 4, "output_tokens": 2}},
    ),
    "orchestrator": (
        "execute",
        {"prompt": "hello"},
        {"content": "I hear you.", "turns": 1, "tools": []},
    ),
    "dice": ("roll", {"dice": "4d1+3"}, {"rolls": [1, 1, 1, 1], "total": 7}),
    "notes": ("add", {"text": "buy milk"}, {"number": 1}),
    "planner": (
        "plan",
        {"goal": "write a book, and rest"},
        {
            "goal": "write a book, and rest",
            "steps": [
                "List what a book must say",
                "Draft a book in one go",
                "Read a book aloud",
                "Agree when this is done: rest",
                "Do it: rest",
                "Check the result: rest",
            ],
        },
    ),
    "primes": ("factor", {"n": 360}, {"n": 360, "factors": [2, 2, 2, 3, 3, 5]}),
    "textstats": (
        "stats",
        {"text": "The naïve cat sat.\nIt slept.", "longest": 2},
        {
            "words": 6,
            "lines": 2,
            "sentences": 2,
            "characters": 28,
            "longest_words": ["naïve", "slept"],
        },
    ),
}

# A request of each persistent module that depends on its text, so that damage to it would show.
TEXT = 'Grüße, 世界 🎲 \u2028 "quoted" \\ end'

ECHOED: dict[str, tuple[str, Json]] = {
    "audit": ("on_event", {"event": TEXT}),
    "crowd": ("complete", {"prompt": TEXT, "delay_ms": 0, "max_words": 1}),
    "dice": ("roll", {"dice": TEXT}),
    "doorkeeper": (
        "on_event",
        {
            "event": "tool:pre",
            "data": {"tool_name": "t", "op": "o", "tool_input": [f"rm -r {TEXT}"]},
        },
    ),
    "memory": ("add_message", {"message": {"role": "user", "content": TEXT}}),
    "oracle": ("complete", {"messages": [{"role": "user", "content": TEXT}]}),
    "orchestrator": ("execute", {"prompt": TEXT}),
    "notes": ("add", {"text": TEXT}),
    "planner": ("plan", {"goal": TEXT}),
    "primes": ("echo", {"text": TEXT}),
    "textstats": ("stats", {"text": TEXT}),
}


@pytest.fixture(params=PERSISTENT)
def persistent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Running]]:
    name = str(request.param)
    with Running(name, tmp_path) as module:
        yield name, module


def test_every_persistent_sample_has_a_real_request_here() -> None:
    assert set(PERSISTENT) == REAL.keys() == ECHOED.keys()


def test_a_persistent_sample_answers_and_then_exits_0_at_eof(
    persistent: tuple[str, Running],
) -> None:
    name, module = persistent
    descriptor = DESCRIPTORS[name]
    assert module.ask("health", request_id="h") == {"requestId": "h", "status": "ok"}

    described = module.ask("describe", request_id="d")
    same = ("name", "version", "kind", "capabilities")
    assert [described[key] for key in same] == [descriptor[key] for key in same]
    assert described["inputs"] in ({}, descriptor["inputs"])
    assert described["outputs"] in ({}, descriptor["outputs"])

    op, args, expected = REAL[name]
    jsonschema.validate(args, descriptor["inputs"][op])
    answer = module.invoke(op, args)
    assert answer["ok"] is True
    assert answer["result"].items() >= expected.items()
    jsonschema.validate(answer["result"], descriptor["outputs"][op])
    assert module.finish() == (0, [], "")


def test_a_persistent_sample_names_what_it_cannot_do(persistent: tuple[str, Running]) -> None:
    _, module = persistent
    for answer in (module.invoke("no-such-op", {}), module.ask("no-such-operation")):
        assert answer["ok"] is False
        assert answer["error"]["code"] == "unsupported_op"
        assert answer["error"]["message"]


def test_a_persistent_sample_survives_malformed_lines_and_says_so_on_stderr(
    persistent: tuple[str, Running],
) -> None:
    _, module = persistent
    for line in (b"no json\n", b'{"requestId":\n', b"[1, 2]\n", b'"text"\n', b"{}}\n"):
        module.write(line)
        assert module.ask("health")["status"] == "ok"
    status, rest, stderr = module.finish()
    assert (status, rest) == (0, [])
    assert stderr.count("ignored a malformed line") == 5


def test_a_persistent_sample_echoes_any_request_id_faithfully(
    persistent: tuple[str, Running],
) -> None:
    _, module = persistent
    for request_id in ('a"b\\c/\t', "Grüße 🎲 \u2028", "", "x" * 100_000):
        assert module.ask("health", request_id=request_id)["requestId"] == request_id
        answer = module.ask("invoke", {"op": "no-such-op"}, request_id)
        assert answer["requestId"] == request_id


def test_a_persistent_sample_keeps_characters_whole_that_arrive_in_pieces(
    persistent: tuple[str, Running],
) -> None:
    name, module = persistent
    op, args = ECHOED[name]
    whole = frame("invoke", {"op": op, "args": args, "session_id": "s"}, "whole 🎲")
    module.write(whole)
    events, expected = module.answer("whole 🎲")
    for cut in (whole.index("🎲".encode()) + 2, whole.rindex("世".encode()) + 1):
        # The answer to the health request proves that what was written with it has been read.
        module.write(frame("health", {}) + whole[:cut])
        assert module.answer("r-1")[1]["status"] == "ok"
        module.write(whole[cut:])
        expected_now = (
            expected | {"result": {"number": expected["result"]["number"] + 1}}
            if name == "notes"
            else expected
        )
        assert module.answer("whole 🎲") == (events, expected_now)
        expected = expected_now
    if name == "notes":
        found = module.invoke("list", {}, "s")["result"]["notes"]
        assert [note["text"] for note in found] == [TEXT] * 3
    if name == "audit":
        assert module.invoke("report", {})["result"]["events"] == {TEXT: 3}


def test_a_persistent_sample_takes_any_key_order_space_crlf_and_an_unfinished_last_line(
    persistent: tuple[str, Running],
) -> None:
    name, module = persistent
    op, args, _ = REAL[name]
    spaced = json.dumps(
        {"input": {"args": args, "op": op}, "operation": "invoke", "requestId": "q", "later": [{}]},
        separators=(" ,\t", " : "),
    )
    module.write(f"  {spaced} \r\n".encode())
    assert module.answer("q")[1]["ok"] is True
    module.write(frame("health", {}).rstrip(b"\n"))
    status, rest, stderr = module.finish()
    assert (status, stderr) == (0, "")
    assert [json.loads(line)["status"] for line in rest] == ["ok"]


def test_a_persistent_sample_answers_a_batch_and_a_line_of_a_megabyte(
    persistent: tuple[str, Running], tmp_path: Path
) -> None:
    name, module = persistent
    long = frame("health", {"padding": "ü" * 500_000}, "long")
    batch = b"".join(frame("health", {}, f"r-{n}") for n in range(500))
    stdout, stderr = module.process.communicate(batch + long)
    assert module.process.returncode == 0, name
    assert stderr == b""
    ids = [json.loads(line)["requestId"] for line in stdout.splitlines()]
    assert ids == [f"r-{n}" for n in range(500)] + ["long"]
    assert list(tmp_path.iterdir()) == []
