"""How far the lines on their way to a process have got."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.framing import AT_ONCE_BYTES, Outgoing, Written

SIZES = st.integers(1, 10) | st.integers(AT_ONCE_BYTES // 3, AT_ONCE_BYTES + 2)

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


@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=12))
def test_all_lines_are_taken_in_order_and_no_piece_is_put_together_of_too_much(
    lines: list[tuple[int, bool]],
) -> None:
    outgoing, added = Outgoing(), b""
    for number, (size, is_asked) in enumerate(lines):
        line = bytes([number]) * size
        outgoing.add(line, str(number) if is_asked else "")
        added += line
    longest = max((size for size, _ in lines), default=0)
    unasked = sum(size for size, is_asked in lines if not is_asked)
    assert outgoing.unasked_bytes == unasked
    taken = b""
    while piece := outgoing.take():
        assert len(piece) <= max(AT_ONCE_BYTES, longest)
        taken += piece
        whole = [number for number, _ in enumerate(lines) if taken.endswith(bytes([number]))]
        left = lines[whole[0] + 1 :]
        assert outgoing.unasked_bytes == sum(size for size, is_asked in left if not is_asked)
    assert taken == added
    assert outgoing.empty


def test_a_line_of_many_megabytes_is_taken_as_it_is() -> None:
    outgoing, lines = Outgoing(), [bytes([number]) * (4 * AT_ONCE_BYTES) for number in range(3)]
    for number, line in enumerate(lines):
        outgoing.add(line, str(number))
    assert outgoing.take() is lines[0]
    assert outgoing.withdraw("0") is Written.ALL
    assert outgoing.withdraw("1") is Written.NOTHING
    assert outgoing.take() is lines[2]


def test_what_was_not_written_of_a_piece_comes_before_what_was_left_out_of_it() -> None:
    outgoing, half = Outgoing(), AT_ONCE_BYTES // 2
    for number in range(3):
        outgoing.add(bytes([number]) * half, str(number))
    assert len(outgoing.take()) == 2 * half
    outgoing.take_back(half + 1)
    assert outgoing.withdraw("0") is Written.PART
    assert outgoing.withdraw("1") is Written.NOTHING
    assert outgoing.take() == bytes([0]) + bytes([2]) * half
