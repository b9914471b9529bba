from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UnsetType

from protocol.connection import EventReceived
from protocol.events import Asset, AssetBytes, Log, StatePatch, UiEvent
from protocol.host_events import HOST_FIELDS, decode_either, decode_extended
from protocol.readdress import readdress, replace_ids
from tests.protocol.spelling import OWN, lines
from tests.protocol.wire import descriptor, invoke, narratoria

TRICKY = (
    "requestId",
    '"requestId":"r2"',
    '{"requestId":"r2"}',
    OWN,
    f'"{OWN}"',
    "\\",
    '\\"requestId',
    "{",
    "}",
    "é",
)

text = st.sampled_from(TRICKY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ids = text | st.sampled_from(["r2", "c-1", 'a"b', "a\\", "\x00", "ü", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | text,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(text | st.just("requestId"), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(text, values, max_size=3)
FOLDING = ("REQUESTID", "RequestId", "reque\u017ftId", "Version", "TYPE", "Registered")

known = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("log"), "level": st.sampled_from(["info", "warn"]), "message": text},
        optional={"fields": objects},
    ),
    st.fixed_dictionaries({"type": st.just("state_patch"), "patch": objects}),
    st.fixed_dictionaries(
        {"type": st.just("ui_event"), "event": text}, optional={"payload": objects}
    ),
    st.fixed_dictionaries({"type": st.just("error"), "errorCode": text, "errorMessage": text}),
)


@st.composite
def plain(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an event with no other fields than its own."""
    optional = st.fixed_dictionaries({}, optional={"requestId": ids, "timestamp": text})
    return {"version": "0", **draw(known), **draw(optional)}


@st.composite
def extended(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an event with fields that it does not have."""
    names = text | st.sampled_from([*FOLDING, *sorted(HOST_FIELDS)])
    names = names.filter(lambda name: name != "requestId")
    return {**draw(st.dictionaries(names, values, min_size=1, max_size=3)), **draw(plain())}


def pairs(line: bytes) -> list[tuple[str, Any]]:
    """Return the fields of the outermost object as they stand there, doubled ones twice."""
    found: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list)
    return found


def with_id(document: dict[str, Any], request_id: str | None) -> dict[str, Any]:
    rest = {name: value for name, value in document.items() if name != "requestId"}
    return rest if request_id is None else {**rest, "requestId": request_id}


def heard(line: bytes) -> tuple[bytes, str | UnsetType]:
    """Return the line of an event that a tool prints for its one request, and the id in it."""
    tool = narratoria(descriptor())
    tool.ask(invoke(OWN))
    (received,) = tool.receive_data(line + b"\n")
    assert isinstance(received, EventReceived)
    assert received.line is not None
    assert not isinstance(received.event, AssetBytes)
    return received.line, received.event.request_id


def sent_on(line: bytes, request_id: str | None) -> bytes:
    """Return what a client gets of an event that a tool prints."""
    sent = readdress(*heard(line), request_id)
    assert sent is not None
    return sent


def passed_on(line: bytes, request_id: str | None) -> dict[str, Any]:
    """Give a line the client's id; returns what it says, having looked at how."""
    sent = sent_on(line, request_id)
    assert sent.startswith(b"{")
    assert sent.endswith(b"}\n")
    assert sent.count(b"\n") == 1
    assert b"\r" not in sent
    named = [value for name, value in pairs(sent) if name.casefold() == "requestid"]
    assert named == ([] if request_id is None else [request_id]), "one id, and the client's"
    document: dict[str, Any] = json.loads(sent)
    return document


@given(lines(plain()), st.none() | ids)
def test_however_an_event_is_spelled_only_its_id_changes(
    line: bytes, request_id: str | None
) -> None:
    assert passed_on(line, request_id) == with_id(json.loads(line), request_id)


@given(st.lists(lines(plain()), min_size=2, max_size=4), st.none() | ids)
def test_lines_of_a_request_are_told_together_as_they_are_alone(
    said: list[bytes], request_id: str | None
) -> None:
    told, own = zip(*map(heard, said), strict=True)
    together = replace_ids(told, own[0], request_id) if len({*own}) == 1 else None
    assert together in (None, b"".join(sent_on(line, request_id) for line in said))


def is_harmless(name: str, document: dict[str, Any]) -> bool:
    """Tell whether a field may get to a client."""
    own = {"version", "requestId", "timestamp", *FIELDS[document["type"]], "type"}
    return name in own or name.casefold() not in {one.casefold() for one in own | HOST_FIELDS}


FIELDS = {
    "log": {"level", "message", "fields"},
    "state_patch": {"patch"},
    "asset": {"assetId", "kind", "mediaType", "path", "metadata"},
    "ui_event": {"event", "payload"},
    "error": {"errorCode", "errorMessage", "details"},
}


@given(lines(extended()), st.none() | ids)
def test_fields_that_are_not_known_stay_but_for_those_that_would_deceive(
    line: bytes, request_id: str | None
) -> None:
    document = json.loads(line)
    expected = {name: value for name, value in document.items() if is_harmless(name, document)}
    assert passed_on(line, request_id) == with_id(expected, request_id)


CHUNK = b'"version":"0","type":"ui_event"'
NAMED = b'"requestId":"%b"' % OWN.encode()


@pytest.mark.parametrize("request_id", ["c", 'a"b'])
@pytest.mark.parametrize(
    "line",
    [
        b'{%b,%b,"event":"e"}' % (CHUNK, NAMED),
        b'{%b,%b,"event":"e"}' % (NAMED, CHUNK),
        b'{ %b , %b, "event": "e","payload":{"n":1e2, "a":[{}]}}' % (NAMED, CHUNK),
        b'{%b,"event":"\\u0444\\n{","timestamp":"}",%b}' % (CHUNK, NAMED),
    ],
)
def test_of_a_line_that_names_its_request_all_but_the_id_is_the_modules_own(
    line: bytes, request_id: str
) -> None:
    sent = sent_on(line, request_id)
    assert sent == line.replace(f'"{OWN}"'.encode(), json.dumps(request_id).encode()) + b"\n"


@pytest.mark.parametrize(
    "line",
    [
        b'{%b,"event":"e"}' % CHUNK,
        b'{%b, "event" :"%b","payload":{"requestId":"r2"}}' % (CHUNK, OWN.encode()),
    ],
)
def test_a_line_that_names_no_request_begins_with_the_clients_id(line: bytes) -> None:
    spaced = b" " + line + b"\r"
    assert sent_on(spaced, "c") == b'{"requestId":"c",' + line[1:] + b"\n"
    assert sent_on(spaced, None) == line + b"\n"


@pytest.mark.parametrize(
    "fields",
    [
        rb'"requestId":"OWN","requestId":"r2","event":"e"',
        rb'"requestId":"r2","requestId":"OWN","event":"e"',
        rb'"requestId":"r2","event":"e"',
        rb'"requestId":"a\/b","event":"a/b"',
        rb'"requestId":"OWN","\u0072equestId":"r2","event":"e"',
        rb'"request\u0049d":"r2","requestId":"OWN","event":"e"',
        rb'"\u0072equestId":"r2","event":"e","payload":{"a":{"requestId":"OWN"}}',
        rb'"event":"OWN","\u0072equestId":"\u0072\u0032"',
        rb'"event":"\"requestId\":\"OWN\"","\u0072equestId":"r2"',
        rb'"event":"e","payload":{"requestId":"OWN"},"\u0072equestId":"r2"',
        rb'"payload":{"requestId":"OWN"},"event":"e","requestId":"r2"',
        rb'"payload":{"a":"OWN"},"event":"e","requestId":"\u0072\u0031-7f3a9c"',
        rb'"requestId" : "OWN","event":"e"',
        rb'"requestId":"\u0072\"2","event":"e"',
        rb'"event":"requestId","requestId":"requestId"',
        rb'"requestId":"OWN","event":"e","REQUESTID":"r2"',
        rb'"requestId":"OWN","event":"e","reque\u017ftId":"r2"',
        rb'"event":"e","a\"requestId":"r2","requestId":"OWN"',
        rb'"event":"e","requestid":"r2"',
        rb'"event":"e","payload":{"requestId":"OWN"}',
    ],
)
@pytest.mark.parametrize("request_id", ["c", None])
def test_no_other_requests_id_gets_to_a_client(fields: bytes, request_id: str | None) -> None:
    line = b"{%b,%b}" % (CHUNK, fields.replace(b"OWN", OWN.encode()))
    said = passed_on(line, request_id)
    document = json.loads(line)
    assert (said["event"], said.get("payload")) == (document["event"], document.get("payload"))


@pytest.mark.parametrize(
    "odd",
    [
        b'{%b,"event":"%b",%b}' % (CHUNK, OWN.encode(), NAMED),
        b'{%b,"event":"e",%b,"requestId":"r2"}' % (NAMED, CHUNK),
        b'{%b,"event":"e",%b,"request\\u0049d":"r2"}' % (NAMED, CHUNK),
    ],
)
def test_a_line_that_may_have_the_id_elsewhere_is_not_told_together_with_others(odd: bytes) -> None:
    plain_line = b'{%b,%b,"event":"e"}' % (NAMED, CHUNK)
    sent = b'{"requestId":"c",%b,"event":"e"}\n' % CHUNK
    assert replace_ids([plain_line, plain_line], OWN, "c") == sent * 2
    assert replace_ids([plain_line, odd], OWN, "c") is None
    assert replace_ids([plain_line, plain_line], OWN, None) is None, "an id is not taken out"


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"done","ok":true,"version":"0","type":"log","level":"info","message":"x"}',
        b'{"\\u0074ype":"done","ok":true,"version":"0","type":"log","level":"info","message":"x"}',
        b'{"type":"asset","path":"/p","type":"log","version":"0","level":"info","message":"x"}',
        b'{"version":"1","version":"0","type":"log","level":"info","message":"x"}',
        b'{"version":"0","type":"ui_event","event":"a","more":{},"event":"b"}',
    ],
)
@pytest.mark.parametrize("pad", [0, 10_000])
def test_a_parser_to_which_the_first_key_counts_is_told_of_no_other_event(
    line: bytes, pad: int
) -> None:
    line = line.replace(b'"x"', b'"%b"' % (b"x" * pad))
    sent = sent_on(line, "c")
    names = [name for name, _ in pairs(sent)]
    assert sorted(names) == sorted(set(names))
    assert json.loads(sent) == with_id(json.loads(line), "c")
    assert json.loads(sent)["type"] == type(decode_either(line)[0]).__struct_config__.tag


