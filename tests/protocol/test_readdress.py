from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.events import Asset, Event, Log, StatePatch, UiEvent, decode_event
from protocol.host_events import HOST_FIELDS, decode_either, decode_extended
from protocol.readdress import Readdresser
from tests.deep_size import deep_size
from tests.protocol.spelling import lines

TRICKY = (
    "requestId",
    '"requestId":"r2"',
    '{"requestId":"r2"}',
    "\\",
    '\\"requestId',
    "{",
    "}",
    "é",
)

text = st.sampled_from(TRICKY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ids = text | st.sampled_from(["r1", "c-1", 'a"b', "a\\", "\x00", "ü", ""])
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


def passed_on(line: bytes, told: bytes, request_id: str | None) -> dict[str, Any]:
    """Give a line the client's id; returns what it says, having looked at how."""
    sent = Readdresser(request_id).readdress(told)
    assert sent is not None
    assert sent.startswith(b"{")
    assert sent.endswith(b"}\n")
    assert sent.count(b"\n") == 1
    assert b"\r" not in sent
    named = [value for name, value in pairs(sent) if name == "requestId"]
    assert named == ([] if request_id is None else [request_id]), "one id, and the client's"
    document: dict[str, Any] = json.loads(sent)
    return document


def built(event: Event) -> dict[str, Any]:
    """Return the fields of an event; what was left as bytes is decoded."""
    fields = msgspec.structs.asdict(event)
    return {
        name: msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
        for name, value in fields.items()
    }


@given(lines(plain()), st.none() | ids)
def test_however_an_event_is_spelled_only_its_id_changes(
    line: bytes, request_id: str | None
) -> None:
    event, told = decode_either(line)
    assert told == line or built(decode_event(told)) == built(event)
    assert passed_on(line, told, request_id) == with_id(json.loads(line), request_id)


@given(st.lists(lines(plain()), min_size=2, max_size=4), st.none() | ids)
def test_what_was_proved_of_one_line_misleads_about_no_other(
    spoken: list[bytes], request_id: str | None
) -> None:
    readdresser = Readdresser(request_id)
    heads = [b'{"requestId":"r1",', b'{"version":"0","requestId": "r1",', b"{"]
    for line in [*spoken, *(head + one.strip()[1:] for head in heads for one in spoken)]:
        _, told = decode_either(line)
        sent = readdresser.readdress(told)
        assert sent is not None
        named = [value for name, value in pairs(sent) if name == "requestId"]
        assert named == ([] if request_id is None else [request_id])
        assert json.loads(sent) == with_id(json.loads(line), request_id)


HEAD = b'{"requestId":"r1","version":"0","type":"ui_event",'


@pytest.mark.parametrize(
    "rest",
    [
        rb'"event":"e","payload":{"content":"x"}}',
        rb'"event":"e","payload":{"requestId":"r2","\u0072equestId":"r3"}}',
        rb'"event":"e","payload":{},"requestId":"r2"}',
        rb'"event":"e","payload":{},"\u0072equestId":"r2","payload":{}}',
        rb'"event":"e","payload":{},"requestId":"r2","payload":{}}',
        rb'"requestId":"r2","event":"e","payload":{"content":"x"}}',
        rb'"request\u0049d":"r2","event":"e","payload":{"content":"x"}}',
        rb'"event":"{","requestId":"r2","timestamp":"}"}',
        rb'"event":"{","requestId":"r2","payload":{}}',
        rb'"event":"e","payload":{"content":"}"},"requestId":"r2"}',
        rb'"event":"e","payload":{} ,"requestId":"r2" }',
        b'"event":"e","payload":{"content":\r"x"}}',
    ],
)
@pytest.mark.parametrize("pad", [0, 10_000])
def test_the_rest_of_a_line_whose_beginning_is_known_is_looked_at(rest: bytes, pad: int) -> None:
    rest = rest.replace(b'"x"', b'"%b"' % (b"x" * pad)).replace(b'"e"', b'"%b"' % (b"e" * pad), 1)
    readdresser = Readdresser("c")
    assert readdresser.readdress(HEAD + b'"event":"e"}') == HEAD.replace(b"r1", b"c") + (
        b'"event":"e"}\n'
    )
    sent = readdresser.readdress(HEAD + rest)
    assert sent is not None
    assert [value for name, value in pairs(sent) if name == "requestId"] == ["c"]
    assert json.loads(sent) == with_id(json.loads(HEAD + rest), "c")
    assert b"\r" not in sent


def is_harmless(name: str, document: dict[str, Any]) -> bool:
    """Tell whether a field may get to a client."""
    own = {"version", "requestId", "timestamp", *OWN[document["type"]], "type"}
    return name in own or name.casefold() not in {one.casefold() for one in own | HOST_FIELDS}


OWN = {
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
    _, told = decode_either(line)
    document = json.loads(line)
    expected = {name: value for name, value in document.items() if is_harmless(name, document)}
    assert passed_on(line, told, request_id) == with_id(expected, request_id)


CHUNK = b'"version":"0","type":"ui_event"'


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (b'{%b,"requestId":"r1","event":"e"}', b'{%b,"requestId":"c","event":"e"}'),
        (b'{"requestId":"r1",%b,"event":"e"}', b'{"requestId":"c",%b,"event":"e"}'),
        (b'{%b, "requestId": "r1", "event": "e"}', b'{%b, "requestId": "c", "event": "e"}'),
        (
            b'{%b,"event":"\\u00e9\\n{","requestId":"r1"}',
            b'{%b,"event":"\\u00e9\\n{","requestId":"c"}',
        ),
        (
            b'{%b,"event":"e","payload":{"a":[{}]},"requestId":"","timestamp":"t"}',
            b'{%b,"event":"e","payload":{"a":[{}]},"requestId":"c","timestamp":"t"}',
        ),
        (b'{%b,"event":"e"}', b'{"requestId":"c",%b,"event":"e"}'),
        (b' {%b, "event" :"e"}\r', b'{"requestId":"c",%b, "event" :"e"}'),
        (
            b'{%b,"event":"e","payload":{"n":1e2}}',
            b'{"requestId":"c",%b,"event":"e","payload":{"n":1e2}}',
        ),
    ],
)
def test_the_bytes_of_a_usual_line_are_the_modules_own(line: bytes, sent: bytes) -> None:
    line, sent = line % CHUNK, sent % CHUNK
    decode_event(line)
    assert Readdresser("c").readdress(line) == sent + b"\n"


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (b'{%b,"requestId":"r1","event":"e"}', b'{%b,"event":"e"}'),
        (b'{"requestId":"r1",%b,"event":"e"}', b'{%b,"event":"e"}'),
        (b'{%b,"event":"e","requestId":"r1"}', b'{%b,"event":"e"}'),
        (b'{%b,"event":"e"}', b'{%b,"event":"e"}'),
    ],
)
def test_a_client_without_an_id_gets_none(line: bytes, sent: bytes) -> None:
    assert Readdresser(None).readdress(line % CHUNK) == sent % CHUNK + b"\n"


