"""Invocations that name a session: what is checked, merged, told, waited for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Failure
from protocol.events import Progress, StatePatch, StatePatched
from supervisor.kernel.kernel import JournalOptions, Kernel, Party, RefusedError
from supervisor.kernel.operations.sessions import MAX_PAGE
from supervisor.policy.findings import Found
from tests.factories import actor, script
from tests.kernel.conftest import Asker, ask, daemon_with, own, refused, run_op
from tests.kernel.noted import noted
from tests.principals import ADA

DONE = {"version": "0", "type": "done", "ok": True, "summary": "lit"}


def patch(value: Any, **others: Any) -> dict[str, Any]:
    return {"version": "0", "type": "state_patch", "patch": value, **others}


def saying(*events: dict[str, Any]) -> str:
    """Write the body of a script that prints these lines."""
    return "\n".join(f"printf '%s\\n' '{json.dumps(event)}'" for event in events)


@asynccontextmanager
async def remembering(folder: Path, *descriptors: Any) -> AsyncIterator[Kernel]:
    """Run a daemon with a journal."""
    found, data_dir = Found(descriptors), folder / "data"
    async with Kernel(found, data_dir=data_dir, memory=JournalOptions()) as daemon:
        yield daemon


async def show(daemon: Kernel) -> dict[str, Any]:
    found: dict[str, Any] = await _run(daemon, "session.show", session_id="s")
    return found


def end_of(document: dict[str, Any]) -> tuple[str, str]:
    return document["error"]["code"], document["error"]["details"]["reason"]


async def test_a_modules_own_field_revision_means_nothing(tmp_path: Path) -> None:
    body = saying(patch({"a": 1}, revision="x"), patch({"b": 2}, revision=[]), DONE)
    async with remembering(tmp_path, script(tmp_path, body)) as daemon:
        daemon.sessions.new(ADA, "s")
        asker = ask(daemon, "m", session_id="s")
        assert (await asker.document())["ok"]
        assert [one.revision for one in asker.events if isinstance(one, StatePatched)] == [1, 2]


async def test_without_a_session_a_patch_is_passed_on_and_kept_nowhere(tmp_path: Path) -> None:
    made = script(tmp_path, saying(patch({"a": 1}), DONE))
    async with remembering(tmp_path, made) as daemon:
        asker = ask(daemon, "m")
        assert (await asker.document())["ok"]
        (event,) = asker.events
        assert type(event) is StatePatch
        assert (await _run(daemon, "session.list"))["sessions"] == []
        assert await noted(daemon, "session:patch") == []


async def test_a_patch_that_is_refused_is_a_warning_and_the_invocation_goes_on(
    tmp_path: Path,
) -> None:
    deep: Any = {}
    for _ in range(64):
        deep = {"a": deep}
    body = saying(patch({"a": 1}), patch(deep), patch({"b": 2}), DONE)
    async with remembering(tmp_path, script(tmp_path, body)) as daemon:
        daemon.sessions.new(ADA, "s")
        asker = ask(daemon, "m", session_id="s")
        document = await asker.document()
        assert document["ok"]
        (warning,) = document["warnings"]
        assert warning["reason"] == "patch_refused"
        assert warning["message"] == "the patch is nested more than 64 levels deep"
        assert len(asker.events) == 2
        assert (await show(daemon))["state"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("session_id", "reason", "words"),
    [
        ("evening-wlak", "unknown_session", "did you mean 'evening-walk'?"),
        ("over", "session_ended", "has ended"),
        ("", "malformed_request", "is empty"),
        ("x" * 129, "malformed_request", "129 characters"),
        ("a\nb", "malformed_request", "control character"),
        (7, "malformed_request", "must be a string"),
        ([], "malformed_request", "must be a string"),
    ],
)
async def test_a_session_that_is_not_there_is_a_refusal_before_the_module_is_bothered(
    tmp_path: Path, session_id: Any, reason: str, words: str
) -> None:
    made = actor(tmp_path, supervision={"start": "lazy"})
    async with remembering(tmp_path, made) as daemon:
        daemon.sessions.new(ADA, "evening-walk")
        daemon.sessions.new(ADA, "over")
        daemon.sessions.end(ADA, "over")
        asker = ask(daemon, "m", session_id=session_id)
        (response,) = asker.responses
        assert end_of(response.document()) == ("bad_request", reason)
        assert words in response.document()["error"]["message"]
        assert daemon.fleet.modules["m"].state == "down"


async def test_a_session_is_busy_while_something_is_in_flight_and_then_as_that_ended(
    tmp_path: Path,
) -> None:
    made = actor(tmp_path, supervision={"concurrency": 8})
    async with remembering(tmp_path, made) as daemon:
        daemon.sessions.new(ADA, "s")
        hanging = ask(daemon, "m", "hang", session_id="s", timeout_s=1000)
        assert (await ask(daemon, "m", session_id="s").document())["ok"]
        shown = await show(daemon)
        assert (shown["status"], shown["in_flight"]) == ("busy", 1)
        daemon.sessions.end(ADA, "s")
        assert end_of(await hanging.document()) == ("cancelled", "client")
        assert (await show(daemon))["status"] == "ended"


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        ("nobody", {"op": "x"}),
        ("m", {}),
        ("m", {"op": "echo", "args": []}),
        ("m", {"op": "echo", "timeout_s": -1}),
        ("m", {"op": "echo"}),
    ],
)
async def test_a_request_that_never_reaches_a_module_leaves_no_session_busy(
    tmp_path: Path, tool: str, content: dict[str, Any]
) -> None:
    made = actor(tmp_path, supervision={"start": "lazy"})
    async with remembering(tmp_path, made) as daemon:
        daemon.fleet.modules["m"].stop("the test")  # so that a good one is refused too
        daemon.sessions.new(ADA, "s")
        asker = Asker()
        daemon.begin(Party(ADA), tool, "invoke", {**content, "session_id": "s"}, asker)
        document = await asker.document()
        assert document["ok"] is False
        shown = await show(daemon)
        assert (shown["in_flight"], shown["status"]) == (0, "error")
        (past,) = shown["history"]
        assert past["code"] == document["error"]["code"]


async def test_a_daemon_that_ends_tells_those_in_flight_and_keeps_the_history(
    tmp_path: Path,
) -> None:
    async with remembering(tmp_path, actor(tmp_path)) as daemon:
        daemon.sessions.new(ADA, "s")
        asker = ask(daemon, "m", "hang", session_id="s")
    (response,) = asker.responses
    assert end_of(response.document()) == ("cancelled", "shutdown")
    async with remembering(tmp_path) as daemon:
        shown = await show(daemon)
        assert shown["status"] == "cancelled"
        (past,) = shown["history"]
        assert (past["op"], past["code"]) == ("hang", "cancelled")


async def test_status_counts_the_sessions(tmp_path: Path) -> None:
    async with remembering(tmp_path, actor(tmp_path)) as daemon:
        for name in "abc":
            daemon.sessions.new(ADA, name)
        daemon.sessions.end(ADA, "c")
        ask(daemon, "m", "hang", session_id="b", timeout_s=1000)
        status = await _run(daemon, "status")
        assert status["daemon"]["sessions"] == {"live": 2, "busy": 1, "ended": 1}


# The ops.


async def _nothing(event: Progress | None) -> None:
    raise AssertionError(event)


async def _run(daemon: Kernel, op: str, **args: Any) -> Any:
    return await run_op(daemon, op, args, _nothing)


async def _refused(daemon: Kernel, op: str, **args: Any) -> Failure:
    with pytest.raises(RefusedError) as caught:
        await _run(daemon, op, **args)
    return caught.value.failure


async def test_the_ops_lead_through_the_life_of_a_session(tmp_path: Path) -> None:
    async with remembering(tmp_path) as daemon:
        plan = {"goal": "g", "inputs": {}}
        new = await _run(daemon, "session.new", session_id="a", plan=plan, state={"n": 1})
        assert (new["session_id"], new["status"], new["revision"]) == ("a", "idle", 0)
        patched = await _run(daemon, "session.patch", session_id="a", patch={"m": 2}, if_revision=0)
        assert patched == {"session_id": "a", "revision": 1}
        conflict = await _refused(
            daemon, "session.patch", session_id="a", patch={"m": 3}, if_revision=0
        )
        assert (conflict.details["reason"], conflict.details["revision"]) == (
            "revision_conflict",
            1,
        )
        await _run(daemon, "session.fork", session_id="a", new_id="b", title="B")
        ended = await _run(daemon, "session.end", session_id="a")
        assert (ended["status"], ended["cancelled"]) == ("ended", 0)
        listed = await _run(daemon, "session.list")
        assert [one["session_id"] for one in listed["sessions"]] == ["b"]
        counts = {"live": 1, "busy": 0, "ended": 1}
        assert {key: listed[key] for key in counts} == counts
        page = await _run(daemon, "session.list", ended=True, limit=1)
        assert page["next"] == "b"
        page = await _run(daemon, "session.list", ended=True, limit=1, after="b")
        assert ([one["session_id"] for one in page["sessions"]], page["next"]) == (["a"], None)
        shown = await _run(daemon, "session.show", session_id="b")
        assert (shown["state"], shown["plan"]) == ({"n": 1, "m": 2}, plan)
        unknown = await _refused(daemon, "session.show", session_id="c")
        assert unknown.details["reason"] == "unknown_session"


@pytest.mark.parametrize(
    ("op", "args", "pointer"),
    [
        ("session.new", {"state": []}, "/state"),
        ("session.new", {"session_id": 5}, "/session_id"),
        ("session.patch", {"session_id": "a", "patch": [1]}, "/patch"),
        ("session.patch", {"session_id": "a"}, "/patch"),
        ("session.patch", {"session_id": "a", "patch": {}, "if_revision": -1}, "/if_revision"),
        ("session.list", {"limit": MAX_PAGE + 1}, "/limit"),
        ("session.show", {}, "/session_id"),
    ],
)
async def test_args_that_do_not_fit_are_refused_with_their_place(
    tmp_path: Path, op: str, args: dict[str, Any], pointer: str
) -> None:
    async with remembering(tmp_path) as daemon:
        refusal = await refused(daemon, op, args)
        assert (refusal.details["reason"], refusal.details["pointer"]) == ("invalid_args", pointer)


async def test_a_plan_that_is_none_is_refused_with_its_place(tmp_path: Path) -> None:
    async with remembering(tmp_path) as daemon:
        failure = await _refused(daemon, "session.new", plan={"goal": 5, "inputs": {}})
        assert failure.details == {
            "origin": "host",
            "reason": "invalid_args",
            "pointer": "/plan/goal",
        }


SESSION = "the session 's'"


@pytest.mark.parametrize(
    ("op", "args", "words"),
    [
        ("session.cancel", {"force": True}, f"all that was in flight for {SESSION} was cancelled"),
        ("session.end", {}, f"{SESSION} was ended"),
    ],
)
async def test_all_that_is_in_flight_in_a_session_ends_with_it(
    op: str, args: dict[str, Any], words: str, tmp_path: Path
) -> None:
    soon = {"timeouts": {"stop_s": 0.1, "exit_s": 0.1}}
    async with daemon_with(tmp_path, actor(tmp_path, "cancel", supervision=soon)) as daemon:
        for name in "st":
            await own(daemon, ADA, "session.new", session_id=name)
        askers = [ask(daemon, "m", "hang", session_id="s") for _ in range(3)]
        other = ask(daemon, "m", "hang", session_id="t")
        done = await own(daemon, ADA, op, session_id="s", **args)
        assert done["cancelled"] == 3
        for asker in askers:
            error = (await asker.document())["error"]
            assert (error["details"]["reason"], error["message"]) == ("client", words)
        shown = await own(daemon, ADA, "session.show", session_id="s")
        assert (shown["in_flight"], shown["invocations"]) == (0, 3)
        assert not other.responses
