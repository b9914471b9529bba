"""Calls of one process whose clients do not read: others are served, and one too slow ends."""

from __future__ import annotations

import json
from pathlib import Path

import trio.testing

from protocol.errors import Reason
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.call import Congestion
from tests.factories import Heard, actor, call
from tests.runtime.conftest import Running

CALM = {"health": {"interval_s": 1000}, "concurrency": 2}


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


async def test_the_process_is_not_read_while_the_clients_of_all_its_calls_are_slow(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    silent, unread = call("hang")
    slow, heard = call("events", count=2000, pad="x" * 100)
    unread.slow = heard.slow = Congestion.SLOW
    module.submit(silent)
    module.submit(slow)
    await heard.heard(1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(heard.events) < 2000
    heard.slow = Congestion.NONE
    module.resume(slow)
    await heard.success()
    assert len(heard.events) == 2000


async def asked_who(running: Running) -> str:
    one, heard = call("whoami")
    running.module.submit(one)
    answer: Heard = heard
    return str((await answer.success()).result["instance"])
