"""PROTOCOLS.md, clause by clause, on the wire."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest

import schemas
from protocol.connection import Request
from protocol.errors import Failure, Reason, Success
from protocol.replies import Operation
from tests.protocol.test_module_dialect import answers
from tests.protocol.wire import (
    Cuts,
    descriptor,
    feed,
    line,
    module,
)

DESCRIPTOR = {
    "name": "dice",
    "kind": "tool",
    "transport": {"type": "stdio", "command": ["dice"]},
    "capabilities": [],
}


def valid(name: str, document: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schemas.load(name)).is_valid(document))


@pytest.mark.clause("PV1-1-a")
@pytest.mark.parametrize("name", DESCRIPTOR)
def test_a_descriptor_needs_each_of_its_four_fields(name: str) -> None:
    assert valid("module-descriptor.v1", DESCRIPTOR)
    without = {key: value for key, value in DESCRIPTOR.items() if key != name}
    assert not valid("module-descriptor.v1", without)


@pytest.mark.clause("PV1-2-f")
@pytest.mark.parametrize("lengths", [[], [1] * 20])
def test_a_hook_is_told_of_an_event_by_an_invoke_and_acknowledges_it(lengths: Cuts) -> None:
    connection = module(descriptor())
    told = {"event": "session:start", "data": {}}
    connection.ask(Request("r1", Operation.INVOKE, "on_event", told))
    frame = msgspec.json.decode(connection.outgoing.take())
    assert frame["operation"] == "invoke"
    assert frame["input"] == {"op": "on_event", "args": told}
    assert answers(feed(connection, line(ok=True, result=None), lengths)) == {"r1": Success(None)}


@pytest.mark.clause("PV1-2-g")
def test_one_json_object_per_line_both_ways() -> None:
    connection = module(descriptor())
    text = 'line one\nline two\r\n"quoted"'
    connection.ask(Request("r1", Operation.INVOKE, "say", {"text": text}))
    written = connection.outgoing.take()
    assert written.count(b"\n") == 1
    assert written.endswith(b"\n")
    assert msgspec.json.decode(written)["input"]["args"]["text"] == text
    reply = line(ok=True, result=text)
    assert answers(feed(connection, reply)) == {"r1": Success(text)}


@pytest.mark.clause("PV1-4-a")
@pytest.mark.parametrize("reason", Reason)
def test_each_error_of_ours_has_the_form_of_error_schema_v1(reason: Reason) -> None:
    failure = Failure.because(reason, "words", pid=7)
    body = {"code": failure.code, "message": failure.message, "details": failure.details}
    assert valid("error.v1", msgspec.to_builtins(body))


@pytest.mark.clause("PV1-4-a")
def test_an_error_of_the_modules_own_passes_through_untouched() -> None:
    connection = module(descriptor())
    connection.ask(Request("r1", Operation.INVOKE, "roll"))
    error = {"code": "dice.lost", "message": "under the sofa", "details": {"last_seen": [1, {}]}}
    outcome = answers(feed(connection, line(ok=False, error=error)))["r1"]
    assert isinstance(outcome, Failure)
    assert outcome == Failure.reported("dice.lost", "under the sofa", {"last_seen": [1, {}]})
    assert outcome.as_reported == error
