"""Calls of one process whose clients do not read: told to pause, told to go on, ended alone."""

from __future__ import annotations

import json
from pathlib import Path

import trio.testing

from protocol.connection import Flow
from protocol.errors import Reason
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import Call, Congestion
from supervisor.runtime.supervision.flow_control import FlowControl
from tests.factories import Heard, actor, call
from tests.runtime.conftest import Running

CALM = {"health": {"interval_s": 1000}, "concurrency": 2}


class Scene:
    """Two calls in flight, and what becomes of them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Flow]] = []
        self.ended: list[tuple[Call, Reason]] = []
        self.a, self.ear = call("stream")
        self.b, self.other = call("stream")
        self.name = self.a.request.request_id
        self.calls = {one.request.request_id: one for one in (self.a, self.b)}
        self.flow = FlowControl(self.calls, self._tell, self._end)

    def _tell(self, request_id: str, operation: Flow) -> None:
        self.told.append((request_id, operation))

    def _end(self, call: Call, stopped: Stopped) -> None:
        self.ended.append((call, stopped.reason))


def test_the_process_is_not_read_while_all_it_serves_are_slow() -> None:
    scene = Scene()
    assert not scene.flow.pauses_all([scene.a])
    scene.ear.slow = scene.other.slow = Congestion.SLOW
    assert scene.flow.pauses_all([scene.a])
    scene.flow.heard([scene.a])
    assert not scene.told
    scene.other.slow = Congestion.NONE
    assert not scene.flow.pauses_all([scene.a])


def test_a_slow_call_is_told_once_to_pause_and_once_to_go_on() -> None:
    scene = Scene()
    scene.ear.slow = Congestion.SLOW
    scene.flow.heard([scene.a, scene.b])
    scene.flow.heard([scene.a])
    scene.flow.look()
    assert scene.told == [(scene.name, Flow.PAUSE)]
    scene.ear.slow = Congestion.NONE
    scene.flow.look()
    scene.flow.look()
    assert scene.told == [(scene.name, Flow.PAUSE), (scene.name, Flow.RESUME)]
    assert not scene.ended


def test_one_that_goes_on_for_too_long_is_ended_and_nobody_else() -> None:
    scene = Scene()
    scene.ear.slow = Congestion.FULL
    scene.flow.heard([scene.a, scene.b])
    assert scene.ended == [(scene.a, Reason.SLOW_READER)]


def test_one_that_was_answered_while_it_paused_is_not_told_to_go_on() -> None:
    scene = Scene()
    scene.ear.slow = Congestion.SLOW
    scene.flow.heard([scene.a])
    del scene.calls[scene.name]
    scene.flow.look()
    assert scene.told == [(scene.name, Flow.PAUSE)]


async def test_a_process_that_was_not_read_is_read_again_for_another_call(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    slow, heard = call("events", count=2000, pad="x" * 100)
    heard.slow = Congestion.SLOW
    module.submit(slow)
    await heard.heard(1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(heard.events) < 2000
    other, answer = call("echo", n=1)
    module.submit(other)
    assert (await answer.success()).result == {"n": 1}
    assert len(heard.events) == 2000  # nothing of it is lost


async def test_a_call_whose_client_does_not_read_lets_others_pass_until_it_does(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision={**CALM, "concurrency": 1}))
    first, served = call("echo")
    slow, heard = call("echo", n=1)
    other, answer = call("echo", n=2)
    heard.slow = Congestion.SLOW
    for one in (first, slow, other):
        module.submit(one)
    await served.success()
    assert (await answer.success()).result == {"n": 2}
    assert not heard.outcomes
    assert module.queued == 1
    heard.slow = Congestion.NONE
    module.resume(slow)
    assert (await heard.success()).result == {"n": 1}


async def test_one_that_stands_aside_can_be_given_up_or_refused_like_any_that_waits(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision={**CALM, "concurrency": 1}))
    first, served = call("echo")
    calls = [call("echo") for _ in range(2)]
    module.submit(first)
    for one, heard in calls:
        heard.slow = Congestion.SLOW
        module.submit(one)
    await served.success()
    (one, given_up), (_, refused) = calls
    module.give_up(one, Stopped(Reason.DEADLINE, "it took too long"))
    assert "still waiting for its turn" in (await given_up.failure()).message
    await running.down()
    assert (await refused.failure()).code == "unreachable"
    assert module.queued == 0


async def test_what_nobody_reads_beside_others_ends_with_the_reason_and_the_process_stays(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    slow, heard = call("hang")
    heard.slow = Congestion.FULL
    module.submit(slow)
    named = {"requestId": slow.request.request_id}
    event = {"version": "0", "type": "log", **named, "level": "info", "message": "unread"}
    said, _ = call("say", lines=[json.dumps(event)])
    module.submit(said)
    failure = await heard.failure()
    assert (failure.code, failure.details["reason"]) == ("unreachable", "slow_reader")
    assert await asked_who(running) == "m#1"


async def asked_who(running: Running) -> str:
    one, heard = call("whoami")
    running.module.submit(one)
    answer: Heard = heard
    return str((await answer.success()).result["instance"])
