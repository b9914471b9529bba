from __future__ import annotations

import trio
import trio.testing

from protocol.framing import Line, Overlong
from supervisor.faces.conversation import HELD_BYTES, LINE_COST_BYTES, Inbox
from supervisor.runtime.held_bytes import Account, HeldBytes


async def test_lines_are_taken_in_the_order_they_came() -> None:
    inbox = Inbox(Account(HeldBytes(), "a client"))
    lines: list[Line] = [b"1", Overlong(10, b"2"), b"3"]
    for line in lines:
        inbox.put([line])
    assert [inbox.take() for _ in lines] == lines
    assert inbox.empty
    assert inbox.held_bytes == 0


async def test_the_reader_waits_while_too_much_is_held(nursery: trio.Nursery) -> None:
    inbox, room = Inbox(Account(HeldBytes(), "a client")), trio.Event()

    async def wait() -> None:
        await inbox.wait_room()
        room.set()

    inbox.put([b"1"])
    inbox.put([b"x" * HELD_BYTES])
    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not room.is_set()
    inbox.take()
    await trio.testing.wait_all_tasks_blocked()
    assert not room.is_set()
    inbox.take()
    await room.wait()


async def test_many_short_lines_have_a_bound_too() -> None:
    inbox = Inbox(Account(HeldBytes(), "a client"))
    for _ in range(1 + HELD_BYTES // LINE_COST_BYTES):
        inbox.put([b""])
    assert inbox.held_bytes > HELD_BYTES