@pytest.mark.parametrize(
    "line",
    [
        b'{"version":"0", "type":"ui_event","event":"e","payload":{"type":"a","event":"e"},"n":1}',
        b'{"version":"0", "type":"log","level":"info","message":"\\u0007\\"type\\"","more":"type"}',
        b'{"version":"0", "type":"log","level":"info","message":"x","more":{"a":1,"a":2}}',
    ],
)
def test_a_name_that_stands_again_within_a_value_changes_no_value(line: bytes) -> None:
    assert decode_either(line)[1] == line.replace(b'"0", "type"', b'"0","type"')


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (UiEvent, {"type": "ui_event", "event": "approval.asked", "approval": "a1"}),
        (UiEvent, {"type": "ui_event", "event": "e", "placeholder": "[trust me]", "origin": {}}),
        (
            Asset,
            {
                "type": "asset",
                "assetId": "a",
                "kind": "k",
                "mediaType": "a/b",
                "path": "/p",
                "registered": {"id": "x"},
            },
        ),
        (StatePatch, {"type": "state_patch", "patch": {}, "revision": 7, "Revision": 8}),
        (Log, {"type": "log", "level": "info", "message": "m", "TYPE": "done"}),
    ],
)
def test_what_only_the_host_says_is_not_passed_on(event: type[Any], fields: dict[str, Any]) -> None:
    line = json.dumps({"version": "0", **fields, "x-new": {"requestId": 1.50}}).encode()
    read, told = decode_extended(line)
    assert type(read) is event
    own = {"version", "type", "x-new", *FIELDS[fields["type"]]} & {"version", "x-new", *fields}
    assert set(json.loads(told)) == own


def test_the_names_that_only_the_host_uses() -> None:
    assert {"approval", "by_host", "origin", "placeholder", "registered", "revision"} == HOST_FIELDS


@pytest.mark.parametrize("value", [b"1e999", b"9" * 5000])
def test_a_value_that_no_reader_need_accept_is_left_out(value: bytes) -> None:
    line = b'{%b,"event":"e","x":%b,"y":1.50}' % (CHUNK, value)
    _, told = decode_extended(line)
    assert told == b'{%b,"event":"e","y":1.50}' % CHUNK


def test_nor_does_it_pass_where_its_name_stands_twice() -> None:
    _, told = decode_extended(b'{%b,"event":"e","x":1e999,"x":1.50}' % CHUNK)
    assert told == b'{%b,"event":"e","x":1.50}' % CHUNK


@pytest.mark.parametrize("first", [b'"type"', rb'"typ\u0065"'])
def test_a_reader_that_takes_the_first_of_two_types_finds_the_hosts(first: bytes) -> None:
    line = b'{%b:"done","ok":true,%b,"event":"e"}' % (first, CHUNK)
    event, told = decode_either(line)
    assert type(event) is UiEvent
    assert [value for name, value in pairs(told) if name == "type"] == ["ui_event"]
