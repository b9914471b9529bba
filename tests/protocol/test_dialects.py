"""What every dialect promises (protocol.connection), those of the registry and the made-up ones.

Each is joined back to back with a scripted peer of its own (tests/dialects/peers.py). A new dialect
needs a peer there, and no test here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.connection import (
    Answered,
    Asked,
    Connection,
    Described,
    EventReceived,
    HostCalled,
    Ready,
    Received,
    StartFailed,
    Unanswered,
)
from protocol.descriptor.model import Lifecycle
from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Reason, Success
from protocol.framing import Written
from protocol.host_call import Chunk
from protocol.replies import DescribeReply
from tests.dialects.peers import PEERS, Peer
from tests.dialects.registry import FAKES
from tests.protocol.wire import Cuts, cuts, descriptor, invoke, pieces

ALL = {**DIALECTS, **FAKES, "mcp-modern": DIALECTS["mcp"]}
CASES = [(name, lifecycle) for name, dialect in ALL.items() for lifecycle in dialect.lifecycles]
ROUNDS = 40
"""Longer than any conversation here: one that goes on then goes on for ever."""

cases = pytest.mark.parametrize(("dialect", "lifecycle"), CASES)


class Joined:
    """A connection and its peer, back to back; it keeps what passes between them."""

    def __init__(self, dialect: str, lifecycle: Lifecycle, lengths: Cuts = ()) -> None:
        numbers = iter(range(1, 1000))
        self.made = msgspec.structs.replace(descriptor(lifecycle=lifecycle))
        self.connection: Connection = ALL[dialect].connect(
            self.made, lambda: f"own-{next(numbers)}", {}
        )
        self.peer: Peer = PEERS[dialect]()
        self.persistent = lifecycle is Lifecycle.PERSISTENT
        self.events: list[Received] = []
        self.told: list[tuple[str, bytes]] = []
        """What was written and read, in that order."""
        self.asked: set[str] = set()
        self.cancelled: set[str] = set()
        self._lengths = lengths

    def take(self, events: Any) -> None:
        for one in events:
            self.events.append(one)
            if isinstance(one, Asked):
                self.asked.add(one.request.request_id)
            if isinstance(one, HostCalled):
                self.take(self.connection.answer(one, Success({})))

    def ask(self, *names: str) -> None:
        for name in names:
            self.asked.add(name)
            self.take(self.connection.ask(invoke(name, "echo", text="hi")))

    def cancel(self, name: str, written: Written) -> None:
        self.cancelled.add(name)
        self.take(self.connection.cancel(name, written))

    def start(self) -> None:
        """Let it get ready; a process for one request is asked that before it runs."""
        if not self.persistent:
            self.ask("r1")
        self.take(self.connection.start())
        if self.persistent:
            self.talk()
            assert [one for one in self.events if isinstance(one, Ready)], self.events

    def steps(self) -> Iterator[None]:
        """Carry what is said to and fro, until nobody says anything any more."""
        for _ in range(ROUNDS):
            written = self.connection.outgoing.take()
            if written:
                self.told.append(("host", written))
                said = self.peer.reads(written)
                for piece in pieces(said, self._lengths):
                    self.hear(piece)
                    yield
            elif self.connection.waits and not self.ready:
                self.take(self.connection.time_passed(self.connection.waits[-1]))
            else:
                return
        pytest.fail("they never stop talking")

    @property
    def ready(self) -> bool:
        return any(isinstance(one, Ready | StartFailed) for one in self.events)

    def talk(self) -> None:
        for _ in self.steps():
            pass

    def hear(self, data: bytes) -> None:
        self.told.append(("module", data))
        self.take(self.connection.receive_data(data))

    def end(self, code: int | None = 0) -> None:
        """Let the process go: by then each request has ended once, unless it was cancelled."""
        if not self.persistent:
            self.hear(self.peer.ends())
        self.take(self.connection.receive_eof())
        self.take(self.connection.process_exited(code))
        ends = Counter(
            one.request_id for one in self.events if isinstance(one, Answered | Unanswered)
        )
        assert ends == Counter(dict.fromkeys(self.asked - self.cancelled, 1))
        assert list(self.connection.process_exited(code)) == []


def whole(dialect: str, lifecycle: Lifecycle, lengths: Cuts = ()) -> Joined:
    """Have a whole conversation: start, three requests at once, a good end."""
    joined = Joined(dialect, lifecycle, lengths)
    joined.start()
    if joined.persistent:
        joined.ask("r1", "r2", "r3")
    joined.talk()
    joined.end()
    return joined


def test_each_dialect_of_the_registry_has_a_peer_here() -> None:
    assert set(DIALECTS) <= set(PEERS)


@cases
def test_every_request_is_answered_by_a_peer_that_answers(
    dialect: str, lifecycle: Lifecycle
) -> None:
    joined = whole(dialect, lifecycle)
    answered = {one.request_id: one.outcome for one in joined.events if isinstance(one, Answered)}
    assert set(answered) == joined.asked
    assert all(isinstance(one, Success) for one in answered.values()), answered


@cases
@given(lengths=cuts)
def test_the_same_bytes_under_every_cut_mean_the_same(
    dialect: str, lifecycle: Lifecycle, lengths: Cuts
) -> None:
    one, other = whole(dialect, lifecycle), whole(dialect, lifecycle, lengths)
    assert one.events == other.events
    written = [b"".join(data for who, data in it.told if who == "host") for it in (one, other)]
    assert written[0] == written[1]


@cases
@given(
    talk=st.tuples(cuts, st.integers(0, 30)),
    junk=st.binary(max_size=30),
    ended=st.tuples(st.sampled_from([None, *Written]), st.sampled_from([0, 3, None])),
)
def test_an_end_anywhere_leaves_each_request_accounted_for_once(
    dialect: str,
    lifecycle: Lifecycle,
    talk: tuple[Cuts, int],
    junk: bytes,
    ended: tuple[Written | None, int | None],
) -> None:
    (lengths, at), (give_up, code) = talk, ended
    joined = Joined(dialect, lifecycle, lengths)
    joined.start()
    if joined.persistent:
        joined.ask("r1", "r2")
    for number, _ in enumerate(joined.steps()):
        if number == at:
            break
    open_ = not any(isinstance(one, Answered) and one.request_id == "r1" for one in joined.events)
    if give_up is not None and open_:
        joined.cancel("r1", give_up)
    joined.hear(junk)
    joined.end(code)
    late = [one for one in joined.events if isinstance(one, EventReceived | Answered | Unanswered)]
    assert not [one for one in late if one.request_id not in joined.asked]


@cases
@given(at=st.integers(0, 8), lines=st.lists(st.binary(max_size=30), max_size=4))
def test_nothing_a_peer_says_while_it_starts_raises_anything(
    dialect: str, lifecycle: Lifecycle, at: int, lines: list[bytes]
) -> None:
    joined = Joined(dialect, lifecycle)
    joined.take(joined.connection.start())
    for number, _ in enumerate(joined.steps()):
        if number == at:
            break
    joined.hear(b"\n".join([*lines, b""]))
    for wait in joined.connection.waits:
        joined.take(joined.connection.time_passed(wait))
    joined.end(None)


@pytest.mark.parametrize("dialect", ["mcp", "module", "silent"])
def test_what_a_call_is_answered_raises_nothing_and_is_written(dialect: str) -> None:
    """Of the dialects whose modules call the host."""
    joined = Joined(dialect, Lifecycle.PERSISTENT)
    joined.start()
    joined.asked.add("r1")
    call = {"calls": 1, "method": "log", "params": {"message": "x"}}
    joined.take(joined.connection.ask(invoke("r1", "echo", **call)))
    joined.talk()
    called = [one for one in joined.events if isinstance(one, HostCalled)]
    assert len(called) == 1
    joined.connection.outgoing.take()
    for one in called:
        for outcome in (
            Success({"x": 1}),
            Success({"x": "\ud800"}),
            Failure.because(Reason.CAPABILITY, "no"),
            Failure("e", "\ud800"),
        ):
            joined.take(joined.connection.answer(one, outcome))
            assert joined.connection.outgoing.take().endswith(b"\n")
            joined.take(joined.connection.answer(one, outcome, Chunk(0, is_last=False)))
            joined.connection.outgoing.take()


@cases
def test_what_it_says_it_is_has_what_describe_answers(dialect: str, lifecycle: Lifecycle) -> None:
    for one in whole(dialect, lifecycle).events:
        if isinstance(one, Ready | Described):
            assert msgspec.convert(one.description, DescribeReply).name == "dice"
        if isinstance(one, Ready):
            assert one.why
