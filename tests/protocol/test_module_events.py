"""The entries of the journal that a module may have written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.connection import Answered
from protocol.events import Log
from protocol.host_events import decode_either
from protocol.journal_event import HOST_OWNED, TAXONOMY, module_event_problem
from tests.journals import lint
from tests.protocol.wire import descriptor, feed, invoke, module


@pytest.mark.parametrize(
    "fields",
    [
        {"event": "mine:step"},
        {"event": "a.b-c:d_e:f", "status": "ok", "data": {"x": 1}},
        {"event": "context:get"},
        {"event": "context:set", "data": {"key": "k"}},
        {"event": "artifact:read", "data": {"uri": "u"}, "status": "ok"},
    ],
)
def test_own_names_and_those_of_contexts_and_artifacts_are_a_modules_to_use(
    fields: dict[str, Any],
) -> None:
    assert module_event_problem(fields) is None
    assert lint({**fields, "module": "m"}) == []


@pytest.mark.parametrize("family", HOST_OWNED)
@pytest.mark.parametrize("cased", [str, str.upper, str.title], ids=["as it is", "upper", "title"])
def test_what_is_the_hosts_is_not_a_modules(family: str, cased: Callable[[str], str]) -> None:
    problem = module_event_problem({"event": f"{cased(family)}:made-up"})
    assert problem is not None
    assert f"{family}:* are the host's own" in problem
    assert 'such as "mine:step"' in problem


def test_each_name_of_the_taxonomy_is_the_hosts_or_a_modules() -> None:
    families = {name.partition(":")[0] for name in TAXONOMY}
    assert families - set(HOST_OWNED) == {"context", "artifact"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "null"),
        ({"event": "plain"}, "such as"),
        ({"event": "a:b c"}, "such as"),
        ({"event": "a:" + "b" * 100}, "such as"),
        ({"event": "context:gett"}, "did you mean 'context:get'"),
        ({"event": "Context:get"}, "did you mean 'context:get'"),
        ({"event": "context:set"}, "data.key"),
        ({"event": "artifact:read", "data": {"uri": "u"}}, "status"),
        ({"event": "a:b", "status": 1}, "status"),
        ({"event": "a:b", "status": "s" * 201}, "at most 200 letters"),
        ({"event": "a:b", "status": ""}, 'a word such as "ok"'),
        ({"event": "a:b", "status": "ok 3ms session=s-1"}, 'a word such as "ok"'),
        ({"event": "a:b", "status": "ok\n"}, 'a word such as "ok"'),
    ],
)
def test_what_is_wrong_with_an_event_is_said(fields: dict[str, Any], words: str) -> None:
    problem = module_event_problem(fields)
    assert problem is not None
    assert words in problem


EVENT = (
    '"event" is {}, it must be a name such as "mine:step" of at most 100 letters, digits and _.-:'
)
STATUS = '"status" is {}, it must be a word such as "ok" of at most 200 letters, digits and _.-'


def test_a_name_has_100_characters_and_a_status_200() -> None:
    name, longer = "mine:" + "x" * 95, "mine:" + "x" * 96
    assert module_event_problem({"event": name}) is None
    shown = '"' + longer[:59] + '…"'
    assert module_event_problem({"event": longer}) == EVENT.format(shown)
    assert module_event_problem({"event": "mine"}) == EVENT.format('"mine"')
    assert module_event_problem({}) == EVENT.format("null")
    assert module_event_problem({"event": name, "status": "s" * 200}) is None
    shown = '"' + "s" * 59 + '…"'
    assert module_event_problem({"event": name, "status": "s" * 201}) == STATUS.format(shown)
    assert module_event_problem({"event": name, "status": "a b"}) == STATUS.format('"a b"')
    assert module_event_problem({"event": name, "status": 7}) == STATUS.format("7")
    assert module_event_problem({"event": name, "status": None}) is None


def test_a_plain_event_is_passed_on_as_it_was_spelled() -> None:
    plain = b'{ "level":"info", "type":"log","version":"0","message":"m" }'
    event, passed_on = decode_either(plain)
    assert passed_on is plain
    assert event == Log(version="0", level="info", message="m")
    extended = b'{ "level":"info", "type":"log","version":"0","message":"m", "x": 1,"VERSION":2 }'
    assert decode_either(extended) == (
        event,
        b'{"level":"info","type":"log","version":"0","message":"m","x":1}',
    )


@pytest.mark.parametrize(
    "odd", [b'"x":"\xff"', b'"x":"\xff","requestId":"r1"', b'"fields":{"x":"\xff"}'], ids=repr
)
def test_bytes_that_are_no_utf8_in_a_field_that_nobody_reads_spoil_their_event(odd: bytes) -> None:
    made = module(descriptor(stdout="strict"))
    made.ask(invoke("r1"))
    data = b'{"version":"0","type":"log","level":"info","message":"m",%b}\n' % odd
    (item,) = feed(made, data)
    assert isinstance(item, Answered)
    assert item.fault is not None
    assert item.fault.reason == "invalid_utf8"
