"""A client of the lines face that ends its side, vanishes, or does not read."""

from __future__ import annotations

import pytest
import trio

from tests.bounds import until
from tests.faces.lines import request
from tests.faces.running import UNREAD_BYTES, Running, running, written_until_not_read
from tests.system.descriptors import actor, script


async def test_a_client_that_ended_its_side_still_gets_its_answer(shared: Running) -> None:
    async with shared.lines() as client:
        line = b'{"requestId":"a","tool":"m","operation":"invoke","input":{"op":"echo"}}'
        await client.send(line)  # without its newline
        await client.stream.send_eof()
        (done,) = await client.rest()
        assert (done["requestId"], done["ok"]) == ("a", True)


@pytest.mark.parametrize("half_closed_first", [False, True])
async def test_a_client_that_vanished_has_its_requests_cancelled(half_closed_first: bool) -> None:
    async with running(actor()) as face:
        async with face.lines() as client:
            await client.send(request("a", "m", op="hang"), request("b", "m", op="hang"))
            await face.has_in_flight(1)
            while face.daemon.status("m")["queued"] != 1:
                await trio.lowlevel.checkpoint()
            if half_closed_first:
                await client.stream.send_eof()
                for _ in range(20):  # it has noticed, and goes on
                    assert face.daemon.status("m")["in_flight"] == 1
        while face.daemon.status("m")["counters"]["failures"] < 2:
            await trio.lowlevel.checkpoint()
        found = face.daemon.status("m")
        assert (found["in_flight"], found["queued"], found["state"]) == (0, 0, "ready")


async def test_a_client_that_reads_nothing_costs_bounded_memory_and_nobody_else() -> None:
    modules = actor(name="noisy"), actor(name="quiet")
    async with running(*modules) as face, face.lines() as slow, face.lines() as other:
        count = 40_000
        await slow.send(request("s", "noisy", op="events", args={"count": count, "pad": "x" * 100}))
        await face.holds_unread()
        for number in range(20):
            await other.send(request(str(number), "quiet", op="echo"))
            assert (await other.done())["ok"] is True
            assert face.held_bytes < UNREAD_BYTES + 2 * 65536
        events = 0
        while (line := await slow.line() or {})["type"] != "done":
            assert line["message"].startswith(f"{events} ")
            events += 1
        assert (events, line["ok"]) == (count, True)


async def test_a_client_that_writes_and_never_reads_is_not_read_for_ever(shared: Running) -> None:
    async with shared.lines() as client:
        assert await written_until_not_read(shared, client, b"not json\n") < 4 * UNREAD_BYTES


CONVERSATIONS = 20


async def test_conversations_leave_no_process_and_no_descriptor() -> None:
    modules = script("sleep 1000"), actor(name="n")
    async with running(*modules) as face:

        async def speak() -> None:
            async with face.lines() as client:
                await client.send(request("a", "m", op="x"), request("b", "n", op="echo"))
                assert (await client.done())["requestId"] == "b"
            await face.is_alone()
            await face.has_in_flight(0)

        await speak()
        # A few more may be kept for what comes next, but not one for each conversation.
        files = face.daemon.open_files() + CONVERSATIONS // 2
        processes = len(face.daemon.processes()) + CONVERSATIONS // 2
        for _ in range(CONVERSATIONS):
            await speak()
        face.daemon.wait_open_files(files)
        until(lambda: len(face.daemon.processes()) <= processes, "the end of the processes")
