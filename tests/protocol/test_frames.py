from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Reason
from protocol.frames import ClientFrame, RequestFrame, asked_as, decode_request, encode_line
from protocol.json_line import Fault
from tests.protocol.test_events import objects, text


def test_a_frame_has_its_four_fields_in_the_order_of_the_specification() -> None:
    frame = RequestFrame("r1", "dice", "health")
    assert encode_line(frame) == (
        b'{"requestId":"r1","tool":"dice","operation":"health","input":{}}\n'
    )


def test_a_line_holds_no_newline_whatever_the_value_holds() -> None:
    encoded = encode_line({"a": "x\ny\r\n"})
    assert encoded == b'{"a":"x\\ny\\r\\n"}\n'


@given(text, text, text, objects)
def test_a_frame_that_was_written_is_read_back(
    request_id: str, tool: str, operation: str, content: dict[str, Any]
) -> None:
    frame = ClientFrame(request_id, tool, operation, content)
    assert decode_request(encode_line(frame).removesuffix(b"\n")) == frame


def test_integers_of_any_size_are_read_back_exactly() -> None:
    frame = ClientFrame("r1", "dice", "roll", {"n": 2**70})
    assert decode_request(encode_line(frame)) == frame


def test_a_cancel_needs_no_more_than_its_id_and_operation() -> None:
    frame = decode_request(b'{"requestId":"r3","operation":"cancel"}')
    assert frame == ClientFrame("r3", None, "cancel")


@pytest.mark.parametrize(
    ("line", "login"),
    [
        (b'{"requestId":"r1","as":"h1","tool":"dice"}', "h1"),
        (b'{"requestId":"r1","input":{"as":"h1"}}', None),
        (b'{"requestId":"r1","as":7}', None),
        (b'{"requestId":"r1","as":"h1"', None),
        (b'{"requestId":"as"}', None),
    ],
)
def test_the_login_of_a_line_is_found_where_the_line_can_be_read(
    line: bytes, login: str | None
) -> None:
    assert asked_as(line) == login


def test_unknown_fields_of_a_request_are_ignored() -> None:
    frame = decode_request(b'{"requestId":"r1","operation":"health","later":[1]}')
    assert frame == ClientFrame("r1", None, "health")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello", Reason.MALFORMED_JSON),
        (b"[" * 100_000, Reason.MALFORMED_JSON),
        (b'{"requestId":"r1","input":{"a":1e999}}', Reason.MALFORMED_JSON),
        (b"[]", Reason.NOT_OBJECT),
        (b"7", Reason.NOT_OBJECT),
        (b'{"requestId":"\xff"}', Reason.INVALID_UTF8),
        (b'{"requestId":1}', Reason.MALFORMED_REQUEST),
        (b'{"requestId":"r1","tool":[]}', Reason.MALFORMED_REQUEST),
        (b'{"requestId":"r1","input":[]}', Reason.MALFORMED_REQUEST),
    ],
)
def test_a_bad_request_is_refused_by_name(line: bytes, reason: Reason) -> None:
    fault = decode_request(line)
    assert isinstance(fault, Fault)
    assert fault.reason is reason


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"requestId":1}', '"requestId" of a request is a number, it must be a string'),
        (b'{"tool":[]}', '"tool" of a request is an array, it must be a string'),
        (b'{"tool":null,"operation":{}}', '"operation" of a request is an object, it must be a'),
        (b'{"input":null}', '"input" of a request is null, it must be an object'),
        (b'{"as":7}', '"as" of a request is a number, it must be a string'),
        (b'{"asks":[1]}', '"asks" of a request is an array, it must be an array of strings'),
        (b'{"tool":1,"tool":"a"}', "a field of the request stands there twice"),
    ],
)
def test_a_field_of_the_wrong_type_is_named_with_what_would_be_right(
    line: bytes, words: str
) -> None:
    fault = decode_request(line)
    assert isinstance(fault, Fault)
    assert fault.message.startswith(words)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_frame_or_a_fault(line: bytes) -> None:
    assert isinstance(decode_request(line), RequestFrame | Fault)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (RequestFrame(), ""),
        (RequestFrame("r1", "dice", "invoke", {"op": "roll"}), "dice invoke roll"),
        (RequestFrame("r1", "dice", "invoke", {"op": 3}), "dice invoke"),
        (RequestFrame("r1", None, "cancel"), "cancel"),
        (RequestFrame("r1", "x" * 60, "y" * 61), f"{'x' * 60} {'y' * 59}…"),
        (RequestFrame("r1", "a\nb", "invoke"), r"a\nb invoke"),
    ],
)
def test_a_frame_is_told_in_a_few_words_on_one_line(frame: RequestFrame, words: str) -> None:
    assert str(frame) == words
