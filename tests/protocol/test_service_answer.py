from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.connection import Answered, EventReceived, Received, Request, Warned
from protocol.errors import Failure, Reason, Success
from protocol.framing import Overlong
from protocol.replies import EXPECTED, Operation
from protocol.service_answer import (
    JSON,
    NDJSON,
    SSE,
    EventDataSplitter,
    ServiceAnswer,
    request_body,
)
from tests.deep_size import deep_size
from tests.factories import descriptor

LIMIT = 1024
SERVICE = descriptor(
    Path("/"), ["-"], transport={"type": "http", "url": "http://x"},
    supervision={"limits": {"line_bytes": LIMIT}},
)  # fmt: skip
INVOKE = Request("r1", Operation.INVOKE, "roll", {"sides": 6})
UI = {"version": "0", "type": "ui_event", "event": "progress", "payload": {"done": 1}}
OK = {"ok": True, "result": {"total": 3}}


def lines(*documents: Any) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in documents)


def read(media: str, *chunks: bytes, request: Request = INVOKE, **more: Any) -> list[Received]:
    answer = ServiceAnswer(media, SERVICE, request, **more)
    received = [one for chunk in chunks for one in answer.receive_data(chunk)]
    received += answer.receive_eof()
    assert answer.is_over
    return received


def failure(received: list[Received]) -> Failure:
    (answered,) = (one for one in received if isinstance(one, Answered))
    assert isinstance(answered.outcome, Failure)
    return answered.outcome


def test_what_is_posted_is_the_input_of_the_operation_and_nothing_else() -> None:
    assert request_body(Request("r1", Operation.HEALTH)) == b"{}"
    assert json.loads(request_body(INVOKE)) == {"op": "roll", "args": {"sides": 6}}
    asked = Request("r1", Operation.INVOKE, "roll", session_id="s")
    assert json.loads(request_body(asked)) == {"op": "roll", "args": {}, "session_id": "s"}


STREAMS = {
    JSON: json.dumps(OK, indent=2).encode(),
    NDJSON: b"\n" + lines({**UI, "requestId": "theirs"}, {**OK, "requestId": "theirs"}),
    SSE: b"\xef\xbb\xbf: hi\rdata: " + lines(UI) + b"\r\nid: 7\r\nevent: done\r\ndata:{\r\n"
    b'data: "ok":true,"result":{"total":3}}\r\n\r\n',
}  # fmt: skip


@given(st.sampled_from(list(STREAMS)), st.lists(st.integers(0, 140), max_size=5))
@example(SSE, [26, 27, 28])
def test_an_answer_is_the_same_however_it_is_cut_and_whatever_type_it_has(
    media: str, cuts: list[int]
) -> None:
    body, places = STREAMS[media], [0, *sorted(cuts), None]
    chunks = [body[a:b] for a, b in pairwise(places)]
    *events, answered = read(media, *chunks)
    assert answered == Answered("r1", Success({"total": 3}))
    assert [type(one) for one in events] == [EventReceived] * (media != JSON)


def test_a_stream_that_says_done_answers_with_what_that_carries() -> None:
    done = {"version": "0", "type": "done", "ok": True, "result": 4}
    assert read(NDJSON, lines(done)) == [Answered("r1", Success(4))]
    described = read(JSON, b'{"inputs":{}}', request=Request("r1", Operation.DESCRIBE))
    assert isinstance(described[-1], Answered)
    assert isinstance(described[-1].outcome, Success)
    assert described[-1].outcome.result["name"] == "m"  # as of any module


@pytest.mark.parametrize(
    ("media", "body", "reason"),
    [
        (JSON, b"", Reason.MISSING_DONE),
        (JSON, b"[]", Reason.NOT_OBJECT),
        (JSON, b'{"ok":true', Reason.MALFORMED_JSON),
        (JSON, b'{"ok":true,"result":"%s"}' % (b"x" * LIMIT), Reason.LINE_TOO_LONG),
        (JSON, b"\xff\xfe", Reason.INVALID_UTF8),
        (NDJSON, lines(UI), Reason.MISSING_DONE),
        (NDJSON, lines(UI) + b'{"ok":', Reason.TRUNCATED_LINE),
        (NDJSON, b"at work\n" + lines(OK), Reason.MALFORMED_JSON),
        (NDJSON, b"x" * LIMIT * 3 + b"\n" + lines(OK), Reason.LINE_TOO_LONG),
        (SSE, b"data: " + b"x" * LIMIT * 3 + b"\n\ndata: " + lines(OK), Reason.LINE_TOO_LONG),
        (SSE, b"data: 1\n\n", Reason.NOT_OBJECT),
    ],
)
def test_a_wrong_answer_fails_by_name_and_only_once(
    media: str, body: bytes, reason: Reason
) -> None:
    assert failure(read(media, body)).details["reason"] == reason


def test_without_an_answer_the_error_that_came_before_is_what_the_service_reports() -> None:
    error = {"version": "0", "type": "error", "errorCode": "no_dice", "errorMessage": "lost"}
    details = failure(read(NDJSON, lines(error))).details
    assert details["reported"] == {"code": "no_dice", "message": "lost"}


def test_an_asset_of_another_machine_is_left_out_with_a_warning() -> None:
    asset = {
        "version": "0", "type": "asset", "assetId": "a", "kind": "file",
        "mediaType": "text/plain", "path": "/etc/passwd",
    }  # fmt: skip
    warned, answered = read(NDJSON, lines(asset, OK))
    assert isinstance(warned, Warned)
    assert warned.notice.reason == "asset_elsewhere"
    assert isinstance(answered, Answered)


def test_a_secret_that_is_said_back_is_hidden_wherever_it_stands() -> None:
    said = {"ok": False, "error": {"code": "E", "message": "you sent hunter2-hunter2"}}
    (answered,) = read(JSON, json.dumps(said).encode(), secrets=[b"hunter2-hunter2"])
    assert isinstance(answered, Answered)
    assert isinstance(answered.outcome, Failure)
    assert answered.outcome.message == "you sent ***"


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=4))
def test_an_event_stream_of_any_bytes_is_cut_the_same_way_and_never_held_beyond_its_bound(
    body: bytes, cuts: list[int]
) -> None:
    body = body.replace(b"d", b"data:").replace(b"n", b"\n").replace(b"r", b"\r")
    whole = EventDataSplitter(16)
    expected = [*whole.feed(body), whole.finish()]
    places = [0, *sorted(cuts), None]
    cut = EventDataSplitter(16)
    least = deep_size(cut)
    found: list[Any] = []
    for a, b in pairwise(places):
        found += cut.feed(body[a:b])
        assert deep_size(cut) <= least + 100
    found.append(cut.finish())
    kinds = [type(one) for one in expected]
    assert [type(one) for one in found] == kinds
    assert [one for one in found if not isinstance(one, Overlong)] == [
        one for one in expected if not isinstance(one, Overlong)
    ]


@pytest.mark.parametrize(
    ("media", "operation", "words"),
    [
        (JSON, Operation.INVOKE, ""),
        (NDJSON, Operation.INVOKE, " and no `done` at its end"),
        (SSE, Operation.INVOKE, " and no `done` at its end"),
        (NDJSON, Operation.HEALTH, ""),
    ],
)
def test_what_an_answer_lacks_is_told(media: str, operation: Operation, words: str) -> None:
    told = failure(read(media, b"", request=Request("r1", operation, "roll")))
    assert told.message == f"the answer has no {EXPECTED[operation]}{words}"
    assert told.details["reason"] == Reason.MISSING_DONE
