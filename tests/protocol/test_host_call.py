"""Lines by which a module calls the host, and what is made of bad ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.connection import (
    Answered,
    Events,
    HostCalled,
    Received,
    Stray,
    Warned,
)
from protocol.dialects.module import ModuleConnection
from protocol.errors import Failure, Outcome, Reason, Success
from protocol.framing import Outgoing
from protocol.host_call import (
    BadCall,
    Chunk,
    HostCall,
    encode_result,
    pi_error,
    read_host_call,
)
from tests.protocol.wire import (
    Cuts,
    announce,
    cuts,
    descriptor,
    event,
    feed,
    give_up,
    health,
    invoke,
    line,
    module,
)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


GOOD = {"call_id": "c1", "capability": "log", "method": "log", "params": {"message": "x"}}


def connection(*requests: str, features: tuple[str, ...] = ("host_call",)) -> ModuleConnection:
    made = module(descriptor())
    announce(made, *features)
    for one in requests:
        made.ask(invoke(one))
    made.outgoing.take()
    return made


def refusal(made: ModuleConnection) -> Any:
    """Take the one line that the connection wrote by itself: what it says of a call."""
    (written,) = made.outgoing.take().splitlines()
    result = json.loads(written)
    assert (result["type"], result["payload"]["is_error"]) == ("host_result", True)
    return result["payload"]


def called(payload: Any, **envelope: Any) -> bytes:
    return event("host_call", payload=payload, **envelope)


def one(received: Events) -> Received:
    assert len(received) == 1, received
    return received[0]


@given(cuts)
def test_a_call_is_the_requests_that_it_names_however_it_is_cut(lengths: Cuts) -> None:
    made = connection("r1", "r2")
    data = called(GOOD, requestId="r2")
    item = one(feed(made, data, lengths))
    assert item == HostCalled("r2", HostCall("c1", "log", {"message": "x"}, "log"), len(data) - 1)


def test_without_an_id_the_one_open_request_is_meant_and_with_several_none() -> None:
    assert isinstance(one(feed(connection("r1"), called(GOOD))), HostCalled)
    several = connection("r1", "r2")
    assert isinstance(one(feed(several, called(GOOD))), Stray)
    assert "2 are open" in refusal(several)["error"]["message"]


def test_a_call_without_an_id_makes_late_lines_ambiguous() -> None:
    made = connection("r1")
    feed(made, line(requestId="r1", ok=True))
    made.ask(invoke("r2"))
    feed(made, called(GOOD))
    assert not give_up(made, "r2")


@pytest.mark.parametrize("named", ["r9", 7, ["r1"]])
def test_a_call_for_a_request_that_is_not_open_is_refused_and_a_stray(named: object) -> None:
    made = connection("r1")
    assert isinstance(one(feed(made, called(GOOD, requestId=named))), Stray)
    assert refusal(made)["call_id"] == "c1"


def test_a_call_is_late_once_its_request_is_answered_or_given_up() -> None:
    made = connection("r1", "r2")
    feed(made, line(requestId="r1", ok=True))
    give_up(made, "r2")
    for request in ("r1", "r2"):
        assert isinstance(one(feed(made, called(GOOD, requestId=request))), Stray)
        assert refusal(made)["call_id"] == "c1"


def test_a_probe_has_no_calls() -> None:
    made = connection()
    made.ask(health("h1"))
    made.outgoing.take()
    assert feed(made, called(GOOD, requestId="h1")) == []
    assert "not a health" in refusal(made)["error"]["message"]


def test_without_the_feature_the_type_is_unknown() -> None:
    item = one(feed(connection("r1", features=("cancel",)), called(GOOD, requestId="r1")))
    assert isinstance(item, Answered)
    assert item.fault is not None
    assert item.fault.reason == "unknown_type"


def test_a_call_of_another_version_is_a_fault_of_the_request() -> None:
    data = line({"version": "1", "type": "host_call", "requestId": "r1", "payload": GOOD})
    item = one(feed(connection("r1"), data))
    assert isinstance(item, Answered)
    assert item.fault is not None
    assert item.fault.reason == "bad_version"


@pytest.mark.parametrize("payload", [None, 7, {}, {"call_id": 1}, {"call_id": ""}, GOOD["params"]])
def test_a_call_that_cannot_be_answered_is_a_warning_of_the_request(payload: Any) -> None:
    item = one(feed(connection("r1"), called(payload, requestId="r1")))
    assert isinstance(item, Warned)
    assert item.notice.reason == "bad_host_call"
    assert isinstance(one(feed(connection(), called(payload, requestId="r1"))), Stray)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": None}, '"method" of the call is null'),
        ({"method": ""}, '"method"'),
        ({"params": []}, '"params" of the call is an array, it must be an object'),
        ({"capability": 1}, '"capability"'),
        ({"timeout_ms": -1}, '"timeout_ms" of the call is -1'),
        ({"timeout_ms": 1.5}, '"timeout_ms" of the call is 1.5'),
        ({"timeout_ms": True}, '"timeout_ms"'),
        ({"timeout_ms": 10**12}, '"timeout_ms"'),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], words: str) -> None:
    found = read_host_call({"payload": {**GOOD, **change}})
    assert isinstance(found, BadCall)
    assert words in found.message
    assert found.call_id == "c1"


def test_params_have_a_bounded_depth() -> None:
    deep: Any = {}
    for _ in range(130):
        deep = {"x": deep}
    found = read_host_call({"payload": {**GOOD, "params": deep}})
    assert isinstance(found, BadCall)
    assert "128 levels" in found.message


def test_no_time_limit_is_zero_or_none() -> None:
    for given_ in ({}, {"timeout_ms": 0}, {"timeout_ms": None}):
        found = read_host_call({"payload": {**GOOD, **given_}})
        assert isinstance(found, HostCall)
        assert found.timeout_ms is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["call_id", "method", "params", "capability", "timeout_ms"]), json_values
    )
)
def test_any_payload_is_a_call_or_said_to_be_none(payload: dict[str, Any]) -> None:
    found = read_host_call({"payload": payload})
    assert found.call_id is None or found.call_id == payload["call_id"]
    assert isinstance(found, HostCall) or found.message


def test_results_have_the_fields_of_the_pi_schema() -> None:
    chunk = Chunk(2, is_last=False)
    assert json.loads(encode_result("r1", "c1", Success({"x": 1}), chunk) or b"") == {
        "type": "host_result",
        "requestId": "r1",
        "payload": {
            "call_id": "c1",
            "output": {"x": 1},
            "is_error": False,
            "chunk": {"index": 2, "is_last": False},
        },
    }
    gone = Failure.because(Reason.EXITED, "gone")
    assert json.loads(encode_result(None, "c1", gone) or b"") == {
        "type": "host_result",
        "payload": {"call_id": "c1", "output": {}, "is_error": True, "error": pi_error(gone)},
    }


@pytest.mark.parametrize("outcome", [Success({"x": "\ud800"}), Failure("e", "\ud800")])
def test_what_cannot_be_told_becomes_the_failure_to_tell_it(outcome: Outcome) -> None:
    for chunk in (None, Chunk(3, is_last=True)):
        payload = json.loads(encode_result("r1", "c1", outcome, chunk) or b"")["payload"]
        assert payload["is_error"]
        assert "cannot be passed on" in payload["error"]["message"]
        assert payload["error"]["details"]["reason"] == "invalid_event"
        assert ("chunk" in payload) is (chunk is not None)
    assert encode_result("r1", "c1", outcome, Chunk(3, is_last=False)) is None


def test_what_waits_of_lines_that_are_of_no_request_is_counted() -> None:
    outgoing = Outgoing()
    outgoing.add(b"request\n", "r1")
    outgoing.add(b"result\n")
    assert outgoing.unasked_bytes == 7
    assert outgoing.take() == b"request\nresult\n"
    assert outgoing.unasked_bytes == 0
    outgoing.take_back(3)
    assert outgoing.unasked_bytes == 3


WEEK_MS = 604_800_000


@pytest.mark.parametrize(
    "changed",
    [
        {"call_id": "c"},
        {"call_id": "c" * 256},
        {"method": "m"},
        {"method": "m" * 128},
        {"capability": None},
        {"capability": "x"},
        {"timeout_ms": 1},
        {"timeout_ms": WEEK_MS},
        {"params": {}},
        {"params": {"a": nested(127)}},
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_call_within_its_bounds_is_read_field_by_field(changed: dict[str, Any]) -> None:
    payload = {"call_id": "c1", "method": "m", "params": {"a": 1}, **changed}
    call = read_host_call({"payload": payload})
    read = {"capability": None, "timeout_ms": None, **payload}
    assert call == HostCall(**read)


@pytest.mark.parametrize("timeout_ms", [None, 0])
def test_a_timeout_of_nothing_is_none(timeout_ms: int | None) -> None:
    call = read_host_call({"payload": {**GOOD, "timeout_ms": timeout_ms}})
    assert isinstance(call, HostCall)
    assert call.timeout_ms is None


LONG_ID = '"' + "c" * 59 + '…"'
AN_ID = '"call_id" of a host_call is {}, it must be a string of 1 to 256 characters'
A_METHOD = '"method" of the call is {}, it must name a method'
PARAMS = '"params" of the call is {}, it must be an object'
A_TIMEOUT = '"timeout_ms" of the call is {}, it must be a whole number from 0 to 604800000'

REFUSED: list[tuple[dict[str, Any], str, str | None]] = [
    ({"call_id": ""}, AN_ID.format('""'), None),
    ({"call_id": "c" * 257}, AN_ID.format(LONG_ID), None),
    ({"call_id": 1}, AN_ID.format("1"), None),
    ({"method": ""}, A_METHOD.format('""'), "c1"),
    ({"method": "c" * 129}, A_METHOD.format(LONG_ID), "c1"),
    ({"method": None}, A_METHOD.format("null"), "c1"),
    ({"params": None}, PARAMS.format("null"), "c1"),
    ({"params": []}, PARAMS.format("an array"), "c1"),
    (
        {"params": {"a": nested(128)}},
        '"params" of the call is nested more than 128 levels deep',
        "c1",
    ),
    ({"capability": 7}, '"capability" of the call is 7, it must be a string', "c1"),
    ({"timeout_ms": -1}, A_TIMEOUT.format("-1"), "c1"),
    ({"timeout_ms": WEEK_MS + 1}, A_TIMEOUT.format("604800001"), "c1"),
    ({"timeout_ms": True}, A_TIMEOUT.format("true"), "c1"),
    ({"timeout_ms": 1.0}, A_TIMEOUT.format("1.0"), "c1"),
]


@pytest.mark.parametrize(
    ("changed", "words", "call_id"), REFUSED, ids=[repr(one)[:40] for one, *_ in REFUSED]
)
def test_a_call_beyond_a_bound_is_refused_with_what_it_must_be(
    changed: dict[str, Any], words: str, call_id: str | None
) -> None:
    payload = {"call_id": "c1", "method": "m", "params": {"a": 1}, **changed}
    assert read_host_call({"payload": payload}) == BadCall(words, call_id)


def test_a_call_without_a_field_is_told_which() -> None:
    assert read_host_call({}) == BadCall(
        '"payload" of a host_call is missing, it must be an object'
    )
    assert read_host_call({"payload": 7}) == BadCall(
        '"payload" of a host_call is 7, it must be an object'
    )
    assert read_host_call({"payload": {}}) == BadCall(
        '"call_id" of a host_call is missing, it must be a string of 1 to 256 characters'
    )
    assert read_host_call({"payload": {"call_id": "c1"}}) == BadCall(
        '"method" of the call is missing, it must name a method', "c1"
    )
    assert read_host_call({"payload": {"call_id": "c1", "method": "m"}}) == BadCall(
        '"params" of the call is missing, it must be an object', "c1"
    )
