from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio

from protocol.errors import Failure, Pieces, Success
from supervisor.kernel.kernel import Capacity, Congestion, HeldBounds, Party
from supervisor.kernel.operations import modules
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.held_bytes import Account
from tests.bounds import WAIT_S
from tests.factories import actor, descriptor
from tests.kernel.conftest import Asker, daemon_with
from tests.kernel.test_operations import Events, refused, run
from tests.principals import ADA


async def test_logs_are_the_last_lines_and_what_follows(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        log = daemon.fleet.modules["m"].log
        for number in range(5):
            log.stderr_lines("m#1", [f"line {number}"])
        events = Events()
        await run(daemon, "logs", events, module="m", lines=2)
        assert events.texts == ["line 3", "line 4"]
        events = Events()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                lambda: run(daemon, "logs", events, module="m", lines=1, follow=True)
            )
            await events.some.wait()
            events.some = trio.Event()
            log.stderr_lines("m#1", ["line 5"])
            await events.some.wait()
            nursery.cancel_scope.cancel()
        assert events.texts == ["line 4", "line 5"]
        with trio.fail_after(WAIT_S):
            while log._followers:  # the request ends by itself
                await trio.lowlevel.checkpoint()


@pytest.mark.fault(36)
async def test_a_log_that_cannot_be_read_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(modules, "TAIL_S", 0.01)
    monkeypatch.setattr(LogFiles, "_read_tail", lambda *_: answers.wait(WAIT_S) and [])
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        assert (await refused(daemon, "logs", module="m"))[:2] == ("timeout", "deadline")
        answers.set()


@pytest.mark.fault(30)
async def test_what_was_read_of_a_log_and_is_not_sent_is_held_for_who_asked(
    tmp_path: Path,
) -> None:
    bounds = Capacity(held=HeldBounds(free=1000, least_free=1000, all=8000))
    async with (
        daemon_with(tmp_path, actor(tmp_path), bounds=bounds) as daemon,
        trio.open_nursery() as nursery,
    ):
        log = daemon.fleet.modules["m"].log
        log.stderr_lines("m#1", ["x" * 100] * 10)
        ledger = daemon.facts.ledger
        party, askers = Party(ADA), [Asker() for _ in range(5)]
        party.account = Account(ledger, party.label)
        handles = []
        for asker in askers:
            asker.slow = Congestion.SLOW  # it reads nothing
            content = {"op": "logs", "args": {"module": "m", "lines": 10}}
            handles.append(daemon.begin(party, "supervisor", "invoke", content, asker))
        with trio.fail_after(WAIT_S):
            while len(refused := [one for one in askers if one.responses]) < 3:
                await trio.lowlevel.checkpoint()
        reasons = [(await one.document())["error"]["details"]["reason"] for one in refused]
        assert reasons == ["queue_full"] * 3
        assert 2000 < ledger.total <= 5000
        for asker, handle in zip(askers, handles, strict=True):
            if asker in refused:
                continue
            asker.slow = Congestion.NONE
            assert handle is not None
            handle.resume()
            assert (await asker.document())["ok"]
        assert ledger.total == 0
        nursery.cancel_scope.cancel()


@pytest.mark.fault(29)
async def test_offers_are_encoded_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)  # each module is a turn of its own
    inputs = {"go": {"type": "object"}}
    made = [
        descriptor(tmp_path, ["true"], name=name, inputs=inputs, supervision={"start": "lazy"})
        for name in ("a", "b", "c")
    ]
    async with daemon_with(tmp_path, *made) as daemon:
        asker, content = Asker(), {"op": "offers", "args": {}}
        daemon.begin(Party(ADA), "supervisor", "invoke", content, asker)
        outcome = (await asker.response()).outcome
    assert isinstance(outcome, Success)
    assert isinstance(outcome.said, Pieces)  # or it would be encoded in one step
    assert [one["module"] for one in outcome.result["modules"]] == ["a", "b", "c"]


@pytest.mark.fault(29)
async def test_an_answer_that_is_longer_than_what_may_wait_for_a_client_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)
    monkeypatch.setattr("supervisor.kernel.operations.long_answers.PARTY_BYTES", 100)
    lazy = {"start": "lazy"}
    made = [descriptor(tmp_path, ["true"], name=f"m{n}", supervision=lazy) for n in range(3)]
    async with daemon_with(tmp_path, *made) as daemon:
        asker, content = Asker(), {"op": "status", "args": {}}
        daemon.begin(Party(ADA), "supervisor", "invoke", content, asker)
        outcome = (await asker.response()).outcome
    assert isinstance(outcome, Failure)
    assert outcome.details["reason"] == "queue_full"
    assert "narrow" in outcome.message
