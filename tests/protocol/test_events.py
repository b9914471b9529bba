from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from protocol.errors import Reason, Success
from protocol.events import (
    TYPES,
    Done,
    Event,
    Log,
    Object,
    UiEvent,
    built,
    decode_event,
    read_event,
)
from protocol.host_events import decode_either
from protocol.json_line import Fault, read_object
from protocol.replies import Operation, read_done

SCHEMA = jsonschema.Draft202012Validator(schemas.load("narratoria-event.v0"))

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(text, values, max_size=2)

_FIELDS: dict[str, tuple[dict[str, st.SearchStrategy[Any]], dict[str, st.SearchStrategy[Any]]]] = {
    "log": (
        {"level": st.sampled_from(["debug", "info", "warn", "error"]), "message": text},
        {"fields": objects},
    ),
    "state_patch": ({"patch": objects}, {}),
    "asset": (
        {"assetId": text, "kind": text, "mediaType": text, "path": text},
        {"metadata": objects},
    ),
    "ui_event": ({"event": text}, {"payload": objects}),
    "error": ({"errorCode": text, "errorMessage": text}, {"details": objects}),
    "done": ({"ok": st.booleans()}, {"summary": text, "result": values, "error": values}),
}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an event as the specification describes it, with fields it does not."""
    name = draw(st.sampled_from(TYPES))
    required, optional = _FIELDS[name]
    event = st.fixed_dictionaries(
        {"version": st.just("0"), "type": st.just(name), **required},
        optional={"requestId": text, "timestamp": text, **optional},
    )
    extra = draw(st.dictionaries(text.map("x-{}".format), values, max_size=2))
    items = draw(st.permutations([*draw(event).items(), *extra.items()]))
    return dict(items)


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an event and spoil it: fields lost, of another type, of another event."""
    document = draw(documents())
    names = st.sampled_from(
        [*document, "version", "type", "level", "patch", "assetId", "event", "errorCode", "ok"]
    )
    for _ in range(draw(st.integers(1, 3))):
        name = draw(names)
        if draw(st.booleans()):
            document.pop(name, None)
        else:
            document[name] = draw(values | st.sampled_from(["0", "1", *TYPES]))
    return document


def encode(document: dict[str, Any], *, ascii_only: bool = False) -> bytes:
    return json.dumps(document, ensure_ascii=ascii_only).encode()


def fast(line: bytes) -> Event | None:
    try:
        event, _ = decode_either(line)
    except msgspec.DecodeError:
        return None
    return event


def slow(line: bytes) -> Event | Fault:
    document = read_object(line)
    return document if isinstance(document, Fault) else read_event(line, document)


def said(event: Event | Fault | None) -> Any:
    """Return what an event says, in whatever form."""
    return msgspec.json.decode(msgspec.json.encode(event))


@pytest.mark.clause("N001-3-d")
@pytest.mark.clause("N001-8-d")
@given(documents(), st.booleans())
def test_every_event_of_the_specification_is_read_whatever_else_it_holds(
    document: dict[str, Any], ascii_only: bool
) -> None:
    line = encode(document, ascii_only=ascii_only)
    event = fast(line)
    assert event is not None
    assert said(slow(line)) == said(event)
    assert SCHEMA.is_valid(document)


@given(mutations())
def test_the_fast_path_the_slow_one_and_the_schema_agree(document: dict[str, Any]) -> None:
    line = encode(document)
    valid = SCHEMA.is_valid(document)
    assert (fast(line) is not None) is valid
    assert isinstance(slow(line), Fault) is not valid


MANY = ",".join(map(str, range(1000)))

UNBUILT = {
    "log": '"level":"info","message":"m","fields":{"n":[%s]}',
    "state_patch": '"patch":{"n":[%s]}',
    "asset": '"assetId":"a","kind":"k","mediaType":"a/b","path":"/p","metadata":{"n":[%s]}',
    "ui_event": '"event":"e","payload":{"n":[%s]}',
    "done": '"ok":true,"result":[%s]',
}


def unbuilt(type_: str, values: str) -> bytes:
    return f'{{"version":"0","type":"{type_}",{UNBUILT[type_] % values}}}'.encode()


