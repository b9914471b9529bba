"""Of `test_session_invocations.py`, what is bound to the structure."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.events import StatePatch, StatePatched
from supervisor.faces.module_wire import event_line
from supervisor.kernel.kernel import Kernel, RefusedError, Times
from supervisor.kernel.sessions.session import Session
from supervisor.policy.findings import Found
from tests.factories import actor, script
from tests.kernel.conftest import ask
from tests.kernel.remembering import FULL, Remembering
from tests.kernel.test_session_invocations import DONE, _refused, _run, end_of, patch, saying
from tests.principals import ADA
from tests.schemas.local_registry import validator


@asynccontextmanager
async def daemon_that_remembers(
    recorder: Remembering,
    *descriptors: Any,
    folder: Path,
    with_sessions: bool = True,
    times: Times | None = None,
) -> AsyncIterator[Kernel]:
    async with Kernel(
        Found(descriptors),
        data_dir=folder / "data",
        recorder=recorder.again(),
        with_sessions=with_sessions,
        times=times,
    ) as daemon:
        yield daemon


def session(daemon: Kernel, session_id: str = "s") -> Session:
    found = daemon.sessions.find(session_id, ADA)
    assert isinstance(found, Session)
    return found


@pytest.mark.clause("N001-4.2-b")
async def test_patches_are_merged_as_they_come_and_told_with_their_revision(
    tmp_path: Path,
) -> None:
    body = saying(patch({"flags": {"lit": True}}), patch({"flags": {"lit": None}, "n": 1}), DONE)
    recorder = Remembering()
    async with daemon_that_remembers(recorder, script(tmp_path, body), folder=tmp_path) as daemon:
        daemon.sessions.new(ADA, "s")
        asker = ask(daemon, "m", session_id="s")
        document = await asker.document()
        assert (document["ok"], document["session_id"], document["warnings"]) == (True, "s", [])
        told = [(one.patch, one.revision) for one in asker.events if isinstance(one, StatePatched)]
        assert told == [({"flags": {"lit": True}}, 1), ({"flags": {"lit": None}, "n": 1}, 2)]
        assert session(daemon).kept.state == {"flags": {}, "n": 1}
        entries = recorder.of("session:patch")
        assert {one["module"] for one in entries} == {"m"}
        assert {one["request_id"] for one in entries} == {document["request_id"]}
        line = json.loads(event_line(asker.events[1], "a"))
        assert line == {**patch({"flags": {"lit": None}, "n": 1}), "revision": 2, "requestId": "a"}
        validator("narratoria-event.v0").validate(line)


async def test_without_sessions_any_id_is_passed_on_and_nothing_is_kept(tmp_path: Path) -> None:
    recorder = Remembering()
    body = "read -r line; case $line in *) ;; esac\n" + saying(patch({"a": 1}), DONE)
    async with daemon_that_remembers(
        recorder, script(tmp_path, body), folder=tmp_path, with_sessions=False
    ) as daemon:
        asker = ask(daemon, "m", session_id="whatever")
        document = await asker.document()
        assert (document["ok"], document["session_id"]) == (True, "whatever")
        assert type(asker.events[0]) is StatePatch
        assert recorder.of("session:patch") == []
        assert list(recorder.documents("session")) == []


async def test_an_answer_with_a_session_waits_for_the_disk_and_another_does_not(
    tmp_path: Path,
) -> None:
    recorder = Remembering()
    async with daemon_that_remembers(recorder, actor(tmp_path), folder=tmp_path) as daemon:
        daemon.sessions.new(ADA, "s")
        recorder.slow = True
        held = ask(daemon, "m", session_id="s")
        assert (await ask(daemon, "m").document())["ok"]  # after the other one, in order
        assert held.responses == []
        assert len(recorder.waiting) == 1
        recorder.catch_up()
        assert (await held.document())["ok"]


async def test_an_answer_whose_change_cannot_be_stored_says_so(tmp_path: Path) -> None:
    recorder = Remembering()
    async with daemon_that_remembers(recorder, actor(tmp_path), folder=tmp_path) as daemon:
        daemon.sessions.new(ADA, "s")
        recorder.slow = True
        good = ask(daemon, "m", session_id="s")
        bad = ask(daemon, "m", "exit", session_id="s", args={"code": 3})
        while len(recorder.waiting) < 2:
            await trio.lowlevel.checkpoint()
        recorder.catch_up(FULL)
        recorder.slow = False
        document = await good.document()
        assert end_of(document) == ("internal", "storage")
        assert document["error"]["message"] == (
            "m answered, but what m.echo changed could not be stored: the disk is full"
        )
        validator("response.v1").validate(json.loads(json.dumps(document)))
        # Why it failed is worth more than that it was not stored.
        document = await bad.document()
        assert end_of(document) == ("unreachable", "exited")
        assert [one["reason"] for one in document["warnings"]] == ["storage"]


async def test_a_disk_that_does_not_answer_holds_an_answer_for_a_bounded_time(
    tmp_path: Path,
) -> None:
    recorder = Remembering()
    async with daemon_that_remembers(
        recorder, actor(tmp_path), folder=tmp_path, times=Times(flush_s=0.01)
    ) as daemon:
        daemon.sessions.new(ADA, "s")
        recorder.slow = True
        document = await ask(daemon, "m", session_id="s").document()
        assert end_of(document) == ("internal", "storage")
        assert "took longer than 0.01 s" in document["error"]["message"]
        recorder.catch_up()  # too late: the answer is given
        with pytest.raises(RefusedError, match="took longer"):
            await _run(daemon, "session.new")


async def test_while_nothing_can_be_kept_a_session_is_refused_and_the_rest_works(
    tmp_path: Path,
) -> None:
    recorder = Remembering()
    async with daemon_that_remembers(recorder, actor(tmp_path), folder=tmp_path) as daemon:
        daemon.sessions.new(ADA, "s")
        recorder.broken = FULL
        (response,) = ask(daemon, "m", session_id="s").responses
        assert end_of(response.document()) == ("internal", "storage")
        assert (await ask(daemon, "m").document())["ok"]
        recorder.broken = None
        assert (await ask(daemon, "m", session_id="s").document())["ok"]


async def test_a_daemon_that_ends_waits_for_the_disk_and_not_for_ever(
    tmp_path: Path,
) -> None:
    recorder = Remembering()
    async with daemon_that_remembers(
        recorder, actor(tmp_path), folder=tmp_path, times=Times(flush_s=0.01)
    ) as daemon:
        daemon.sessions.new(ADA, "s")
        recorder.slow = True
        asker = ask(daemon, "m", "hang", session_id="s")
    (response,) = asker.responses
    assert end_of(response.document()) == ("cancelled", "shutdown")
    assert [one.reason for one in response.notices] == ["storage"]


async def test_an_op_that_is_done_and_not_stored_says_other_words_than_a_refused_one(
    tmp_path: Path,
) -> None:
    recorder = Remembering()
    async with daemon_that_remembers(recorder, folder=tmp_path) as daemon:
        recorder.failure = FULL
        failure = await _refused(daemon, "session.new", session_id="a")
        assert failure.details["reason"] == "storage"
        assert failure.message == "it is done, but could not be stored: the disk is full"
        assert session(daemon, "a").kept.revision == 0
        recorder.broken = FULL
        assert await _refused(daemon, "session.patch", session_id="a", patch={}) == FULL
        assert session(daemon, "a").kept.revision == 0
