"""Calls of modules to the host, made by real modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from supervisor.kernel.kernel import JournalOptions, Kernel
from tests.factories import GENEROUS_S
from tests.kernel.conftest import LATE, ask, begun, daemon_with
from tests.kernel.host_calls import ALL, allowing, caller, error, payload, results
from tests.kernel.noted import invoked, noted
from tests.principals import ADA


async def test_a_module_has_another_one_do_something_on_behalf_of_its_request(
    tmp_path: Path,
) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(
        tmp_path, a, b, memory=JournalOptions(), operator=allowing(tmp_path)
    ) as daemon:
        [result] = await results(daemon, payload("invoke", module="b", op="echo", args={"x": 1}))
        assert result["call_id"] == "c1"
        assert result["is_error"] is False
        assert "error" not in result
        output = result["output"]
        assert (output["ok"], output["result"], output["module"]) == (True, {"x": 1}, "b")
        outer, inner = await invoked(daemon, "calls"), await invoked(daemon, "echo")
        assert inner["data"]["parent_span_id"] == outer["span_id"]
        [decision] = await noted(daemon, "policy:decision")
        assert (decision["module"], decision["status"]) == ("a", "allowed")
        assert decision["data"]["capability"] == "module.invoke:b.echo"
        assert decision["request_id"] == outer["request_id"]


@pytest.mark.parametrize(
    ("call", "code", "original", "words"),
    [
        (payload("modul.invoke"), "invalid_request", "unsupported_op", "module.invoke"),
        (payload("log"), "invalid_request", "bad_request", '"message" is missing'),
        (payload("log", message="x", levle="warn"), "invalid_request", "bad_request", "level"),
        (payload("log", message="x", level="loud"), "invalid_request", "bad_request", "loud"),
        (payload("module.invoke", module="b"), "invalid_request", "bad_request", '"op"'),
        (payload("invoke", module="", op="x"), "invalid_request", "bad_request", "empty"),
        (payload("invoke", module="nobody", op="x"), "invalid_request", "bad_request", "nobody"),
        (payload("invoke", module="b", op="x", stream=1), "invalid_request", "bad_request", "true"),
        (
            payload("invoke", module="b", op="x", session_id="other"),
            "denied",
            "forbidden",
            "the session of the request",
        ),
        (payload("session.read"), "invalid_request", "bad_request", "no session"),
        (payload("session.write", patch=[]), "invalid_request", "bad_request", "an object"),
        (payload("event.emit", event="session:end"), "invalid_request", "bad_request", "own"),
        (payload("event.emit", event="Session:end"), "invalid_request", "bad_request", "own"),
        (payload("event.emit", event="plain"), "invalid_request", "bad_request", "mine:step"),
        (payload("event.emit", event="context:gett"), "invalid_request", "bad_request", "get"),
        (payload("event.emit", event="context:set"), "invalid_request", "bad_request", "data.key"),
        (
            payload("event.emit", event="my:own", data={"x": "." * 70_000}),
            "invalid_request",
            "bad_request",
            "65536 bytes",
        ),
        (
            {**payload("log", message="x"), "capability": "session.read"},
            "invalid_request",
            "bad_request",
            "needs 'log'",
        ),
        ({"call_id": "c1", "params": {}}, "invalid_request", "bad_request", '"method"'),
        ({"call_id": "c1", "method": "log"}, "invalid_request", "bad_request", '"params"'),
        (
            {**payload("log", message="x"), "timeout_ms": "1"},
            "invalid_request",
            "bad_request",
            '"timeout_ms"',
        ),
    ],
)
async def test_a_bad_call_is_told_what_is_wrong(
    call: dict[str, Any], code: str, original: str, words: str, tmp_path: Path
) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        [result] = await results(daemon, call)
        assert words in error(result, code, original)["message"]


async def relay(daemon: Kernel, first: str, *path: str, **args: Any) -> dict[str, Any]:
    content = {"path": list(path), **args}
    return await ask(daemon, first, "relay", args=content).document()


def last_result(document: dict[str, Any]) -> dict[str, Any]:
    """Return the innermost result of a relay."""
    while (results := document["result"].get("results")) is not None:
        [one] = [each for each in results if each.get("chunk", {}).get("is_last", True)]
        if one["is_error"]:
            return dict(one)
        document = one["output"]
    return document


@pytest.mark.parametrize(
    ("path", "chain"),
    [("a", ["a", "a"]), ("ba", ["a", "b", "a"]), ("bcb", ["b", "c", "b"])],
)
async def test_a_chain_that_would_wait_for_itself_fails_at_once_and_with_room_works(
    path: str, chain: list[str], tmp_path: Path
) -> None:
    for room in (1, 2):
        modules = [
            caller(tmp_path, name, supervision={"concurrency": room}) for name in ("a", "b", "c")
        ]
        async with daemon_with(tmp_path, *modules, operator=allowing(tmp_path)) as daemon:
            found = last_result(await relay(daemon, "a", *path))
            if room == 2:
                assert found["result"] == {"name": path[-1]}
            else:
                problem = error(found, "invalid_request", "bad_request")
                assert problem["details"]["reason"] == "reentrant_call"
                assert problem["details"]["chain"] == chain


async def test_two_chains_that_cross_do_not_wait_for_each_other(tmp_path: Path) -> None:
    modules = [caller(tmp_path, name, supervision={"concurrency": 1}) for name in ("a", "b")]
    async with daemon_with(tmp_path, *modules, operator=allowing(tmp_path)) as daemon:
        there = ask(daemon, "a", "relay", args={"path": ["b"]})
        back = ask(daemon, "b", "relay", args={"path": ["a"]})
        found = [last_result(await one.document()) for one in (there, back)]
        failed = [one for one in found if one.get("is_error")]
        assert len(failed) == 1, found
        problem = error(failed[0], "invalid_request", "bad_request")
        assert problem["details"]["chain"] in (["a", "b", "a"], ["b", "a", "b"])


async def test_a_chain_has_a_bounded_depth(tmp_path: Path) -> None:
    a = caller(tmp_path, "a", supervision={"concurrency": 64})
    async with daemon_with(tmp_path, a, operator=allowing(tmp_path)) as daemon:
        assert last_result(await relay(daemon, "a", *"a" * 15))["result"] == {"name": "a"}
        problem = error(
            last_result(await relay(daemon, "a", *"a" * 16)), "invalid_request", "bad_request"
        )
        assert problem["details"]["reason"] == "limit_reached"
        assert problem["details"]["chain"] == ["a"] * 16


async def test_sixty_four_chains_at_a_time_come_to_their_ends(tmp_path: Path) -> None:
    a, b, c = (
        caller(tmp_path, name, supervision={"concurrency": room})
        for name, room in (("a", 64), ("b", 4), ("c", 1))
    )
    async with daemon_with(
        tmp_path, a, b, c, operator=allowing(tmp_path), memory=JournalOptions()
    ) as daemon:
        chains = [ask(daemon, "a", "relay", args={"path": ["b", "c"]}) for _ in range(64)]
        for chain in chains:
            assert last_result(await chain.document())["result"] == {"name": "c"}
        spans = {
            one["span_id"]: (one["module"], one["data"].get("parent_span_id"))
            for one in await noted(daemon)
            if one["event"] == "module:invoke"
        }
        assert len(spans) == 3 * 64
        for module, above in spans.values():
            assert (None if above is None else spans[above][0]) == {"a": None, "b": "a", "c": "b"}[
                module
            ]


async def test_events_of_a_child_come_in_chunks_if_that_is_asked_for(tmp_path: Path) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        call = payload("invoke", module="b", op="talk", args={"count": 3}, stream=True)
        found = await results(daemon, call)
        assert [one["chunk"] for one in found] == [
            {"index": number, "is_last": number == 3} for number in range(4)
        ]
        assert [one["output"]["message"] for one in found[:3]] == ["0", "1", "2"]
        assert found[0]["output"]["type"] == "log"
        assert found[3]["output"]["result"] == {"said": 3}


async def test_more_is_streamed_than_waits_at_a_time(tmp_path: Path) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        args = {"count": 3000, "size": 2000}
        call = payload("invoke", module="b", op="talk", args=args, stream=True)
        assert len(await results(daemon, call)) == 3001


async def test_state_is_read_and_written_in_the_session_of_the_request(tmp_path: Path) -> None:
    a = caller(tmp_path, "a")
    async with daemon_with(
        tmp_path, a, operator=allowing(tmp_path), memory=JournalOptions()
    ) as daemon:
        session = daemon.sessions.new(ADA, "s", plan={"goal": "g", "inputs": {}}, state={"x": 1})
        found = await results(
            daemon,
            payload("session.read", "1"),
            payload("session.write", "2", patch={"y": 2}, if_revision=0),
            payload("session.write", "3", patch={"y": 3}, if_revision=0),
            session_id="s",
        )
        # A refusal does not wait for the disk, as what it comes after does.
        read, written, conflict = sorted(found, key=lambda one: str(one["call_id"]))
        assert read["output"]["state"] == {"x": 1}
        assert (read["output"]["revision"], read["output"]["plan"]["goal"]) == (0, "g")
        assert written["output"] == {"session_id": "s", "revision": 1}
        problem = error(conflict, "invalid_request", "bad_request")
        assert problem["details"]["reason"] == "revision_conflict"
        assert session.kept.state == {"x": 1, "y": 2}
        [patch] = await noted(daemon, "session:patch")
        assert (patch["module"], patch["request_id"] is not None) == ("a", True)


async def test_events_and_log_lines_are_written_in_the_modules_name(tmp_path: Path) -> None:
    a = caller(tmp_path, "a")
    async with daemon_with(
        tmp_path, a, operator=allowing(tmp_path), memory=JournalOptions()
    ) as daemon:
        found = await results(
            daemon,
            payload("event.emit", "1", event="context:set", data={"key": "k"}),
            payload("event.emit", "2", event="my:step", status="ok"),
            payload("log", "3", level="warn", message="careful", fields={"n": 1}),
            payload("log", "4", message="again"),
        )
        assert [(one["is_error"], one["output"]) for one in found] == [(False, {})] * 4
        entry = (await noted(daemon, "context:set"))[0]
        assert (entry["module"], entry["data"]) == ("a", {"key": "k"})
        assert entry["span_id"] == (await invoked(daemon, "calls"))["span_id"]
        assert (await noted(daemon, "my:step"))[0]["status"] == "ok"
        decided = [
            one["data"]["capability"] for one in await noted(daemon) if "policy" in one["event"]
        ]
        assert decided == ["event.emit:context:set", "event.emit:my:step", "log"]
        lines = [
            (one.stream, one.text) for one in await daemon.fleet.modules["a"].log.last_lines(2)
        ]
        assert lines == [("log", 'warn: careful {"n":1}'), ("log", "info: again")]


@pytest.mark.parametrize(
    ("capabilities", "policy", "words"),
    [
        ([], 'mode = "permissive"', "descriptor"),
        (ALL, "", "strict"),
        (ALL, 'mode = "permissive"\ndeny = ["log"]', 'policy.toml: deny[0] "log"'),
    ],
)
async def test_what_is_not_granted_is_denied_and_says_by_what(
    capabilities: list[str], policy: str, words: str, tmp_path: Path
) -> None:
    a = caller(tmp_path, "a", capabilities=capabilities)
    async with daemon_with(
        tmp_path, a, operator=allowing(tmp_path, policy), memory=JournalOptions()
    ) as daemon:
        [result] = await results(daemon, payload("log", message="x"))
        problem = error(result, "denied", "forbidden")
        assert problem["details"]["reason"] == "capability"
        assert words in problem["message"]
        [decision] = await noted(daemon, "policy:decision")
        assert decision["status"] == "denied"
        assert words in decision["data"]["rule"]


async def test_without_a_policy_nothing_is_granted(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, caller(tmp_path, "a")) as daemon:
        [result] = await results(daemon, payload("log", message="x"))
        error(result, "denied", "forbidden")


async def test_a_call_has_a_time_limit_of_its_own(tmp_path: Path) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        call = {**payload("invoke", module="b", op="hang"), "timeout_ms": 50}
        [result] = await results(daemon, call)
        problem = error(result, "timeout", "timeout")
        assert problem["details"]["reason"] == "deadline"
        assert daemon.fleet.modules["b"].in_flight == 0


async def test_calls_end_with_the_request_and_their_children_too(tmp_path: Path) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(
        tmp_path, a, b, operator=allowing(tmp_path), memory=JournalOptions()
    ) as daemon:
        args = {"calls": [payload("invoke", module="b", op="hang")]}
        handle, asker = begun(daemon, "a", "calls", args=args)
        while not daemon.fleet.modules["b"].in_flight:
            await trio.lowlevel.checkpoint()
        handle.cancel(LATE)
        assert (await asker.document())["error"]["code"] == "timeout"
        child = await invoked(daemon, "hang")
        assert child["error"]["details"]["reason"] == "parent_ended"
        assert daemon.fleet.modules["b"].in_flight == 0
        left = await ask(
            daemon, "a", "leave", args={"calls": [payload("invoke", module="b", op="hang")]}
        ).document()
        assert left["ok"]
        # Nothing is left of either: the module serves on.
        [result] = await results(daemon, payload("log", message="x"))
        assert not result["is_error"]


async def test_an_id_that_is_open_is_not_used_again_and_a_wrong_request_is_a_stray(
    tmp_path: Path,
) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b")
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        hang = {**payload("invoke", "same", module="b", op="hang"), "timeout_ms": 1000}
        stray = {"type": "host_call", "requestId": "r0", "payload": payload("log", message="x")}
        found = await results(daemon, hang, hang, lines=[stray])
        words = {
            error(one, one["error"]["code"], one["error"]["details"]["code"])["message"]
            for one in found
        }
        assert len(words) == 3
        assert any("open already" in one for one in words)
        assert any("'r0'" in one for one in words)
        assert daemon.fleet.modules["a"].counters.late_lines == 1


async def test_a_call_without_an_id_is_a_warning_and_without_the_feature_a_fault(
    tmp_path: Path,
) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b", "plain")
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        nameless = {"method": "log", "params": {"message": "x"}}
        asker = ask(daemon, "a", "leave", args={"calls": [nameless]})
        [warning] = (await asker.document())["warnings"]
        assert (warning["reason"], '"call_id"' in warning["message"]) == ("bad_host_call", True)
        asker = ask(daemon, "b", "leave", args={"calls": [payload("log", message="x")]})
        assert (await asker.document())["error"]["details"]["reason"] == "unknown_type"


async def test_no_more_calls_are_open_than_a_request_may_have(tmp_path: Path) -> None:
    a, b = caller(tmp_path, "a"), caller(tmp_path, "b", supervision={"queue": 2000})
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        calls = [
            {**payload("invoke", str(number), module="b", op="hang"), "timeout_ms": 10_000}
            for number in range(1030)
        ]
        found = await results(daemon, *calls)
        refused = [one["error"] for one in found if "1024 calls open" in one["error"]["message"]]
        assert [one["details"]["reason"] for one in refused] == ["limit_reached"] * 6


async def test_who_waits_for_the_host_is_not_silent(tmp_path: Path) -> None:
    silent = {"concurrency": 1, "timeouts": {"silence_s": 3}}
    a, b = caller(tmp_path, "a", supervision=silent), caller(tmp_path, "b")
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        calls = [payload("invoke", module="b", op="hang")]
        document = await ask(daemon, "a", "calls", args={"calls": calls}, timeout_s=5).document()
        assert document["error"]["details"]["reason"] == "deadline"


async def test_who_calls_while_the_daemon_ends_is_told_whether_to_try_again(tmp_path: Path) -> None:
    patient = {"timeouts": {"stop_s": GENEROUS_S, "exit_s": 0.1}}
    hasty = {"concurrency": 1, "timeouts": {"stop_s": 0.1, "exit_s": 0.1}}
    a = caller(tmp_path, "a", supervision=patient)
    b = caller(tmp_path, "b", supervision=hasty)
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        calls = [payload("invoke", call, module="b", op="hang") for call in ("served", "queued")]
        asker = ask(daemon, "a", "calls", args={"calls": calls})
        called = daemon.fleet.modules["b"]
        while not (called.in_flight and called.queued):
            await trio.testing.wait_all_tasks_blocked(0.001)
        await daemon.stop_fleet()
        document = await asker.document()
    told = {one["call_id"]: one["error"] for one in document["result"]["results"]}
    for call, safe in (("served", False), ("queued", True)):
        details = told[call]["details"]
        assert (details["code"], details["reason"]) == ("unreachable", "stopping"), told[call]
        assert details["retry_safe"] is told[call]["retryable"] is safe
        assert ("trying again is safe" in told[call]["message"]) is safe