@pytest.mark.parametrize("type_", UNBUILT)
def test_many_values_stay_bytes_until_somebody_looks(type_: str) -> None:
    line = unbuilt(type_, MANY)
    event, told = decode_either(line)
    assert told == line
    (value,) = (one for one in msgspec.structs.astuple(event) if type(one) is msgspec.Raw)
    expected = list(range(1000))
    if isinstance(event, Done):
        outcome = read_done(Operation.INVOKE, event, None, "")
        assert isinstance(outcome, Success)
        assert (type(outcome.said), outcome.result) == (msgspec.Raw, expected)
    else:
        assert built(value) == {"n": expected}


BAD = {
    "a number no double holds": "1e999",
    "an integer of too many digits": "9" * 5000,
    "no number": "NaN",
    "too deep": "[" * 100_000 + "]" * 100_000,  # Python 3.13 lets C code go ten times deeper
    "half a character": '"\\ud800"',
    "a raw carriage return in a string": '"\r"',
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
@pytest.mark.parametrize("type_", UNBUILT)
def test_what_is_skipped_is_held_to_the_same(type_: str, value: str) -> None:
    line = unbuilt(type_, f"{MANY},{value}")
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        decode_either(line)
    assert isinstance(slow(line), Fault)


@pytest.mark.parametrize("type_", sorted(UNBUILT.keys() - {"done"}))
def test_an_array_stays_no_object_however_long(type_: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_either(unbuilt(type_, MANY).replace(b'{"n":[', b"[").replace(b"]}}", b"]}"))


def test_a_value_that_stays_bytes_brings_no_carriage_return() -> None:
    line = unbuilt("ui_event", MANY.replace(",", ",\r"))
    event, told = decode_either(line)
    assert msgspec.json.decode(told) == msgspec.json.decode(line)
    assert b"\r" not in told + msgspec.json.encode(event)


def test_what_is_just_not_too_deep_where_it_is_read_can_be_built_by_who_looks() -> None:
    deepest = 0
    for depth in range(800, 1000):
        line = unbuilt("ui_event", f"{MANY},{'[' * depth}{']' * depth}")
        try:
            event, _ = decode_either(line)
        except RecursionError:
            break
        deepest = depth
        assert isinstance(event, UiEvent)
        assert built_further_down(40, event.payload)["n"][:1] == [0]
    assert deepest


def built_further_down(frames: int, value: Object) -> dict[str, Any]:
    return built_further_down(frames - 1, value) if frames else built(value)


LOG = {"version": "0", "type": "log", "level": "info", "message": "m"}

SPOILED: dict[str, tuple[dict[str, Any], Reason]] = {
    "no version": ({"version": None}, Reason.BAD_VERSION),
    "version 1": ({"version": "1"}, Reason.BAD_VERSION),
    "a number as version": ({"version": 0}, Reason.BAD_VERSION),
    "version 1 and an unknown type": ({"version": "1", "type": "x"}, Reason.BAD_VERSION),
    "an unknown type": ({"type": "progress"}, Reason.UNKNOWN_TYPE),
    "a type in capitals": ({"type": "LOG"}, Reason.UNKNOWN_TYPE),
    "no type": ({"type": None}, Reason.INVALID_EVENT),
    "a list as type": ({"type": ["log"]}, Reason.INVALID_EVENT),
    "a number as type": ({"type": 1}, Reason.INVALID_EVENT),
    "an unknown level": ({"level": "fatal"}, Reason.INVALID_EVENT),
    "no message": ({"message": None}, Reason.INVALID_EVENT),
    "a number as message": ({"message": 1}, Reason.INVALID_EVENT),
    "a list as fields": ({"fields": [1]}, Reason.INVALID_EVENT),
    "a number as requestId": ({"requestId": 1}, Reason.INVALID_EVENT),
    "a done without ok": ({"type": "done"}, Reason.INVALID_EVENT),
    "a done with ok 1": ({"type": "done", "ok": 1}, Reason.INVALID_EVENT),
    "a list as patch": ({"type": "state_patch", "patch": [1]}, Reason.INVALID_EVENT),
    "an asset without path": (
        {"type": "asset", "assetId": "a", "kind": "image", "mediaType": "image/png"},
        Reason.INVALID_EVENT,
    ),
}


@pytest.mark.clause("N001-3-a")
@pytest.mark.clause("N001-3-b")
@pytest.mark.clause("N001-3-c")
@pytest.mark.clause("N001-4.2-a")
@pytest.mark.clause("N001-4.4-a")
@pytest.mark.clause("N001-8-a")
@pytest.mark.clause("N001-8-b")
@pytest.mark.parametrize(("change", "reason"), SPOILED.values(), ids=SPOILED)
def test_what_is_no_event_is_refused_by_name(change: dict[str, Any], reason: Reason) -> None:
    document = {name: value for name, value in {**LOG, **change}.items() if value is not None}
    line = encode(document)
    assert fast(line) is None
    fault = slow(line)
    assert isinstance(fault, Fault)
    assert fault.reason is reason


WORDS: dict[str, dict[str, Any]] = {
    '"ok" is missing, must be true or false': {"type": "done"},
    '"ok" is a string, must be true or false': {"type": "done", "ok": "true"},
    '"ok" is missing, must be true or false; is "Ok" a misspelling of it?': {
        "type": "done",
        "Ok": True,
    },
    '"summary" is a number, must be a string': {"type": "done", "ok": True, "summary": 5},
    '"requestId" is a number, must be a string': {"type": "done", "ok": True, "requestId": 1},
    "did you mean 'warn'?": {"type": "log", "level": "warning", "message": "m"},
    '"patch" is an array, must be an object': {"type": "state_patch", "patch": []},
    '"errorCode" is missing, must be a string': {"type": "error", "errorMessage": "m"},
    '"type" is a number, must be one of log, state_patch': {"type": 1},
    "did you mean 'log'?": {"type": "logs", "message": "m"},
}


@pytest.mark.parametrize(("words", "document"), WORDS.items(), ids=WORDS)
def test_what_is_no_event_is_told_the_field_and_what_would_be_right(
    words: str, document: dict[str, Any]
) -> None:
    found = slow(encode({"version": "0", **document}))
    assert isinstance(found, Fault)
    assert words in found.message


@given(mutations())
def test_what_is_no_event_is_told_in_no_decoders_words(document: dict[str, Any]) -> None:
    found = slow(encode(document))
    if isinstance(found, Fault) and found.reason is Reason.INVALID_EVENT:
        assert "Expected `" not in found.message
        assert "Object missing" not in found.message


@pytest.mark.parametrize("value", ["null", '"x"', "[]", "1" * 4000, "-" + "1" * 4000, "{}"])
def test_a_bad_version_of_any_kind_and_size_is_put_in_short_words(value: str) -> None:
    fault = slow(b'{"version":%b,"type":"log"}' % value.encode())
    assert isinstance(fault, Fault)
    assert fault.reason is Reason.BAD_VERSION
    assert len(fault.message) < 160


def test_a_key_that_stands_twice_counts_with_its_last_value() -> None:
    twice = b'{"version":"1","version":"0","type":"log","type":"done","ok":true}'
    with pytest.raises(msgspec.ValidationError):
        decode_event(twice)
    assert fast(twice) == slow(twice) == Done(version="0", ok=True)


@pytest.mark.clause("N001-8-d")
def test_an_ignored_field_may_hold_what_could_not_be_read() -> None:
    line = b'{"version":"0","type":"log","level":"info","message":"m","x":1e999}'
    assert fast(line) == Log(version="0", level="info", message="m")


def test_integers_beyond_64_bit_reach_the_state_unharmed() -> None:
    event = fast(b'{"version":"0","type":"state_patch","patch":{"n":%d}}' % 2**70)
    assert event is not None
    assert msgspec.to_builtins(event)["patch"] == {"n": 2**70}


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
)
def test_what_the_decoder_takes_is_utf8(bad: bytes) -> None:
    line = (
        '{"payload":{"a":["b",{"c":"%s\u00e9"}]},"requestId":"r1","event":"e","type":"ui_event",'
        '"version":"0","payload":{"a":1},"type":"ui_event"}' % ("long " * 20)
    ).encode()
    assert decode_event(line).request_id == "r1"
    for at in range(len(line) + 1):
        for spoilt in (line[:at] + bad + line[at:], line[:at] + bad + line[at + 1 :]):
            try:
                decode_event(spoilt)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            spoilt.decode()
