"""What waits for a client is put together to be written, but never much of it in one step."""

from __future__ import annotations

import msgspec
import pytest

from protocol.errors import Pieces, Success
from protocol.response import Response
from supervisor.faces.module_wire import LineClient
from supervisor.faces.outbox import TOGETHER_BYTES, Outbox
from supervisor.runtime.held_bytes import Account, HeldBytes
from supervisor.runtime.turns import LOOP

LONG = b'"%b"' % (b"x" * 3_000_000)
PLACE = '{"result":"pieces"}'


def outbox() -> Outbox:
    return Outbox(lambda: None, Account(HeldBytes(), "a client"))


@pytest.mark.fault(29)
async def test_of_many_lines_that_wait_some_are_put_together_at_a_time() -> None:
    """It was all, up to 32 MiB: a copy of 15 ms, or 100 in memory that has to be found first."""
    waiting, line = outbox(), b"x" * (TOGETHER_BYTES // 4) + b"\n"
    lines = [b"first\n", *[line] * 10, line * 8, b"", line * 8, b"last\n"]
    for one in lines:
        waiting.put(one)
    taken = []
    while waiting.waiting_bytes:
        taken.append(await waiting.take())
        waiting.written(len(taken[-1]))
    assert b"".join(taken) == b"".join(lines)
    assert [one for one in taken if len(one) > TOGETHER_BYTES] == [line * 8] * 2
    assert all(taken), "nothing to write would be the end of whoever writes"


@pytest.mark.fault(29)
async def test_what_leaves_at_the_end_of_a_turn_is_no_more_and_stays_in_order() -> None:
    waiting, written = outbox(), bytearray()

    def write(data: bytes) -> int:
        assert len(data) <= TOGETHER_BYTES
        written.extend(data[:-1])
        return len(data) - 1

    waiting.write_through(write)
    line = b"x" * (TOGETHER_BYTES // 4) + b"\n"
    lines = [line] * 10
    LOOP.begin("a module", "stdout")
    for one in lines:
        waiting.put(one)
    LOOP.end()
    assert len(written) == 3 * len(line) - 1
    while waiting.waiting_bytes:
        data = await waiting.take()
        written += data
        waiting.written(len(data))
    assert written == b"".join(lines)


@pytest.mark.fault(29)
@pytest.mark.parametrize("request_id", ["r1", None, PLACE])
@pytest.mark.parametrize(
    "answer",
    [
        Response(Success(Pieces([b'{"modules":[', b'"x"', b",", LONG, b"]}"]))),
        Response(Success(msgspec.Raw(LONG), PLACE), "q1", "m", "op", session_id=PLACE),
    ],
    ids=["of the daemon", "of a module"],
)
async def test_a_long_answer_is_the_same_line_and_is_not_put_together(
    answer: Response, request_id: str | None
) -> None:
    waiting = outbox()
    LineClient(request_id, waiting, lambda _: None).finished(answer)
    assert LONG in waiting._lines
    taken = b""
    while waiting.waiting_bytes:
        data = await waiting.take()
        taken += data
        waiting.written(len(data))
    assert taken == answer.done_line(request_id)
    assert isinstance(answer.outcome, Success)
    built = Success(answer.outcome.result, answer.outcome.summary)
    assert taken == msgspec.structs.replace(answer, outcome=built).done_line(request_id)
