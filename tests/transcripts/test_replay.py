from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.descriptor.loading import parse_descriptor
from protocol.transcript import read_transcript
from supervisor.transcripts.replay import (
    Replayed,
    UnplayableError,
    replay_through_dialect,
)
from tests.protocol.test_transcript import DIGEST, ENDED, HEADER, lines

SPAWNED: dict[str, Any] = {"from": "process", "event": "spawned", "pid": 7}


def host(**frame: Any) -> dict[str, Any]:
    return {"from": "host", "line": json.dumps(frame)}


def invoke(request_id: str) -> dict[str, Any]:
    given = {"op": "roll", "args": {}}
    return host(requestId=request_id, tool="dice", operation="invoke", input=given)


def module(**document: Any) -> dict[str, Any]:
    return {"from": "module", "line": json.dumps(document)}


def outcome(request_id: str, **document: Any) -> dict[str, Any]:
    named = {"request_id": request_id, "operation": "invoke", "op": "roll"}
    return {"from": "host", **named, "outcome": document}


def failed(request_id: str, code: str, reason: str) -> dict[str, Any]:
    error = {"code": code, "details": {"origin": "host", "reason": reason, "pid": 7}}
    return outcome(request_id, ok=False, error=error)


def exited(**how: Any) -> dict[str, Any]:
    return {"from": "process", "event": "exited", **how}


def play(*entries: dict[str, Any], protocol: str = "module", line_bytes: int = 8 << 20) -> Replayed:
    descriptor = {
        "name": "dice", "kind": "tool", "capabilities": [],
        "supervision": {"limits": {"line_bytes": line_bytes}},
        "transport": {"type": "stdio", "command": ["dice"], "protocol": protocol},
    }  # fmt: skip
    placed = [{"at_s": 0.1, "instance": "dice#1", **entry} for entry in entries]
    transcript = read_transcript(lines(HEADER, *placed, ENDED), "t")
    return replay_through_dialect(
        transcript, parse_descriptor(json.dumps(descriptor).encode(), "/m/dice.json")
    )


def test_an_answer_of_another_result_differs() -> None:
    replayed = play(
        SPAWNED, invoke("r1"), module(ok=True, result=4), outcome("r1", ok=True, result=5)
    )
    (difference,) = replayed.differences
    assert (difference.instance, difference.request_id) == ("dice#1", "r1")
    assert difference.what == "dice.roll"
    assert difference.replayed == {"ok": True, "result": 4}


def test_true_is_not_one() -> None:
    given = outcome("r1", ok=True, result=1)
    assert play(SPAWNED, invoke("r1"), module(ok=True, result=True), given).differences


def test_an_answer_that_was_recorded_and_does_not_come_differs() -> None:
    (difference,) = play(SPAWNED, invoke("r1"), outcome("r1", ok=True, result=5)).differences
    assert difference.replayed is None


def test_a_result_that_was_left_out_is_not_compared() -> None:
    assert not play(
        SPAWNED, invoke("r1"), module(ok=True, result=4), outcome("r1", ok=True)
    ).differences


def test_what_the_host_gave_up_is_given_up_again_at_that_point() -> None:
    # Without ids: the late answer to r1 would be taken for r2's, had r1 not been given up.
    replayed = play(
        SPAWNED, invoke("r1"), failed("r1", "timeout", "deadline"),
        invoke("r2"), module(ok=True, result=2), outcome("r2", ok=True, result=2),
    )  # fmt: skip
    assert (replayed.compared, replayed.by_host, replayed.differences) == (1, 1, ())


def test_a_request_that_was_never_written_in_full_ends_with_its_process() -> None:
    partial = {"from": "host", "line": '{"requestId":"r1","to', "newline": False}
    dead = {**outcome("r1", ok=False), "outcome": {"ok": False}}
    replayed = play(SPAWNED, partial, exited(signal=9), dead)
    assert not replayed.differences
    assert "unreachable/signaled" in replayed.steps[-1].words


def test_a_tool_that_prints_before_its_input_is_written_is_understood() -> None:
    done = module(version="0", type="done", ok=True)
    replayed = play(
        SPAWNED, done, exited(exit_code=0), outcome("r1", ok=True), protocol="narratoria"
    )
    assert not replayed.differences


def test_a_memory_limit_is_judged_with_its_figures() -> None:
    limit = {"limit": "memory_bytes", "allowed": 10, "used": 20}
    given = failed("r1", "oom", "memory_limit")
    given["outcome"]["error"]["message"] = (
        "dice.roll: dice#1 used 20 bytes of memory, and 10 is its limit, so it was ended "
        "before it answered"
    )
    assert not play(SPAWNED, invoke("r1"), exited(signal=9, limit=limit), given).differences
    with pytest.raises(UnplayableError, match='"limit" of an exit'):
        play(SPAWNED, exited(signal=9, limit={"limit": 3}))


def test_a_line_of_which_only_the_beginning_is_there_is_played_if_it_is_too_long_anyway() -> None:
    line = {"from": "module", "line": "x" * 4096, "bytes": 3 << 20, "sha256": DIGEST}
    given = outcome("r1", ok=False)
    assert not play(SPAWNED, invoke("r1"), line, given, line_bytes=1 << 20).differences
    with pytest.raises(UnplayableError, match="only the beginning of a line of 3145728 bytes"):
        play(SPAWNED, invoke("r1"), line, given)
    endless = {**line, "bytes": 1 << 50}
    with pytest.raises(UnplayableError, match=r"limits\.line_bytes is 1099511627776"):
        play(SPAWNED, invoke("r1"), endless, given, line_bytes=1 << 40)


def test_a_request_is_sent_once_however_often_it_stands_there() -> None:
    replayed = play(SPAWNED, invoke("r1"), invoke("r1"), module(ok=True, result=4))
    assert [one.words for one in replayed.steps] == ["r1: dice.roll ok"]


def test_two_processes_have_a_connection_each() -> None:
    other = {"instance": "dice#2"}
    replayed = play(
        SPAWNED, invoke("r1"), {**SPAWNED, **other}, {**invoke("r2"), **other},
        {**module(ok=True, result=2), **other}, module(ok=True, result=1),
        outcome("r1", ok=True, result=1), {**outcome("r2", ok=True, result=2), **other},
    )  # fmt: skip
    assert (replayed.compared, replayed.differences) == (2, ())


def mcp_call(rpc_id: int, request_id: str) -> dict[str, Any]:
    meta = {"progressToken": rpc_id, "stdiod/requestId": request_id}
    params = {"name": "roll", "arguments": {}, "_meta": meta}
    return host(jsonrpc="2.0", id=rpc_id, method="tools/call", params=params)


def test_requests_of_an_mcp_server_are_known_by_the_id_that_they_have_at_the_host() -> None:
    results = [{"content": [], "n": number} for number in range(3)]
    replayed = play(
        SPAWNED, mcp_call(4, "r7"), mcp_call(5, "r8"), mcp_call(6, "r9"),
        module(jsonrpc="2.0", id=5, result=results[1]), outcome("r8", ok=True, result=results[1]),
        host(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 6}),
        failed("r9", "timeout", "deadline"),
        module(jsonrpc="2.0", id=4, result=results[0]), outcome("r7", ok=True, result=results[0]),
        protocol="mcp",
    )  # fmt: skip
    assert (replayed.compared, replayed.by_host, replayed.differences) == (2, 1, ())
