"""How far the lines on their way to a process have got."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.framing import Outgoing, Written

REQUESTS = {"r1": b"first\n", "r2": b"the second\n", "r3": b"3\n"}
ALL = b"".join(REQUESTS.values())


def queued() -> Outgoing:
    outgoing = Outgoing()
    for request_id, line in REQUESTS.items():
        outgoing.add(line, request_id)
    return outgoing


def test_a_line_that_was_not_taken_is_withdrawn_and_the_others_stay() -> None:
    outgoing = queued()
    assert outgoing.withdraw("r2") is Written.NOTHING
    assert outgoing.take() == b"first\n3\n"


def test_what_was_taken_and_not_taken_back_was_written() -> None:
    outgoing = queued()
    assert outgoing.take() == ALL
    assert outgoing.withdraw("r2") is Written.ALL
    assert outgoing.take() == b""


def test_lines_without_an_id_keep_their_place() -> None:
    outgoing = Outgoing()
    outgoing.add(b"sync\n")
    outgoing.add(b"first\n", "r1")
    outgoing.add(b"cancel\n")
    assert outgoing.withdraw("r1") is Written.NOTHING
    assert outgoing.take() == b"sync\ncancel\n"


def test_what_is_queued_meanwhile_comes_after_what_is_taken_back() -> None:
    outgoing = queued()
    outgoing.take()
    outgoing.add(b"later\n", "r4")
    outgoing.take_back(len(b"nd\n3\n"))
    assert outgoing.take() == b"nd\n3\nlater\n"


@given(st.lists(st.integers(0, len(ALL))), st.sampled_from(sorted(REQUESTS)))
def test_wherever_the_writing_stopped_only_an_unwritten_line_is_withdrawn(
    stops: list[int], request_id: str
) -> None:
    outgoing = queued()
    written = 0
    for written in sorted(stops):
        data = outgoing.take()
        assert data == ALL[len(ALL) - len(data) :]
        outgoing.take_back(len(ALL) - written)
    start = ALL.index(REQUESTS[request_id])
    end = start + len(REQUESTS[request_id])
    found = outgoing.withdraw(request_id)
    left = outgoing.take()
    if written <= start:
        assert found is Written.NOTHING
        assert left == ALL[written:start] + ALL[end:]
    else:
        assert found is (Written.PART if written < end else Written.ALL)
        assert left == ALL[written:]
