"""The client of the control socket, without I/O: every cut of both streams, and every end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client import (
    FIRST_S,
    LINE_BYTES,
    MOST_S,
    STEADY_S,
    Answer,
    ClientEvent,
    ClientQuestion,
    ConnectionEnd,
    ConnectionEndedError,
    EndCause,
    LineRefusal,
    QuestionWithdrawn,
    Redial,
    RequestEvent,
    SocketClient,
)
from protocol.errors import Code, Failure, Success
from protocol.framing import LineSplitter, Overlong
from protocol.host_call import HostResult, encode_call, encode_withdrawal, read_host_result
from tests.protocol.wire import Cuts, cuts, line, pieces


def done(request_id: str | None, **more: Any) -> bytes:
    named = {} if request_id is None else {"requestId": request_id}
    return line(version="0", type="done", **named, **more)


def log(request_id: str, message: str) -> bytes:
    return line(version="0", type="log", requestId=request_id, message=message)


def host_call(request_id: str, **payload: Any) -> bytes:
    return line(version="0", type="host_call", requestId=request_id, payload=payload)


def asking(*tools: str) -> SocketClient:
    """Return a client with a request for each tool, all written: c1, c2 and so on."""
    client = SocketClient()
    for tool in tools:
        client.request(tool, "invoke", {"op": "go"})
    client.data_to_send()
    return client


def written(client: SocketClient) -> list[dict[str, Any]]:
    data = b""
    while piece := client.data_to_send():
        data += piece
    return [msgspec.json.decode(one) for one in data.splitlines()]


# --- What is written ---------------------------------------------------------


def test_a_request_is_a_line_with_only_the_members_that_were_given() -> None:
    client = SocketClient()
    assert client.request("dice", "invoke", {"op": "roll"}) == "c1"
    more: dict[str, Any] = {"login": "h17", "asks": ["user.ask"], "timeout_s": 2.5}
    assert client.request("dice", "invoke", {"op": "roll"}, **more) == "c2"
    assert written(client) == [
        {"requestId": "c1", "tool": "dice", "operation": "invoke", "input": {"op": "roll"}},
        {
            "requestId": "c2",
            "tool": "dice",
            "operation": "invoke",
            "as": "h17",
            "asks": ["user.ask"],
            "input": {"op": "roll", "timeout_s": 2.5},
        },
    ]


def test_an_input_that_cannot_be_encoded_is_the_callers_error_and_leaves_nothing() -> None:
    client = SocketClient()
    with pytest.raises(UnicodeEncodeError):
        client.request("dice", "invoke", {"op": "\ud800"})
    assert not client.wants_to_send
    assert client.receive_eof() == [ConnectionEnd(EndCause.CLOSED)]


def test_a_request_is_one_line_whatever_its_strings_hold() -> None:
    client = SocketClient()
    client.request("dice", "invoke", {"op": "a\nb\u2028c"})
    data = client.data_to_send()
    assert data.endswith(b"\n")
    assert len(data.decode().splitlines()) == 1


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.data())
def test_the_end_names_the_requests_of_which_nothing_was_written(
    lengths: list[int], data: st.DataObject
) -> None:
    client = SocketClient()
    for length in lengths:
        client.request("m", "invoke", {"op": "x" * length})
    ids = [f"c{number + 1}" for number in range(len(lengths))]
    stream = b""
    for take in data.draw(st.lists(st.integers(0, 500), max_size=6)):
        piece = client.data_to_send()
        taken = piece[:take]
        client.unsent(len(piece) - len(taken))
        stream += taken
    (end,) = client.receive_eof()
    # A line was begun if as many newlines as lines before it were written, and a byte more.
    begun = len([one for one in stream.split(b"\n") if one])
    assert end == ConnectionEnd(EndCause.CLOSED, tuple(ids[:begun]), tuple(ids[begun:]))


# --- Cancel ------------------------------------------------------------------


def test_a_cancelled_request_of_which_nothing_was_written_is_not_written() -> None:
    client = SocketClient()
    client.request("a", "invoke", {})
    client.request("b", "invoke", {})
    client.cancel("c1")
    assert [one["requestId"] for one in written(client)] == ["c2"]
    assert client.receive_eof() == [ConnectionEnd(EndCause.CLOSED, written=("c2",))]


@pytest.mark.parametrize("taken", [1, 10_000])
def test_a_cancel_follows_a_request_that_was_written_in_part_or_whole(taken: int) -> None:
    client = SocketClient()
    client.request("a", "invoke", {})
    data = client.data_to_send()
    client.unsent(max(0, len(data) - taken))
    client.cancel("c1")
    rest = b""
    while piece := client.data_to_send():
        rest += piece
    lines = (data[:taken] + rest).splitlines()
    assert [msgspec.json.decode(one).get("operation") for one in lines] == ["invoke", "cancel"]


def test_what_comes_for_a_cancelled_request_is_dropped_and_others_go_on() -> None:
    client = asking("a", "b")
    client.cancel("c1")
    late = log("c1", "late") + host_call("c1", call_id="q", method="user.ask", params={})
    events = client.receive_data(late + done("c1", ok=False) + done("c2", ok=True))
    assert [event.request_id for event in events if isinstance(event, Answer)] == ["c2"]
    assert len(events) == 1
    assert [one["operation"] for one in written(client)] == ["cancel"]


def test_a_cancel_of_a_request_that_is_not_open_writes_nothing() -> None:
    client = asking("a")
    client.receive_data(done("c1", ok=True))
    client.cancel("c1")
    client.cancel("c7")
    assert not client.wants_to_send


def test_a_request_that_the_daemon_is_asked_to_cancel_is_open_until_its_answer() -> None:
    client = asking("a")
    client.ask_to_cancel("c1")
    assert [one["operation"] for one in written(client)] == ["cancel"]
    late, answer = client.receive_data(log("c1", "late") + done("c1", ok=False))
    assert isinstance(late, RequestEvent)
    assert isinstance(answer, Answer)
    client.ask_to_cancel("c1")
    assert not client.wants_to_send


# --- What is read ------------------------------------------------------------


def test_an_answer_has_the_fields_of_the_response_without_the_envelope() -> None:
    client = asking("a", "b")
    error = {"code": "timeout", "message": "too late", "details": {}}
    raw = done("c1", ok=True, result=[1]), done("c2", ok=False, error=error)
    good, bad = client.receive_data(b"".join(raw))
    assert isinstance(good, Answer)
    assert (good.ok, good.result, good.error) == (True, [1], {})
    assert good.line + b"\n" == raw[0]
    assert isinstance(bad, Answer)
    assert (bad.ok, bad.result, bad.error) == (False, None, error)
    assert bad.document == {"ok": False, "error": error}


def test_an_event_is_passed_on_as_it_was_spelled() -> None:
    client = asking("a")
    raw = b'{"type": "ui_event",  "requestId":"c1", "n": 1.0e2}'
    (event,) = client.receive_data(raw + b"\n")
    assert isinstance(event, RequestEvent)
    assert (event.request_id, event.line, event.document["n"]) == ("c1", raw, 100.0)


def test_a_done_without_an_id_says_what_the_daemon_refused() -> None:
    client = asking("a")
    (refusal,) = client.receive_data(done(None, ok=False))
    assert isinstance(refusal, LineRefusal)
    assert client.receive_eof() == [ConnectionEnd(EndCause.CLOSED, written=("c1",))]


def test_lines_of_no_request_and_blank_lines_are_passed_over() -> None:
    client = asking("a")
    others = line(version="0", type="log", message="hello"), b"\n", b" \r\n", done("x", ok=True)
    assert client.receive_data(b"".join(others)) == []


def test_what_a_daemon_asks_and_withdraws_is_read_and_the_answer_is_read_by_it() -> None:
    client = asking("a", "b")
    (question,) = client.receive_data(
        encode_call("c1", "q1", "user.ask", {"message": "Sure?"}, "k")
    )
    assert isinstance(question, ClientQuestion)
    client.answer(question, Success({"action": "accept"}))
    (result,) = written(client)
    assert read_host_result(result) == HostResult("c1", "q1", Success({"action": "accept"}))
    withdrawal = encode_withdrawal("c1", "q1")
    (withdrawn,) = client.receive_data(withdrawal)
    assert isinstance(withdrawn, QuestionWithdrawn)
    assert (withdrawn.request_id, withdrawn.call_id) == ("c1", "q1")
    of_nothing = line(version="0", type="host_cancel", requestId="c1", payload=[])
    assert client.receive_data(of_nothing + encode_withdrawal("c9", "q1")) == []


def test_a_question_is_answered_with_its_two_ids() -> None:
    client = asking("a", "b")
    asked = host_call("c1", call_id="q1", method="user.ask", params={"message": "Sure?"})
    (question,) = client.receive_data(asked)
    assert isinstance(question, ClientQuestion)
    assert (question.request_id, question.call.method) == ("c1", "user.ask")
    assert question.call.params == {"message": "Sure?"}
    client.answer(question, Success({"action": "accept"}))
    (said,) = written(client)
    assert (said["type"], said["requestId"]) == ("host_result", "c1")
    payload = {"call_id": "q1", "output": {"action": "accept"}, "is_error": False}
    assert said["payload"] == payload
    client.answer(question, Failure(Code.TIMEOUT, "nobody is there"))
    assert written(client)[0]["payload"]["error"]["code"] == "timeout"


def test_an_answer_to_a_question_whose_request_has_ended_is_dropped() -> None:
    client = asking("a")
    asked = host_call("c1", call_id="q1", method="user.ask", params={})
    question, _ = client.receive_data(asked + done("c1", ok=True))
    assert isinstance(question, ClientQuestion)
    client.answer(question, Success({}))
    assert not client.wants_to_send


def test_a_question_that_cannot_be_meant_is_answered_with_what_is_wrong() -> None:
    client = asking("a")
    bad = host_call("c1", call_id="q1", method="user.ask", params=[]) + host_call("c1", method="x")
    assert client.receive_data(bad) == []
    (said,) = written(client)
    assert '"params" of the call is an array' in said["payload"]["error"]["message"]


@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"[]\n",
        b"{}\n",
        b'{"type":7}\n',
        b'{"type":"done","requestId":1}\n',
        b'{"type":"done","requestId":"c1","result":"\xff"}\n',
        b'{"type":"log","requestId":"c1","message":[1,}\n',
        b'{"type":"host_call","requestId":"c1","payload":{"params":{"n":1e999}}}\n',
        b"[" * 100_000 + b"\n",
    ],
    ids=range(9),
)
def test_what_no_daemon_writes_ends_the_connection_and_nothing_after_it_counts(
    nonsense: bytes,
) -> None:
    client = asking("a", "b")
    before, end = client.receive_data(done("c2", ok=True) + nonsense + done("c1", ok=True))
    assert isinstance(before, Answer)
    excerpt = nonsense.strip()[:200]
    assert end == ConnectionEnd(EndCause.NOT_A_DAEMON, written=("c1",), excerpt=excerpt)
    assert client.receive_data(done("c1", ok=True) + done(None, ok=False)) == []
    assert client.receive_eof() == []
    with pytest.raises(ConnectionEndedError) as raised:
        client.request("a", "invoke", {})
    assert (raised.value.end, raised.value.was_written) == (end, False)


def test_a_line_that_is_too_long_ends_the_connection() -> None:
    client = SocketClient(line_bytes=100)
    client.request("a", "invoke", {})
    client.unsent(len(client.data_to_send()) - 1)
    client.request("b", "invoke", {})
    (end,) = client.receive_data(b"x" * 102)
    assert isinstance(end, ConnectionEnd)
    assert (end.cause, end.written, end.unwritten) == (EndCause.OVERLONG, ("c1",), ("c2",))
    assert not client.wants_to_send
    assert client.data_to_send() == b""


def test_a_last_line_that_was_cut_off_is_no_answer() -> None:
    client = asking("a")
    assert client.receive_data(done("c1", ok=True)[:-1]) == []
    assert client.receive_eof() == [ConnectionEnd(EndCause.CLOSED, written=("c1",))]


# --- Back to back ------------------------------------------------------------


class ScriptedDaemon:
    """Answers each request with as many events as its input says, then `done`.

    Asks the client a question in between if the request lets it, and answers with its answer.
    """

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self._splitter = LineSplitter(1 << 20)

    def read(self, data: bytes) -> bytes:
        said = b""
        for raw in self._splitter.feed(data):
            assert not isinstance(raw, Overlong)
            said += self._answer(msgspec.json.decode(raw))
        return said

    def _answer(self, frame: dict[str, Any]) -> bytes:
        of = frame["requestId"]
        if frame.get("operation") == "cancel":
            self.cancelled.append(of)
            return log(of, "late") + done(of, ok=False)
        if frame.get("type") == "host_result":
            return done(of, ok=True, result=frame["payload"]["output"])
        if frame["operation"] == "garbage":
            return done(None, ok=False)
        events = b"".join(log(of, str(number)) for number in range(frame["input"]["events"]))
        if frame.get("asks"):
            return events + host_call(of, call_id=f"q{of}", method=frame["asks"][0], params={})
        return events + done(of, ok=True, result=of)


REQUESTS = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=6
)
"""How many events each has, whether it may be asked, and whether it is cancelled."""


def converse(
    client: SocketClient, requests: list[tuple[int, bool, bool]], there: Cuts, back: Cuts
) -> dict[str, list[ClientEvent]]:
    """Have the requests served, with both streams cut; return the events of each."""
    daemon = ScriptedDaemon()
    seen: dict[str, list[ClientEvent]] = {}
    for events, asks, _ in requests:
        given = {"events": events}
        seen[client.request("m", "invoke", given, asks=["roots.list"] if asks else [])] = []
    while data := client.data_to_send():
        for piece in pieces(data, there):
            for part in pieces(daemon.read(piece), back):
                for event in client.receive_data(part):
                    assert not isinstance(event, LineRefusal | ConnectionEnd)
                    seen[event.request_id].append(event)
                    if isinstance(event, ClientQuestion):
                        client.answer(event, Success({"roots": [event.request_id]}))
    return seen


@given(REQUESTS, cuts, cuts)
def test_however_both_streams_are_cut_each_request_has_its_events_and_one_answer(
    requests: list[tuple[int, bool, bool]], there: Cuts, back: Cuts
) -> None:
    seen = converse(SocketClient(), requests, there, back)
    for (of, events), (number, asks, _) in zip(seen.items(), requests, strict=True):
        *before, last = events
        assert isinstance(last, Answer)
        assert last.result == ({"roots": [of]} if asks else of)
        kinds = [RequestEvent] * number + [ClientQuestion] * asks
        assert [type(event) for event in before] == kinds
        told = [event.document["message"] for event in before if isinstance(event, RequestEvent)]
        assert told == [str(one) for one in range(number)]
    assert seen == converse(SocketClient(), requests, [], [])


@given(REQUESTS, cuts, st.data())
def test_a_request_that_is_cancelled_at_any_moment_has_no_event_afterwards(
    requests: list[tuple[int, bool, bool]], back: Cuts, data: st.DataObject
) -> None:
    client, daemon, now = SocketClient(), ScriptedDaemon(), st.booleans()
    left = {client.request("m", "invoke", {"events": one}): one for one, _, _ in requests}
    doomed = [of for of, (_, _, cancelled) in zip(left, requests, strict=True) if cancelled]
    answered = set()
    while out := client.data_to_send():
        take = data.draw(st.integers(1, len(out)))
        client.unsent(len(out) - take)
        for part in pieces(daemon.read(out[:take]), back):
            for event in client.receive_data(part):
                assert isinstance(event, RequestEvent | Answer)
                assert event.request_id in left
                if isinstance(event, Answer):
                    answered.add(event.request_id)
                    del left[event.request_id]
        if data.draw(now) and doomed:
            of = doomed.pop()
            client.cancel(of)
            left.pop(of, None)
    assert set(left) <= set(doomed)
    assert set(daemon.cancelled).isdisjoint(answered)


# --- Dialling again ----------------------------------------------------------


def test_pauses_double_up_to_a_bound_and_the_draw_halves_them_at_most() -> None:
    longest, shortest = Redial(), Redial()
    pauses = [longest.failed(100.0, 1.0) - 100.0 for _ in range(2000)]
    expected = [min(FIRST_S * 2 ** min(number, 32), MOST_S) for number in range(2000)]
    assert pauses == pytest.approx(expected)
    halves = [shortest.failed(0.0, 0.0) for _ in range(2000)]
    assert halves == pytest.approx([one / 2 for one in expected])


def test_only_a_connection_that_lasted_makes_the_pauses_begin_anew() -> None:
    redial = Redial()
    for number in range(5):
        redial.connected(10.0)
        ended = 10.0 + STEADY_S / 2
        assert redial.failed(ended, 1.0) == pytest.approx(ended + FIRST_S * 2**number)
    redial.connected(20.0)
    ended = 20.0 + STEADY_S
    for number in range(3):  # then no attempt succeeds
        assert redial.failed(ended, 1.0) == pytest.approx(ended + FIRST_S * 2**number)


def test_a_client_takes_answers_of_up_to_256_mebibytes() -> None:
    assert LINE_BYTES == 268_435_456
