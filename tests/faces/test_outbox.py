from __future__ import annotations

import pytest
import trio
import trio.testing

from protocol.errors import Success
from protocol.events import Log, decode_event
from protocol.readdress import Readdresser
from protocol.response import Response
from supervisor.faces.exchange import TOGETHER, Exchange
from supervisor.faces.outbox import HIGH_BYTES, LOW_BYTES, Outbox
from supervisor.runtime.held_bytes import Account, HeldBytes
from supervisor.runtime.stalls import SERVING
from supervisor.runtime.supervision.call import OVERRUN_BYTES, Congestion


class Resumed:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def account() -> Account:
    return Account(HeldBytes(), "a client")


def congested(outbox: Outbox) -> bool:
    return outbox.congested


async def test_lines_leave_together_and_in_order() -> None:
    outbox = Outbox(Resumed(), account())
    for line in (b"1\n", b"2\n", b"3\n"):
        outbox.put(line)
    assert await outbox.take() == b"1\n2\n3\n"


async def test_taking_waits_for_a_line(nursery: trio.Nursery) -> None:
    outbox, taken = Outbox(Resumed(), account()), list[bytes]()

    async def take() -> None:
        taken.append(await outbox.take())

    nursery.start_soon(take)
    await trio.testing.wait_all_tasks_blocked()
    assert taken == []
    outbox.put(b"1\n")
    await trio.testing.wait_all_tasks_blocked()
    assert taken == [b"1\n"]


async def test_congestion_begins_above_the_one_mark_and_ends_below_the_other() -> None:
    resumed = Resumed()
    outbox = Outbox(resumed, account())
    outbox.put(b"x" * HIGH_BYTES)
    assert not congested(outbox)
    outbox.put(b"x")
    assert congested(outbox)
    await outbox.take()
    assert congested(outbox)  # taken is not written
    outbox.written(HIGH_BYTES - LOW_BYTES)
    assert congested(outbox)
    outbox.written(2)
    assert not congested(outbox)
    assert resumed.times == 1


async def test_what_one_request_has_waiting_counts_and_not_what_has_been_read() -> None:
    outbox = Outbox(Resumed(), account())
    one, other = (Exchange(name, outbox, lambda _: None) for name in ("one", "other"))
    event = Log(version="0", level="info", message="x" * (OVERRUN_BYTES // 4))
    for _ in range(5):
        one.event(event, None)
    assert (one.congested(), other.congested()) == (Congestion.FULL, Congestion.SLOW)
    outbox.written(OVERRUN_BYTES // 2)
    assert one.congested() is Congestion.SLOW
    outbox.written(outbox.waiting_bytes)
    assert one.congested() is Congestion.NONE


async def test_all_who_wait_for_room_are_let_in_together(nursery: trio.Nursery) -> None:
    outbox, let_in = Outbox(Resumed(), account()), list[int]()

    async def wait(number: int) -> None:
        await outbox.wait_room()
        let_in.append(number)

    outbox.put(b"x" * (HIGH_BYTES + 1))
    for number in range(5):
        nursery.start_soon(wait, number)
    nursery.start_soon(outbox.wait_empty)
    await trio.testing.wait_all_tasks_blocked()
    assert let_in == []
    await outbox.take()
    outbox.written(HIGH_BYTES + 1)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(let_in) == [0, 1, 2, 3, 4]


async def test_empty_means_written_and_not_taken(nursery: trio.Nursery) -> None:
    outbox, empty = Outbox(Resumed(), account()), trio.Event()

    async def wait() -> None:
        await outbox.wait_empty()
        empty.set()

    outbox.put(b"12")
    nursery.start_soon(wait)
    await outbox.take()
    outbox.written(1)
    await trio.testing.wait_all_tasks_blocked()
    assert not empty.is_set()
    outbox.written(1)
    await empty.wait()


async def test_closing_drops_what_waits_and_frees_all_who_wait() -> None:
    outbox = Outbox(Resumed(), account())
    outbox.put(b"x" * (HIGH_BYTES + 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.wait_room)
        nursery.start_soon(outbox.wait_empty)
        await trio.testing.wait_all_tasks_blocked()
        outbox.close()
    outbox.put(b"nobody reads this")
    assert await outbox.take() == b""
    assert outbox.waiting_bytes == 0


LINE = b'{"version":"0","type":"log","requestId":"%b","level":"info","message":"%d"}'


async def test_events_of_a_turn_get_their_id_together_and_leave_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_by_one, written = list[bytes](), list[bytes]()
    alone = Readdresser.readdress

    def readdress(self: Readdresser, line: bytes) -> bytes | None:
        one_by_one.append(line)
        return alone(self, line)

    def write(data: bytes) -> int:
        written.append(data)
        return len(data)

    monkeypatch.setattr(Readdresser, "readdress", readdress)
    outbox = Outbox(Resumed(), account())
    outbox.write_through(write)
    one, other = (Exchange(name, outbox, lambda _: None) for name in ("one", "other"))
    told = list[bytes]()
    SERVING.begin("a module", "stdout")
    for number in range(TOGETHER * 2):
        if number == TOGETHER // 2:
            other.event(decode_event(LINE % (b"m2", 0)), LINE % (b"m2", 0))
            told.append(LINE % (b"other", 0))
        one.event(decode_event(LINE % (b"m1", number)), LINE % (b"m1", number))
        told.append(LINE % (b"one", number))
    one.finished(Response(Success({})))
    assert written == []
    SERVING.end()
    (all_,) = written
    *events, done, end = all_.split(b"\n")
    assert (events, b'"done"' in done, end) == (told, True, b"")
    assert len(one_by_one) == 2  # the first of each, which tells where the place of the id is
    assert outbox.waiting_bytes == 0


async def test_events_that_are_gathered_are_not_lost_when_others_are_taken() -> None:
    outbox = Outbox(Resumed(), account())
    outbox.write_through(lambda _: 0)
    one = Exchange("one", outbox, lambda _: None)
    SERVING.begin("a module", "stdout")
    for number in range(3):
        one.event(decode_event(LINE % (b"m", number)), LINE % (b"m", number))
    assert await outbox.take() == b"".join(LINE % (b"one", number) + b"\n" for number in range(3))
    one.event(decode_event(LINE % (b"m", 3)), LINE % (b"m", 3))
    SERVING.end()
    outbox.close()