@pytest.mark.parametrize(
    "fields",
    [
        rb'"requestId":"r1","requestId":"r2","event":"e"',
        rb'"requestId":"r1","\u0072equestId":"r2","event":"e"',
        rb'"\u0072equestId":"r2","event":"e","payload":{"a":{"requestId":"r1"}}',
        rb'"event":"\"requestId\":\"r1\"","\u0072equestId":"r2"',
        rb'"event":"e","payload":{"requestId":"r1"},"\u0072equestId":"r2"',
        rb'"payload":{"requestId":"r1"},"event":"e","requestId":"r2"',
        rb'"requestId" : "r2","event":"e"',
        rb'"requestId":  "r2","event":"e"',
        rb'"requestId":"\u0072\"2","event":"e"',
        rb'"event":"requestId","requestId":"requestId"',
        rb'"requestId":"r1","event":"e","REQUESTID":"r2"',
        rb'"requestId":"r1","event":"e","reque\u017ftId":"r2"',
        rb'"event":"e","a\"requestId":"r2","requestId":"r1"',
        rb'"event":"e","requestid":"r2"',
    ],
)
@pytest.mark.parametrize("request_id", ["c", None])
def test_no_other_requests_id_gets_to_a_client(fields: bytes, request_id: str | None) -> None:
    line = b"{%b,%b}" % (CHUNK, fields)
    _, told = decode_either(line)
    passed_on(line, told, request_id)
    sent = Readdresser(request_id).readdress(told)
    assert sent is not None
    folded = [value for name, value in pairs(sent) if name.casefold() == "requestid"]
    assert folded == ([] if request_id is None else [request_id])


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
    event, told = decode_either(line)
    sent = Readdresser("c").readdress(told)
    assert sent is not None
    names = [name for name, _ in pairs(sent)]
    assert sorted(names) == sorted(set(names))
    assert json.loads(sent) == with_id(json.loads(line), "c")
    assert json.loads(sent)["type"] == type(event).__struct_config__.tag


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
    own = {"version", "type", "x-new", *OWN[fields["type"]]} & {"version", "x-new", *fields}
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


