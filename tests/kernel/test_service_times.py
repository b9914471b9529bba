"""What becomes of a service elsewhere, and when: its log, on a virtual clock."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from tests.kernel.conftest import ask, own
from tests.kernel.service_peer import (
    EVENT,
    Asked,
    Peer,
    hang,
    head,
    peer,
    says,
    streamed,
    whole,
)
from tests.kernel.test_supervision_times import AGAIN, BACKOFF, BEGAN, NO_PROBES, READY, error_of
from tests.kernel.virtual import Clock, story
from tests.principals import ADA

ANSWERED = "starting -> ready: answered health and describe"
MISTAKEN = (
    'bad reply to health: "status" is a number, must be a string such as "ok"; '
    'expected {"status":"ok"}, or {"ok":false,"error":{"code":"unsupported_op","message":"..."}}'
)
STARTING = says(whole({"status": "starting"}))


def healths(services: Peer) -> int:
    return sum(one.path == "/m/health" for one in services.asked)


async def test_a_service_is_asked_again_and_again_until_it_is_well_or_its_time_is_over(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"timeouts": {"start_s": 2.5}, "health": NO_PROBES, "backoff": BACKOFF}
    async with peer() as services:
        services.scripts["m/health"] = STARTING
        made = services.service(tmp_path, "m", supervision=supervision)
        async with story(mock_clock, tmp_path, made) as world:
            for number, pause_s in enumerate((0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5), 1):
                await services.until(lambda: healths(services) == number)  # noqa: B023
                await world.rests(pause_s)
            await services.until(lambda: healths(services) == 9)
            await world.passes(2.5 - 2.12)
            words = (
                'was not healthy within 2.5 s; it said: the module says its health is "starting"; '
                "if it is only slow to begin, supervision.timeouts.start_s allows more"
            )
            status = await world.is_in("backoff")
            died = status["last_exit"]
            assert (died["reason"], died["message"]) == ("start_deadline", words)
            await world.stays("backoff", 3)
            await services.until(lambda: healths(services) == 10)
            del services.scripts["m/health"]
            while (status := await world.status())["state"] != "ready":
                await world.passes(0.01)
            assert (status["restarts"], [one["id"] for one in status["instances"]]) == (1, ["m#2"])
            *log, last = await world.told()
            assert log == [
                BEGAN,
                (2.5, "m#1", f"starting -> stopping: {words}"),
                (2.5, "m#1", f"stopping -> backoff: {words}"),
                (5.5, "m#1", f"backoff -> starting: {AGAIN}"),
            ]
            assert last[1:] == ("m#2", ANSWERED)
            assert services.open == 1


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        (
            {"ok": False, "error": {"code": "forbidden", "message": "not you"}},
            "bad_health",
            "answered health wrongly: not you",
        ),
        (
            {"status": 5},
            "bad_health",
            f'answered health wrongly: {MISTAKEN}: {{"status": 5}}',
        ),
        (b"<html>", "bad_health", "answered health wrongly: the line is not JSON: <html>"),
    ],
)
async def test_a_service_that_will_never_be_well_is_not_asked_again(
    tmp_path: Path, mock_clock: Clock, said: object, reason: str, words: str
) -> None:
    async with peer() as services:
        services.scripts["m/health"] = says(whole(said))
        made = services.service(tmp_path, "m", supervision={"backoff": BACKOFF})
        async with story(mock_clock, tmp_path, made) as world:
            died = (await world.is_in("backoff"))["last_exit"]
            assert (died["reason"], died["message"]) == (reason, words)
            assert healths(services) == 1


async def test_a_call_that_is_given_up_ends_its_connection_and_has_the_service_looked_at(
    tmp_path: Path, mock_clock: Clock
) -> None:
    timeouts = {"invoke_s": 5, "health_s": 2}
    supervision = {"timeouts": timeouts, "health": NO_PROBES, "concurrency": 2}
    async with peer() as services:
        made = services.service(tmp_path, "m", supervision=supervision)
        services.scripts["m/invoke"] = hang
        async with story(mock_clock, tmp_path, made) as world:
            await world.is_in("ready")
            services.scripts["m/health"] = hang
            calls = [ask(world.kernel, "m", timeout_s=timeout_s) for timeout_s in (4, 5, 9)]
            await services.until(lambda: len(services.invoked("m")) == 2)
            await world.passes(4)
            await services.until(lambda: len(services.invoked("m")) == 3)
            await services.until(lambda: healths(services) == 2)
            assert services.open == 3
            await world.passes(1)
            for call, seconds in (calls[0], 4), (calls[1], 5):
                assert await error_of(call) == (
                    "timeout",
                    f"m.echo gave no answer in {seconds} s",
                    {
                        "origin": "host",
                        "reason": "deadline",
                        "instance": "m#1",
                        "url": services.url("m"),
                    },
                )
            await services.until(lambda: services.open == 2)
            await world.stays("ready", 1)
            await world.is_in("degraded")
            await services.until(lambda: services.open == 1)
            assert (healths(services), (await world.status())["in_flight"]) == (2, 1)
            del services.scripts["m/invoke"]
            assert (await ask(world.kernel, "m").document())["ok"]
            assert await world.told() == [
                BEGAN,
                READY,
                (6, "m#1", "ready -> degraded: missed a health probe"),
                (6, "m#1", "degraded -> ready: answered invoke"),
            ]


async def test_a_service_that_misses_its_probes_is_given_up_and_looked_for_again(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {
        "timeouts": {"invoke_s": 50, "health_s": 2, "stop_s": 3},
        "health": {"interval_s": 4, "failures": 2},
        "backoff": BACKOFF,
    }
    async with peer() as services:
        made = services.service(tmp_path, "m", supervision=supervision)
        async with story(mock_clock, tmp_path, made) as world:
            await world.is_in("ready")
            services.scripts["m/health"] = hang
            for number in 2, 3:
                await world.passes(2)
                await services.until(lambda: healths(services) == number)  # noqa: B023
                if number == 3:
                    del services.scripts["m/health"]
                await world.passes(2)
            await world.has("m#2")
            await world.is_in("ready")
            missed = "missed 2 health probes in a row"
            assert await world.told() == [
                BEGAN,
                READY,
                (4, "m#1", "ready -> degraded: missed a health probe"),
                (8, "m#1", f"degraded -> stopping: {missed}"),
                (8, "m#1", f"stopping -> starting: {missed}"),
                (8, "m#2", ANSWERED),
            ]
            status = await world.status()
            assert (status["restarts"], status["last_exit"]["message"]) == (1, missed)
            await services.until(lambda: services.open == 1)


@pytest.mark.parametrize("waits_s", [2, 60])
async def test_a_service_that_is_stopped_is_parted_from_when_its_calls_are_over_or_have_had_time(
    tmp_path: Path, mock_clock: Clock, waits_s: int
) -> None:
    timeouts = {"stop_s": 3, "health_s": 1}
    supervision = {"timeouts": timeouts, "health": NO_PROBES, "concurrency": 2}
    async with peer() as services, trio.open_nursery() as nursery:
        made = services.service(tmp_path, "m", supervision=supervision)
        services.scripts["m/invoke"] = hang
        async with story(mock_clock, tmp_path, made) as world:
            await world.is_in("ready")
            call = ask(world.kernel, "m", timeout_s=waits_s)
            await services.until(lambda: len(services.invoked("m")) == 1)
            nursery.start_soon(partial(own, world.kernel, ADA, "stop", module="m"))
            await world.is_in("stopping")
            evidence = {"origin": "host", "reason": "stopping"}
            assert await error_of(ask(world.kernel, "m")) == (
                "unreachable",
                "m is being stopped",
                {**evidence, "state": "stopping"},
            )
            services.scripts["m/health"] = hang
            await world.stays("stopping", min(waits_s, 3))
            status = await world.is_in("down")
            assert (status["instances"], status["last_exit"]["reason"]) == ([], "stopped")
            await services.until(lambda: services.open == 0)
            code, words, details = await error_of(call)
            served = {"instance": "m#1", "url": services.url("m")}
            if waits_s == 2:
                assert (code, words) == ("timeout", "m.echo gave no answer in 2 s")
                evidence = {"origin": "host", "reason": "deadline"}
            else:
                assert (code, words) == ("unreachable", "m#1 is being stopped")
            assert details == {**evidence, **served}
            assert await world.told() == [
                BEGAN,
                READY,
                (0, "m#1", "ready -> stopping: a command"),
                (min(waits_s, 3), "m#1", "stopping -> down: was parted from"),
            ]


async def test_a_connection_is_used_again_unless_its_answer_has_no_end(
    tmp_path: Path, mock_clock: Clock
) -> None:
    async with peer() as services:
        made = services.service(tmp_path, "m", supervision={"health": NO_PROBES})
        async with story(mock_clock, tmp_path, made) as world:
            await world.is_in("ready")
            for _ in range(3):
                assert (await ask(world.kernel, "m").document())["ok"]
            assert {one.connection for one in services.asked} == {1}
            services.scripts["m/invoke"] = says(streamed(EVENT, {"ok": True, "result": 1}))
            for _ in range(2):
                assert (await ask(world.kernel, "m").document())["ok"]
            assert [one.connection for one in services.asked][-2:] == [1, 2]
            await world.passes(0.99)
            assert services.open == 2
            await world.passes(0.01)
            await services.until(lambda: services.open == 0)
            assert (await world.status())["instances"][0]["in_flight"] == 0


async def test_a_connection_that_the_service_closed_is_passed_over_for_one_that_is_open(
    tmp_path: Path, mock_clock: Clock
) -> None:
    async with peer() as services:
        supervision = {"health": NO_PROBES, "concurrency": 2}
        made = services.service(tmp_path, "m", supervision=supervision)
        gates = {"first": trio.Event(), "second": trio.Event()}

        async def answer(stream: trio.abc.Stream, asked: Asked) -> None:
            op = asked.body["op"]
            if op in gates:
                await gates[op].wait()
            await says(whole({"ok": True, "result": op}), then_close=op == "second")(stream, asked)

        services.scripts["m/invoke"] = answer
        async with story(mock_clock, tmp_path, made) as world:
            await world.is_in("ready")
            calls = {op: ask(world.kernel, "m", op) for op in gates}
            await services.until(lambda: len(services.invoked("m")) == 2)
            for op, call in calls.items():
                gates[op].set()
                assert (await call.document())["result"] == op
            await services.until(lambda: services.open == 1)
            await trio.testing.wait_all_tasks_blocked()
            assert (await ask(world.kernel, "m", "third").document())["result"] == "third"
            used = {one.body["op"]: one.connection for one in services.invoked("m")}
            assert used["third"] == used["first"] != used["second"]
            assert services.connections == 2


@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 1])
async def test_what_follows_an_answer_is_read_for_a_while_and_so_far(
    tmp_path: Path, mock_clock: Clock, size: int
) -> None:
    done = b'{"version":"0","type":"done","ok":true}\n'

    async def go_on(stream: trio.abc.Stream, asked: Asked) -> None:
        begun = head("application/x-ndjson", f"Content-Length: {size + 1}")
        await stream.send_all(begun + done + b" " * (size - len(done)))
        await hang(stream, asked)

    async with peer() as services:
        services.scripts["m/invoke"] = go_on
        made = services.service(tmp_path, "m", supervision={"health": NO_PROBES})
        async with story(mock_clock, tmp_path, made) as world:
            await world.is_in("ready")
            assert (await ask(world.kernel, "m").document())["ok"]
            if size == 1 << 16:
                await world.passes(0.99)
                assert services.open == 1
                await world.passes(0.01)
            await services.until(lambda: services.open == 0)


@pytest.mark.parametrize("size", [1023, 1024])
async def test_of_a_wrong_answer_so_much_is_awaited_to_quote_it_and_for_so_long(
    tmp_path: Path, mock_clock: Clock, size: int
) -> None:
    async def deny(stream: trio.abc.Stream, asked: Asked) -> None:
        await stream.send_all(head("text/plain", "Content-Length: 9000", status="400 No"))
        await stream.send_all(b"x" * size)
        await hang(stream, asked)

    async with peer() as services:
        services.scripts["m/invoke"] = deny
        made = services.service(tmp_path, "m", supervision={"health": NO_PROBES})
        async with story(mock_clock, tmp_path, made) as world:
            await world.is_in("ready")
            asker = ask(world.kernel, "m")
            await services.until(lambda: len(services.invoked("m")) == 1)
            if size == 1023:
                await world.rests(1)
            words = f"m.echo: m#1 answers with status 400: {'x' * 200}…"
            assert (await error_of(asker))[:2] == ("unreachable", words)
            await services.until(lambda: services.open == 0)
