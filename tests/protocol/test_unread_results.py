"""A result that nobody looks at is passed on as the module wrote it, and is JSON all the same."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.connection import Answered
from protocol.errors import Outcome, Success
from protocol.json_line import passes_unread
from protocol.response import Response
from tests.protocol.wire import descriptor, feed, invoke, module

NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,320})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,5})?", fullmatch=True
)


def outcomes(result: bytes) -> list[Outcome]:
    connection = module(descriptor())
    connection.ask(invoke("r1"))
    received = feed(connection, b'{"requestId":"r1","ok":true,"result":%b}\n' % result)
    return [one.outcome for one in received if isinstance(one, Answered)]


@given(NUMBERS)
def test_a_number_that_passes_unread_is_one_that_a_double_holds(number: str) -> None:
    if passes_unread(number.encode()):
        assert math.isfinite(float(number))
        msgspec.json.decode(number)  # else this raises


def test_a_result_keeps_its_spelling_and_is_built_for_who_looks() -> None:
    said = b'{ "b":1.0,"a" : [ "\\u00e9", 12345678901234567890123 ]}'
    (outcome,) = outcomes(said)
    assert isinstance(outcome, Success)
    document = Response(outcome).document(built=False)
    assert msgspec.json.encode(document) == b'{"ok":true,"result":%b}' % said
    assert outcome == Success({"b": 1.0, "a": ["\xe9", 12345678901234567890123]})


@pytest.mark.parametrize("result", [b'["\xff"]', b"[1e999]", b"[-1E+400]", b"1" * 400 + b".0"])
def test_what_is_no_json_to_others_is_not_passed_on(result: bytes) -> None:
    assert not any(isinstance(one, Success) for one in outcomes(result))


MANY = b",".join([b"1"] * 1000)


@pytest.mark.parametrize("result", [b'"3e500"', b'["3e500",%b]' % MANY, b'"%b"' % (b"0" * 200)])
def test_text_that_looks_like_too_large_a_number_is_none(result: bytes) -> None:
    (outcome,) = outcomes(result)
    assert isinstance(outcome, Success)
    assert msgspec.json.encode(outcome.said) == result


@pytest.mark.parametrize("result", [b'{"a":\r1}', b"[\r%b]" % MANY])
def test_a_carriage_return_is_left_out(result: bytes) -> None:
    (outcome,) = outcomes(result)
    assert isinstance(outcome, Success)
    assert msgspec.json.encode(outcome.said) == result.replace(b"\r", b"")


@pytest.mark.parametrize("number", [b"1e999", b"1" * 400 + b".0"])
def test_among_many_values_a_number_that_is_too_large_is_found(number: bytes) -> None:
    assert not any(isinstance(one, Success) for one in outcomes(b"[%b,%b]" % (MANY, number)))
