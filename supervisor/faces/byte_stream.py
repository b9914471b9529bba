"""Carry a conversation over a pair of byte streams: a socket, or stdin and stdout."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from functools import partial

import structlog
import trio

from protocol.errors import Reason
from supervisor.faces.conversation import Conversation
from supervisor.faces.outbox import Outbox
from supervisor.policy.verdict import Stopped
from supervisor.runtime.turns import SharedTurn

READ_BYTES = 65536

FLUSH_S = 5.0
"""How long a client may take to read its last answers, when it has ended its side or the daemon
ends; the rest is dropped."""

LOOK_S = 0.5
"""How often a client that has stopped writing is checked while it waits for an answer: the kernel
does not wake a reader for a hang-up after the end of the input."""

log = structlog.get_logger()


async def read_some(descriptor: int, *, drained: bool = False) -> bytes:
    """Wait for bytes; `b""` at the end, or when the other side is gone.

    With `drained` the first read waits, as in `runtime.process.pipes.read`.
    """
    if drained:
        await trio.lowlevel.wait_readable(descriptor)
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(descriptor)
        except OSError:
            return b""


async def carry(
    conversation: Conversation, reading: int, writing: int, parting: SharedTurn | None = None
) -> bytes | None:
    """Serve a client until it is done; what it leaves open is cancelled.

    A client may end its own side and still wait for answers (`nc -N`); it has gone when its side
    hung up, or when writing to it fails. When the daemon has stopped its modules, all that is open
    is answered and the client is given time to take it. Clients that have a turn for `parting` in
    common part in it.

    A client that asks for MCP is done, too, once it has been written all answers. Returned is what
    was read of it from there on; None of any other client.
    """
    unserved = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_out, conversation.outbox, writing, nursery.cancel_scope.cancel)
        nursery.start_soon(_part, conversation, nursery.cancel_scope.cancel)
        with conversation.until_mcp:
            async with trio.open_nursery() as serving:
                serving.start_soon(conversation.serve_held)
                await _read(conversation, reading)
                if parting is not None:
                    await parting.wait()
                conversation.receive_eof()
                # Of two pipes, the end of the one says nothing about who reads the other.
                if not _hung_up(writing):
                    nursery.start_soon(_watch_hang_up, writing, nursery.cancel_scope.cancel)
                    await conversation.wait_answered()
                    await _flush(conversation)
                nursery.cancel_scope.cancel()
        read = conversation.take_unserved()
        words = "the connection is an MCP client's from here on"
        await conversation.cancel_all(Stopped(Reason.CLIENT, words))
        await _flush(conversation)
        if not conversation.outbox.waiting_bytes:
            unserved = read
        nursery.cancel_scope.cancel()
    return unserved


async def _read(conversation: Conversation, reading: int) -> None:
    """Receive what a client says, until the end of that."""
    drained, pollable = False, _is_pollable(reading)
    while data := await read_some(reading, drained=drained):
        if not conversation.turn.may_begin:
            try:
                await conversation.turn.wait(len(data))
            except trio.Cancelled:
                conversation.hold(data)  # it may be for MCP
                raise
        conversation.receive_data(data)
        await conversation.wait_room()
        drained = pollable and len(data) < READ_BYTES
        if not drained:
            await trio.lowlevel.checkpoint()  # one chunk, then the neighbours' turn


async def disconnect(conversation: Conversation) -> None:
    """Cancel the requests of a client that is gone; not cancelled itself."""
    await conversation.close(Stopped(Reason.DISCONNECT, "the client closed its connection"))


def _is_pollable(descriptor: int) -> bool:
    """Tell whether reading can be waited for: a file or /dev/null, as a stdin may be, cannot."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)


async def write_out(outbox: Outbox, writing: int, gone: Callable[[], None]) -> None:
    """Write the outbox; call `gone` if the client has gone."""
    outbox.write_through(partial(os.write, writing))
    while data := await outbox.take():
        left = memoryview(data)
        while left:
            try:
                written = os.write(writing, left)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(writing)
            except OSError:
                gone()
                return
            else:
                left = left[written:]
                outbox.written(written)
        if outbox.waiting_bytes:  # else `take` waits
            await trio.lowlevel.checkpoint()


async def _part(conversation: Conversation, gone: Callable[[], None]) -> None:
    await conversation.wait_fleet_stopped()
    await conversation.cancel_all(Stopped(Reason.SHUTDOWN, "the daemon is stopping"))
    await _flush(conversation)
    gone()


async def _flush(conversation: Conversation) -> None:
    with trio.move_on_after(FLUSH_S):
        await conversation.wait_answered()  # what waited was not open yet
        await conversation.outbox.wait_empty()
    if conversation.outbox.waiting_bytes:
        log.warning("answers dropped: not read", bytes=conversation.outbox.waiting_bytes)


async def _watch_hang_up(writing: int, gone: Callable[[], None]) -> None:
    while not _hung_up(writing):  # noqa: ASYNC110 - there is no event for it, see LOOK_S
        await trio.sleep(LOOK_S)
    gone()


def _hung_up(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(state & (select.POLLHUP | select.POLLERR) for _, state in poll.poll(0))
