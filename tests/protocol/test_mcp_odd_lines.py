"""What servers write that is no message: whose it is, and what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.connection import Answered, Logged, Quarantined, StartFailed, Stray, Warned
from protocol.descriptor.model import EraPin
from protocol.dialects.mcp.odd_lines import is_header, shown_id
from protocol.dialects.mcp.vocabulary import BATCH
from tests.protocol.mcp_process import Served, initialized, legacy, modern
from tests.protocol.wire import line

HI = {"content": [{"type": "text", "text": "hi"}]}

SHOWN: dict[bytes, Any] = {
    b"{'jsonrpc': '2.0', 'id': 3, 'result': {'id': 4}}": 3,
    b"{jsonrpc: '2.0', id: 'x-3', error: {id: 4}}": "x-3",
    b'{"id":"3","jsonrpc":"2.0","result":{,}': 3,
    b'{"id":3,"result":{"id":4': 3,
    b'{"jsonrpc":"2.0","result":{"id":4,},"id":3}': 3,
    b'{"result":{"id":4,},"jsonrpc":"2.0","id":3}\r': 3,
    b'{"error":"x","id":3,"jsonrpc":"2.0",}': 3,
    b'INFO {"jsonrpc":"2.0","id":3,"result":nan}': 3,
    b"{\n  id: 3,\n  result: {}\n}": 3,
    b'{"jsonrpc":"2.0","id":3,"method":"x/y",}': None,
    b'{"jsonrpc":"2.0","method":"x/y","id":3,}': None,
    b'{"result":{"x":{"id":4}': None,
    b'{"result":{"x":1,"id":4}}': None,
    b'{"result":{"text":"x, \\"id\\": 4}': None,
    b'{"x":{"id":3,"result":{}}': None,
    b"id: 3, result: x": None,
    b'{"id":,"result":{}}': None,
    b"{" * 1_000_000 + b'"id":3,"result":': None,
    b'{"id": ' + b" " * 1_000_000: None,
    b'{"result":' + b',"id":3}' * 100_000 + b"x": None,
}


@pytest.mark.parametrize(("text", "rpc_id"), SHOWN.items(), ids=lambda one: repr(one)[:40])
def test_an_unreadable_answer_shows_its_id_where_that_cannot_be_anothers(
    text: bytes, rpc_id: Any
) -> None:
    assert shown_id(text) == rpc_id


def test_a_header_of_lsp_is_known() -> None:
    for header in (b"Content-Length: 57", b"content-length:5\r", b"Content-Length : 1"):
        assert is_header(header)
    for other in (b"Content-Length: x", b"Content-Length: 1 {}", b"Length: 1", b"5"):
        assert not is_header(other)


@pytest.mark.parametrize(
    ("error", "message", "reported"),
    [
        ("words", "words", -32603),
        ({"message": "m"}, "m", -32603),
        ({"code": "-32601", "message": "m"}, "m", -32601),
        ({"code": "E", "message": "m"}, "E: m", -32603),
        ({"code": -5.0, "message": "m"}, "m", -5),
        ({"code": 1e300, "message": "m"}, "m", int(1e300)),
        ({"code": None, "message": "m"}, "m", -32603),
        ({"code": -5, "message": None}, "the server answered with the error -5", -5),
        ({"code": -5, "message": {"a": 1}}, '{"code": -5, "message": {"a": 1}}', -5),
        ({"detail": "d"}, '{"detail": "d"}', -32603),
        (["a"], '["a"]', -32603),
        (True, "true", -32603),
        ({}, "the server answered with the error -32603", -32603),
        ("", "the server answered with the error -32603", -32603),
    ],
    ids=str,
)
def test_an_error_in_another_form_is_the_error_that_it_is(
    error: Any, message: str, reported: int
) -> None:
    served = modern()
    served.ask()
    warned, answered = served.hear({"id": "r1", "error": error})
    assert isinstance(warned, Warned)
    assert isinstance(answered, Answered)
    assert served.failure().message == message
    assert served.failure().details["reported"]["code"] == reported


@pytest.mark.parametrize("count", [1, 2])
def test_an_id_that_was_never_asked_with_fails_the_only_line_that_waits(count: int) -> None:
    served = modern()
    for number in range(count):
        served.ask(f"r{number}")
    (event,) = served.hear({"id": 0, "result": HI})
    assert isinstance(event, Answered if count == 1 else Stray)
    served.ask("next")
    served.hear({"id": "next", "result": HI})
    assert served.result("next") == HI


def test_what_may_be_late_fails_nothing() -> None:
    served = modern()
    served.ask("r0")
    first = served.ids["r0"]
    served.hear({"id": "r0", "result": HI})
    served.ask("r1")
    (second,) = served.hear({"id": first, "result": HI})
    assert isinstance(second, Stray)
    assert second.in_place_of_answer == (
        f"the server answered id {first}; the request has id {served.ids['r1']}"
    )


def test_an_answer_to_initialize_under_another_id_fails_the_start_while_discover_is_open() -> None:
    served = Served()
    served.start()
    served.wait_over()
    (failed,) = served.hear({"id": 0, "result": initialized()})
    assert isinstance(failed, StartFailed)
    assert failed.message == "answered id 0; the open requests have ids 1, 2"


def test_an_error_under_another_id_only_leads_on_to_initialize() -> None:
    served = Served()
    served.start()
    served.hear({"id": 0, "error": {"code": -32601, "message": "no"}})
    assert served.last()["method"] == "initialize"
    served.hear({"id": served.last()["id"], "result": initialized()})
    assert served.last()["method"] == "resources/templates/list"


def test_a_list_under_another_id_fails_the_start_with_these_words() -> None:
    served = Served(pin=EraPin.LEGACY)
    served.hear({"id": served.start()["id"], "result": initialized({"tools": {}})})
    (failed,) = served.hear({"id": None, "result": {"tools": []}})
    assert isinstance(failed, StartFailed)
    assert failed.message == (
        "gave no answer to tools/list that can be taken: the server answered id null; "
        "the request has id 2"
    )


def test_a_batch_is_each_of_its_messages_and_one_of_too_many_is_none() -> None:
    served = legacy()
    served.ask("r1")
    served.ask("r2")
    batch = [{"jsonrpc": "2.0", "id": served.ids[name], "result": HI} for name in ("r2", "r1")] + [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}},
        3,
        [],
    ]
    events = served.hear(line(batch))
    kinds = [Warned, Answered, Answered, Stray, Quarantined, Quarantined]
    assert [type(one) for one in events] == kinds
    assert served.result("r1") == served.result("r2") == HI
    served.ask("r3")
    (lost,) = served.hear(line([{}] * (BATCH + 1)))
    assert isinstance(lost, Answered)
    (noise,) = served.hear(line([{}] * (BATCH + 1)))
    assert isinstance(noise, Quarantined)


def test_a_message_over_several_lines_is_one_and_others_in_between_end_it() -> None:
    served = legacy()
    served.ask("r1")
    message = {"jsonrpc": "2.0", "id": served.ids["r1"], "result": {**HI, "x": [3, {}, []]}}
    printed = json.dumps(message, indent=2).encode() + b"\n"
    assert [type(one) for one in served.hear(printed)] == [Warned, Answered]
    served.ask("r2")
    other = line({"jsonrpc": "2.0", "id": served.ids["r2"], "result": HI})[:-2] + b',"x":NaN}\n'
    events = served.hear(b"{\n  3,\n" + other + b"}\n")
    assert [type(one) for one in events] == [Warned, Warned, Answered, Quarantined]


def test_an_endless_message_over_several_lines_is_not_held() -> None:
    served = legacy()
    events = served.hear(b"{\n" + b"  x\n" * 100_000 + b"}\n")
    assert 1 < len(events) < 50_000
    served.ask()
    served.hear({"id": "r1", "result": HI})
    assert served.result() == HI


def test_what_is_odd_without_a_request_is_said_in_the_log_once() -> None:
    served = legacy()
    for told in (1, 0):
        events = served.hear(b'[{"jsonrpc":"2.0","method":"notifications/x"}]\n')
        assert [type(one) for one in events] == [Logged] * told
