"""Whose fault a bad line is, and how the stream gets in step again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.connection import (
    Answered,
    EventReceived,
    Events,
    Quarantined,
    Stray,
    Violated,
    Warned,
)
from protocol.descriptor.model import Lifecycle
from protocol.dialects.module import ModuleConnection
from protocol.errors import Failure, Reason, Success
from tests.protocol.test_module_dialect import answers, asked
from tests.protocol.wire import (
    DESCRIPTION,
    Cuts,
    announce,
    cuts,
    describe,
    descriptor,
    event,
    feed,
    health,
    invoke,
    left,
    line,
    module,
)

GARBAGE = b"Traceback (most recent call last):\n"
TOLERABLE = {
    Reason.MALFORMED_JSON: GARBAGE,
    Reason.NOT_OBJECT: b"[1]\n",
    Reason.INVALID_UTF8: b"caf\xe9\n",
}
INTOLERABLE = {
    Reason.INVALID_EVENT: line(version="0", type="log", level="loud", message="m"),
    Reason.BAD_VERSION: line(version="1", type="log", level="info", message="m"),
    Reason.UNKNOWN_TYPE: line(version="0", type="progress"),
    Reason.LINE_TOO_LONG: b'{"ok":true,"result":"' + b"x" * 2048 + b'"}\n',
}
BAD = {**TOLERABLE, **INTOLERABLE}
LINE_BYTES = 1024


def reasons(received: Events) -> dict[str, str]:
    """Return the reason of each failure, by request."""
    failures = {name: item for name, item in answers(received).items() if isinstance(item, Failure)}
    return {name: failure.details["reason"] for name, failure in failures.items()}


def strict(*names: str) -> ModuleConnection:
    return asked(*map(invoke, names), stdout="strict", line_bytes=LINE_BYTES)


def tolerant(*names: str) -> ModuleConnection:
    return asked(*map(invoke, names), stdout="tolerant", line_bytes=LINE_BYTES)


def echoing(connection: ModuleConnection) -> ModuleConnection:
    """Let the module show that it echoes ids."""
    connection.ask(health("r0"))
    feed(connection, line(requestId="r0", status="ok"))
    return connection


# Whom a bad line fails.


@pytest.mark.parametrize(("reason", "bad"), BAD.items())
def test_a_strict_modules_bad_line_fails_the_one_request_it_can_mean(
    reason: Reason, bad: bytes
) -> None:
    received = feed(strict("r1"), bad)
    assert reasons(received) == {"r1": reason}
    (item,) = received
    assert isinstance(item, Answered)
    assert item.fault is not None
    assert item.fault.reason is reason


def test_an_error_the_module_reports_itself_is_no_fault() -> None:
    (item,) = feed(strict("r1"), line(ok=False, error={"code": "E", "message": "m"}))
    assert item == Answered("r1", Failure.reported("E", "m"), None)


@pytest.mark.parametrize(("reason", "bad"), TOLERABLE.items())
def test_a_tolerant_modules_stray_print_is_a_warning(reason: Reason, bad: bytes) -> None:
    connection = tolerant("r1")
    warned, answered = feed(connection, bad + line(ok=True, result=1))
    assert not isinstance(warned, Answered | EventReceived)
    assert str(reason) in repr(warned)
    assert answers([answered]) == {"r1": Success(1)}


@pytest.mark.parametrize(("reason", "bad"), INTOLERABLE.items())
def test_even_a_tolerant_module_may_not_print_these(reason: Reason, bad: bytes) -> None:
    assert reasons(feed(tolerant("r1"), bad)) == {"r1": reason}


@pytest.mark.parametrize("make", [strict, tolerant])
@pytest.mark.parametrize(
    "bad",
    [
        line(requestId="r2", ok="yes"),
        line(requestId="r2", ok=False),
        line(requestId="r2", version="0", type="done"),
        line(requestId="r2", version="7", type="done", ok=True),
        line(requestId="r2", version="0", type="host_call"),
    ],
)
def test_a_bad_line_that_names_a_request_fails_that_one_alone(make: Any, bad: bytes) -> None:
    connection = make("r1", "r2")
    assert set(reasons(feed(connection, bad))) == {"r2"}
    assert answers(feed(connection, line(requestId="r1", ok=True))) == {"r1": Success(None)}
    assert left(connection) == []


@pytest.mark.parametrize(
    ("lifecycle", "features", "missing"),
    [
        (Lifecycle.PERSISTENT, ["cancel"], 'describe does not say "features": ["host_call"]'),
        (Lifecycle.PER_INVOCATION, [], 'transport.lifecycle "persistent" can call the host'),
    ],
)
def test_a_call_of_a_module_that_makes_none_is_told_what_is_missing(
    lifecycle: Lifecycle, features: list[str], missing: str
) -> None:
    connection = asked(lifecycle=lifecycle)
    announce(connection, *features)
    connection.ask(invoke("r1"))
    connection.outgoing.take()
    call = line(requestId="r1", version="0", type="host_call", payload={"call_id": "c"})
    (answered,) = feed(connection, call)
    assert isinstance(answered, Answered)
    assert isinstance(answered.outcome, Failure)
    assert answered.outcome.details["reason"] == Reason.UNKNOWN_TYPE
    assert missing in answered.outcome.message
    refusal = connection.outgoing.take()
    assert (b'"is_error":true' in refusal) is (lifecycle is Lifecycle.PERSISTENT)


@pytest.mark.parametrize("make", [strict, tolerant])
def test_a_bad_line_that_names_no_open_request_harms_nobody(make: Any) -> None:
    connection = make("r1")
    received = feed(connection, line(requestId="r9", ok="yes") + line(ok=True))
    assert [type(item) for item in received] == [Stray, Answered]


@pytest.mark.parametrize("make", [strict, tolerant])
@pytest.mark.parametrize(("reason", "bad"), BAD.items())
def test_a_bad_line_with_no_request_open_is_quarantined(
    make: Any, reason: Reason, bad: bytes
) -> None:
    connection = make()
    (item,) = feed(connection, bad)
    assert isinstance(item, Quarantined)
    assert item.fault.reason is reason
    connection.ask(invoke("r1"))
    assert b"r1.sync" not in connection.outgoing.take()


@pytest.mark.parametrize("make", [strict, tolerant])
@pytest.mark.parametrize(("reason", "bad"), BAD.items())
def test_among_several_requests_of_a_module_with_ids_it_is_quarantined(
    make: Any, reason: Reason, bad: bytes
) -> None:
    connection = echoing(make("r1", "r2"))
    received = feed(connection, bad + line(requestId="r2", ok=True) + line(requestId="r1", ok=True))
    assert [type(item) for item in received] == [Quarantined, Answered, Answered]


def test_a_module_with_ids_stays_in_step_after_a_bad_line() -> None:
    connection = strict("r1")
    echoing(connection)
    feed(connection, GARBAGE)
    connection.ask(invoke("r2"))
    assert b"sync" not in connection.outgoing.take()
    received = feed(connection, line(requestId="r1", ok=True) + line(requestId="r2", ok=True))
    assert [type(item) for item in received] == [Stray, Answered]


def test_of_several_requests_without_ids_none_can_be_paired_any_more() -> None:
    received = feed(strict("r1", "r2", "r3"), GARBAGE + line(ok=True))
    assert reasons(received) == dict.fromkeys(("r1", "r2", "r3"), "malformed_json")
    assert isinstance(received[-1], Stray)


@pytest.mark.parametrize(
    ("request_", "reply"), [(describe("r1"), event("done", ok=True)), (health("r1"), line(ok=True))]
)
def test_a_reply_of_the_wrong_form_is_a_bad_line(request_: Any, reply: bytes) -> None:
    assert reasons(feed(asked(request_, stdout="strict"), reply)) == {"r1": "invalid_event"}


@given(st.binary(max_size=60), cuts, st.sampled_from(["strict", "tolerant"]))
def test_no_bytes_at_all_raise_anything(data: bytes, lengths: Cuts, stdout: Any) -> None:
    connection = asked(invoke("r1"), health("r2"), stdout=stdout, line_bytes=16)
    feed(connection, data, lengths)
    connection.receive_eof()
    left(connection)


@pytest.mark.parametrize("depth", [*range(880, 1000, 7), 100_000])
def test_no_depth_of_nesting_raises_anything_on_either_path(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    connection = asked(invoke("r1"), invoke("r2"), invoke("r3"))
    feed(connection, b'{"ok":true,"result":%b}\n' % deep)
    feed(connection, b'{"ok":true,"requestId":1,"result":%b}\n' % deep)
    twice = b'{"version":"1","version":"0","type":"done","ok":true,"result":%b}\n'
    feed(connection, twice % deep)


@pytest.mark.parametrize(
    "bad",
    [
        b'{"ok":true,"ignored":"\xff"}\n',
        b'{"version":"0","type":"done","ok":true,"ignored":"\xff"}\n',
    ],
)
def test_bytes_that_are_no_utf8_are_refused_even_in_a_field_that_is_ignored(bad: bytes) -> None:
    assert reasons(feed(strict("r1"), bad)) == {"r1": "invalid_utf8"}


# Getting in step again: a describe goes before the next request.


def plain(value: Any) -> bytes:
    return line(ok=True, result=value)


def stream(value: Any) -> bytes:
    return event("done", ok=True, result=value)


LATE = [
    pytest.param(value, id=str(value)[:16])
    for value in (
        "late",
        {"status": "shipped"},
        {"status": "ok"},
        {"name": "dice"},
        {**DESCRIPTION, "name": "somebody else"},
    )
]


def resynced(connection: ModuleConnection) -> bytes:
    connection.outgoing.take()
    connection.ask(invoke("r2"))
    return connection.outgoing.take()


def test_the_next_request_comes_after_a_describe() -> None:
    connection = strict("r1")
    feed(connection, GARBAGE)
    sync, request = resynced(connection).splitlines()
    assert sync == b'{"requestId":"r2.sync","tool":"dice","operation":"describe","input":{}}'
    assert b'"requestId":"r2"' in request
    connection.ask(invoke("r3"))
    assert connection.outgoing.take().count(b"\n") == 1


@pytest.mark.parametrize("answer", [plain, stream])
def test_garbage_in_place_of_the_answer_costs_one_request(answer: Any) -> None:
    connection = strict("r1")
    feed(connection, GARBAGE)
    resynced(connection)
    assert answers(feed(connection, answer(DESCRIPTION) + answer(2))) == {"r2": Success(2)}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("answer", [plain, stream])
def test_garbage_before_the_answer_costs_one_request_and_the_answer_is_a_stray(
    answer: Any, late: Any
) -> None:
    # A late answer with a `status` is not to be taken for a sign of being in step.
    connection = strict("r1")
    feed(connection, GARBAGE)
    resynced(connection)
    received = feed(connection, answer(late) + answer(DESCRIPTION) + answer(2))
    assert [type(item) for item in received] == [Stray, Answered]
    assert answers(received) == {"r2": Success(2)}


def test_an_answer_that_comes_before_the_next_request_is_a_stray_too() -> None:
    connection = strict("r1")
    received = feed(connection, GARBAGE + line(ok=True, result=1))
    assert isinstance(received[-1], Stray)
    resynced(connection)
    assert answers(feed(connection, line(DESCRIPTION) + line(ok=True))) == {"r2": Success(None)}


def test_while_out_of_step_a_late_health_is_not_the_next_requests() -> None:
    connection = asked(health("r1"), stdout="strict")
    feed(connection, GARBAGE)
    connection.ask(health("r2"))
    received = feed(connection, line(status="late") + line(DESCRIPTION) + line(status="ok"))
    assert answers(received) == {"r2": Success({"status": "ok"})}


def test_an_answer_that_names_its_request_needs_no_step() -> None:
    connection = strict("r1")
    feed(connection, GARBAGE)
    connection.ask(describe("r2"))
    named = {**DESCRIPTION, "requestId": "r2"}
    assert answers(feed(connection, line(named))) == {"r2": Success(DESCRIPTION)}
    sync = {**DESCRIPTION, "requestId": "r2.sync"}
    assert feed(connection, line(sync)) == []
    connection.ask(invoke("r3"))
    assert answers(feed(connection, line(ok=True))) == {"r3": Success(None)}


def test_more_garbage_while_out_of_step_is_quarantined() -> None:
    connection = strict("r1")
    feed(connection, GARBAGE)
    resynced(connection)
    received = feed(connection, GARBAGE + line(DESCRIPTION) + line(ok=True))
    assert [type(item) for item in received] == [Quarantined, Answered]


# The end of the output.


@pytest.mark.parametrize("make", [strict, tolerant])
def test_a_last_line_that_is_whole_is_accepted_without_its_newline(make: Any) -> None:
    for last in (line(ok=True, result=1), event("done", ok=True, result=1)):
        connection = make("r1")
        assert feed(connection, last.rstrip()) == []
        assert answers(connection.receive_eof()) == {"r1": Success(1)}
        assert not connection.receive_eof()


@pytest.mark.parametrize("make", [strict, tolerant])
def test_a_last_line_that_is_cut_is_neither_success_nor_lost(make: Any) -> None:
    whole = line(ok=True, result=1).rstrip()
    for length in range(1, len(whole)):
        connection = make("r1")
        feed(connection, whole[:length])
        (item,) = connection.receive_eof()
        assert isinstance(item, Violated)
        assert (item.request_id, item.fault.reason) == ("r1", Reason.TRUNCATED_LINE)
        assert left(connection) == ["r1"]


def test_a_cut_line_with_no_request_open_is_quarantined() -> None:
    connection = module(descriptor())
    feed(connection, b'{"version":"0","ty')
    (item,) = connection.receive_eof()
    assert isinstance(item, Quarantined)


def test_an_end_after_a_newline_says_nothing() -> None:
    connection = strict("r1")
    feed(connection, line(ok=True))
    assert not connection.receive_eof()


HUGE = b"9" * 5000


@pytest.mark.fault(13)
@pytest.mark.parametrize("answer", [b'"type":"done","version":"0","ok":true,', b'"ok":true,'])
def test_an_answer_with_a_number_that_cannot_be_kept_fails_its_request_at_once(
    answer: bytes,
) -> None:
    connection = asked(invoke("a"), invoke("b"), stdout="tolerant")
    received = feed(connection, b'{"requestId":"a",' + answer + b'"result":' + HUGE + b"}\n")
    assert reasons(received) == {"a": Reason.MALFORMED_JSON}
    (failure,) = answers(received).values()
    assert "too large to be kept exactly" in str(failure)
    answered = feed(connection, line(requestId="b", ok=True, result=1))
    assert answers(answered)["b"] == Success(1)


@pytest.mark.fault(13)
def test_an_event_with_such_a_number_is_no_answer() -> None:
    connection = asked(invoke("a"), stdout="tolerant")
    event = b'{"requestId":"a","version":"0","type":"log","level":"info","message":"m",'
    received = feed(connection, event + b'"fields":{"n":' + HUGE + b"}}\n")
    assert not reasons(received)


NO_UTF8 = b'"x":"\xe9"'
"""As a program prints it that writes Latin-1."""


@pytest.mark.fault(13)
@pytest.mark.parametrize("stdout", ["tolerant", "strict"])
@pytest.mark.parametrize("answer", [b'"type":"done","version":"0","ok":true,', b'"ok":true,'])
def test_an_answer_that_is_no_utf8_fails_the_request_it_names_at_once(
    answer: bytes, stdout: Any
) -> None:
    connection = asked(invoke("a"), invoke("b"), stdout=stdout)
    received = feed(connection, b'{"requestId":"a",' + answer + b'"result":{' + NO_UTF8 + b"}}\n")
    assert reasons(received) == {"a": Reason.INVALID_UTF8}
    (failure,) = answers(received).values()
    assert "byte 0xe9" in str(failure)
    assert "expected" in str(failure)
    answered = feed(connection, line(requestId="b", ok=True, result=1))
    assert answers(answered)["b"] == Success(1)


@pytest.mark.fault(13)
@pytest.mark.parametrize("value", [NO_UTF8, b'"x":1e999'])
def test_an_event_that_cannot_be_read_is_a_warning_of_the_request_it_names(value: bytes) -> None:
    bad = b'{"requestId":"a","version":"0","type":"log","level":"info","message":"m","fields":{'
    bad += value + b"}}\n"
    connection = asked(invoke("a"), invoke("b"), stdout="tolerant")
    (received,) = feed(connection, bad)
    assert isinstance(received, Warned)
    assert received.request_id == "a"
    strictly = asked(invoke("a"), invoke("b"), stdout="strict")
    assert reasons(feed(strictly, bad)).keys() == {"a"}