def test_of_a_line_with_much_before_its_id_nothing_is_kept() -> None:
    readdresser = Readdresser("c")
    before = deep_size(readdresser)
    line = b'{"event":"%b","requestId":"r1",%b}' % (b"e" * 100_000, CHUNK)
    assert readdresser.readdress(line) == line.replace(b'"r1"', b'"c"') + b"\n"
    assert deep_size(readdresser) < before + 1000


@given(st.lists(lines(plain()), min_size=1, max_size=6), ids | st.none())
def test_lines_that_begin_alike_are_told_together_as_they_are_alone(
    said: list[bytes], request_id: str | None
) -> None:
    one = Readdresser(request_id)
    one.readdress(said[0])
    alike = [line for line in said * 2 if one.proves(line)]
    together = one.readdress_all(alike) if alike else b""
    alone = [one.readdress(line) for line in alike]
    assert together in (None, b"".join(line for line in alone if line is not None))


def test_a_line_that_may_have_the_id_elsewhere_keeps_its_neighbours_from_being_told_together() -> (
    None
):
    begin = b'{"version":"0","requestId":"r1","type":"log","level":"info","message":'
    one = Readdresser("c")
    one.readdress(begin + b'"a"}')
    plain_line = begin + b'"b"}'
    assert one.readdress_all([plain_line, plain_line]) == 2 * (
        b'{"version":"0","requestId":"c","type":"log","level":"info","message":"b"}\n'
    )
    for odd in (b'"c","requestId":"r1"}', b'"c"\r}', b'"c","request\\u0049d":"r1"}'):
        assert one.proves(begin + odd)
        assert one.readdress_all([plain_line, begin + odd]) is None


def test_a_line_of_up_to_1024_bytes_is_proved_by_the_one_before_it() -> None:
    begins, ends = b'{"requestId":"m","a":"', b'"}'
    readdresser = Readdresser("c")
    readdresser.readdress(begins + ends)
    for size, proved in ((1024, True), (1025, False)):
        text = b"x" * (size - len(begins) - len(ends))
        line = begins + text + ends
        assert len(line) == size
        assert readdresser.proves(line) is proved
        assert readdresser.readdress(line) == b'{"requestId":"c","a":"%b"}\n' % text


@pytest.mark.parametrize(
    "rest", [b"\r}", b',"requestId":"z"}', b',"request\\u0049d":"z"}', b"]"], ids=repr
)
def test_lines_are_readdressed_in_one_pass_only_if_none_needs_its_own(rest: bytes) -> None:
    readdresser = Readdresser("c")
    readdresser.readdress(b'{"requestId":"m"}')
    plain = b'{"requestId":"m","a":"\\n"}'
    assert readdresser.readdress_all([plain]) == b'{"requestId":"c","a":"\\n"}\n'
    assert readdresser.readdress_all([plain, plain]) == b'{"requestId":"c","a":"\\n"}\n' * 2
    other = b'{"requestId":"m"' + rest
    assert not readdresser.proves(other) or readdresser.readdress_all([plain, other]) is None


def test_an_id_is_taken_out_of_each_line_that_has_one() -> None:
    readdresser = Readdresser(None)
    for _ in range(2):
        assert readdresser.readdress(b'{"requestId":"m","a":1}') == b'{"a":1}\n'
        assert readdresser.readdress(b'{"a":1,"requestId":"m"}') == b'{"a":1}\n'
        assert readdresser.readdress(b'{"requestId":"m"}') == b"{}\n"
        assert readdresser.readdress(b'{"a":1}') == b'{"a":1}\n'
