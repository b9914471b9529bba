"""How much a server of MCP may say: what is just at a bound counts, and what is beyond it not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from protocol.connection import (
    LOOK_AGAIN,
    Answered,
    EventReceived,
    HostCalled,
    Logged,
    Notified,
    Ready,
    Request,
    StartFailed,
    Stray,
    Warned,
)
from protocol.descriptor.model import EraPin
from protocol.dialects.mcp.calls import span_attributes
from protocol.dialects.mcp.odd_lines import shown_id
from protocol.errors import Success
from protocol.replies import Operation
from tests.protocol.mcp_process import TOOL, Served, discovered, initialized, legacy, modern
from tests.protocol.wire import line

NO_METHOD = {"code": -32601, "message": "no such method"}


def tools_of(served: Served) -> list[dict[str, Any]]:
    (ready,) = [one for one in served.events if isinstance(one, Ready)]
    tools: list[dict[str, Any]] = ready.description["tools"]
    return tools


def said(served: Served) -> list[str]:
    return [one.event.message for one in served.events if isinstance(one, Logged)]


def started() -> tuple[Served, int]:
    """Return a server that has been asked for its tools, and the id of that."""
    served = Served(line_bytes=8 << 20)
    served.hear({"id": served.start()["id"], "result": discovered({"tools": {}})})
    return served, served.last()["id"]


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {**TOOL, "name": name, **fields}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"not": value}
    return value


def test_a_list_has_a_hundred_pages() -> None:
    for pages, end in ((100, None), (101, "c100")):
        served, rpc_id = started()
        for number in range(1, 101):
            cursor = f"c{number}" if number < 100 else end
            page = {"tools": [tool(f"t{number}")], "nextCursor": cursor}
            served.hear({"id": rpc_id, "result": page})
            rpc_id = served.last()["id"]
        assert len(tools_of(served)) == 100
        words = "page 100 is the last of 100, which is the most there may be; the list ends there"
        assert said(served) == ([] if pages == 100 else [f"tools/list: {words}"])


def test_a_list_has_two_thousand_entries() -> None:
    words = "tools/list: page 1 has more entries than 2000, which is the most there may be"
    for count, complaints in ((2000, []), (2001, [f"{words}; the list ends there"])):
        served, rpc_id = started()
        served.hear({"id": rpc_id, "result": {"tools": [tool(f"t{n}") for n in range(count)]}})
        assert len(tools_of(served)) == 2000
        assert said(served) == complaints


def test_a_list_has_four_mebibytes() -> None:
    size = len(line(tool("a", description=""))) - 1 + len(line(tool("b"))) - 1
    words = "tools/list: page 1 makes it longer than 4194304 bytes, which is the most it may be"
    for more, complaints in ((0, []), (1, [f"{words}; the list ends there"])):
        served, rpc_id = started()
        long = tool("a", description="x" * (4_194_304 - size + more))
        served.hear({"id": rpc_id, "result": {"tools": [long, tool("b")]}})
        assert [one["name"] for one in tools_of(served)] == ["a", "b"][: 2 - more]
        assert said(served) == complaints


def test_a_definition_is_64_levels_deep() -> None:
    fits, deeper = tool("a", _meta=nested(63)), tool("b", _meta=nested(64))
    served = modern([fits, deeper])
    assert tools_of(served) == [fits]
    words = 'an entry is left out: "b" is nested more than 64 levels deep'
    assert said(served) == [f"tools/list: {words}"]


def test_twenty_definitions_are_complained_of_and_further_ones_are_counted() -> None:
    words = 'tools/list: an entry is left out: its "name" is null, it must be a string'
    assert said(modern([{}] * 20)) == [words] * 20
    assert said(modern([{}] * 21)) == [*[words] * 20, "and 1 more of the like"]


def test_eight_problems_of_a_definition_are_told() -> None:
    fields = ("title", "description", "_meta", "outputSchema", "icons", "execution")
    hints = ("title", "readOnlyHint", "idempotentHint")
    odd = tool("a", **dict.fromkeys(fields, 5), annotations=dict.fromkeys(hints, 5))
    served = modern([odd])
    assert tools_of(served) == [odd]
    told = [*fields, "annotations.title", "annotations.readOnlyHint"]
    words = "; ".join(f"'{one}' is 5 and is left out" for one in told)
    assert said(served) == [f'tools/list: "a": {words}']


def test_the_extensions_of_a_server_are_64_levels_deep_in_64_kib() -> None:
    left_out = (
        "experimental of its capabilities, which is to be objects up to 64 levels deep in "
        "65536 bytes: the rest is left out"
    )
    empty = len('{"x":{"a":""}}')
    for extra, kept in (
        ({"a": "x" * (65_536 - empty)}, True),
        ({"a": "x" * (65_537 - empty)}, False),
        (nested(64), True),
        (nested(65), False),
        ("text", False),
    ):
        served = modern(offers={"tools": {}, "experimental": {"x": extra}})
        (ready,) = [one for one in served.events if isinstance(one, Ready)]
        capabilities = ready.description["mcp"]["capabilities"]
        assert capabilities.get("experimental") == ({"x": extra} if kept else None)
        assert (left_out in said(served)) is not kept


def test_a_list_is_old_after_a_second() -> None:
    served = legacy(offers={"tools": {}})
    served.take(served.connection.ask(Request("look", Operation.DESCRIBE, LOOK_AGAIN)))
    (wait,) = served.connection.waits
    assert (wait.seconds, wait.for_what) == (1.0, "its list of tools to be old")


def test_eight_of_the_open_requests_are_named_where_an_answer_has_another_id() -> None:
    served = modern()
    for number in range(9):
        served.ask(f"r{number}")
    ids = [served.ids[f"r{number}"] for number in range(8)]
    (stray,) = served.hear({"id": "other", "result": {"content": []}})
    assert isinstance(stray, Stray)
    words = f'the server answered id "other"; the open requests have ids {", ".join(map(str, ids))}'
    assert stray.words == words


def test_a_message_over_several_lines_has_256_kib() -> None:
    for more, kinds in ((0, [Warned, Answered]), (1, [Warned, Warned])):
        served = legacy()
        served.ask()
        head = f'{{\n"jsonrpc":"2.0","id":{served.ids["r1"]},\n"result":{{"content":[]}},"x":"'
        begun = f'{head}{"y" * (262_144 - len(head) - 1 + more)}"'
        events = served.hear(f"{begun}\n}}\n".encode())
        assert [type(one) for one in events] == kinds


def test_a_notification_of_an_extension_has_a_mebibyte_and_128_levels() -> None:
    served = legacy(offers={"tools": {}, "experimental": {"x": {}}}, line_bytes=2 << 20)
    whole = line({"jsonrpc": "2.0", "method": "x/y", "params": {"a": ""}})[:-1]
    for size, passes in ((1_048_576, True), (1_048_577, False)):
        text = "x" * (size - len(whole))
        events = served.hear({"method": "x/y", "params": {"a": text}})
        assert (events == [Notified("x/y", {"a": text}, size)]) is passes
    for levels, passes in ((128, True), (129, False)):
        events = served.hear({"method": "x/y", "params": nested(levels)})
        assert bool([one for one in events if isinstance(one, Notified)]) is passes


def test_1024_requests_of_a_server_wait_for_an_answer() -> None:
    served = legacy(capabilities=("roots.list",))
    served.unread()
    called = [
        one
        for number in range(1024)
        for one in served.hear({"id": number, "method": "roots/list"})
        if isinstance(one, HostCalled)
    ]
    assert len(called) == 1024
    assert served.unread() == []
    assert served.hear({"id": 1024, "method": "roots/list"}) == []
    (refused,) = served.unread()
    assert refused["id"] == 1024
    assert "1024 requests wait for an answer already" in refused["error"]["message"]
    served.says(called[0], Success({"roots": []}))
    (further,) = served.hear({"id": 1025, "method": "roots/list"})
    assert isinstance(further, HostCalled)


def required(served: Served, **fields: Any) -> dict[str, Any]:
    return {"id": served.last()["id"], "result": {"resultType": "input_required", **fields}}


def test_a_request_has_sixteen_rounds_of_32_inputs() -> None:
    served = modern()
    served.ask()
    for _ in range(16):
        served.hear(required(served, requestState="s"))
    served.hear(required(served, requestState="s"))
    assert served.failure().message == "the server asked for input more than 16 times"
    served.ask("r2")
    inputs = {str(number): {"method": "roots/list"} for number in range(33)}
    served.hear(required(served, inputRequests=inputs))
    assert served.failure("r2").message == "the server asked for more than 32 inputs at once"
    served.ask("r3")
    del inputs["32"]
    called = served.hear(required(served, inputRequests=inputs))
    assert [type(one) for one in called] == [HostCalled] * 32


@pytest.mark.parametrize(("count", "counts"), [(1000, True), (1001, False)])
@pytest.mark.parametrize("form", ["an array", "objects one after the other"])
def test_a_batch_has_a_thousand_messages(form: str, count: int, counts: bool) -> None:
    served = legacy()
    noise = {"jsonrpc": "2.0", "method": "x"}
    served.ask()
    answer = {"jsonrpc": "2.0", "id": served.last()["id"], "result": {"content": []}}
    said = [*[noise] * (count - 1), answer]
    data = line(said) if form == "an array" else b"".join(line(one)[:-1] for one in said) + b"\n"
    answered = [one for one in served.hear(data) if isinstance(one, Answered)]
    assert [one.outcome for one in answered if one.fault is None] == (
        [Success({"content": []}, whole={"content": []})] if counts else []
    )


def test_a_line_that_is_no_json_is_searched_for_a_meaning_in_its_first_128_kib() -> None:
    for size, counts in ((131_072, True), (131_073, False)):
        served = legacy()
        served.ask()
        head = f'{{"jsonrpc":"2.0","id":{served.ids["r1"]},"result":{{"content":[],"x":NaN,"y":"'
        whole = head + "y" * (size - len(head) - 3) + '"}}'
        assert len(whole) == size
        events = served.hear(f"{whole}\n".encode())
        (answered,) = [one for one in events if isinstance(one, Answered)]
        assert (answered.fault is None) is counts
        served = legacy()
        served.ask()
        head = f'LOG {{"jsonrpc":"2.0","id":{served.ids["r1"]},"result":{{"content":[],"y":"'
        whole = head + "y" * (size - len(head) - 3) + '"}}'
        events = served.hear(f"{whole}\n".encode())
        assert any(isinstance(one, Answered) and one.fault is None for one in events) is counts


def test_an_id_is_looked_for_in_the_last_200_bytes_and_has_64_characters() -> None:
    end = b'},"id":7'
    for spaces, found in ((200 - len(end) - 1, 7), (201 - len(end) - 1, None)):
        assert shown_id(b'{"result":{,' + end + b" " * spaces + b"}") == found
    assert shown_id(b'{"id":"%b","result":{,' % (b"r" * 64)) == "r" * 64
    assert shown_id(b'{"id":"%b","result":{,' % (b"r" * 65)) is None


def test_a_refusal_to_discover_is_waited_out_while_initialize_is_open() -> None:
    served = Served()
    asked = served.start()["id"]
    served.wait_over()
    question = served.last()
    assert served.hear({"id": asked, "error": NO_METHOD}) == []
    assert served.last() is question
    served.hear({"id": question["id"], "error": NO_METHOD})
    assert [type(one) for one in served.events] == [StartFailed]
    other = Served()
    asked = other.start()["id"]
    other.wait_over()
    other.hear({"id": other.last()["id"], "error": NO_METHOD}, {"id": asked, "error": NO_METHOD})
    (failed,) = other.events
    assert failed == StartFailed("bad_start", "refused initialize and server/discover")


def test_an_initialize_that_is_answered_twice_begins_once() -> None:
    served = Served()
    asked = served.start()["id"]
    served.hear({"id": asked, "error": NO_METHOD})
    rpc_id = served.last()["id"]
    served.hear({"id": rpc_id, "result": initialized({"tools": {}})})
    written = len(served.written)
    served.hear({"id": rpc_id, "result": initialized({"tools": {}})})
    assert len(served.written) == written


def test_an_answer_carries_256_files() -> None:
    served = modern()
    for count, left in ((256, 0), (257, 1), (300, 44)):
        data = [base64.b64encode(b"%03d" % number).decode() for number in range(count)]
        content = [{"type": "image", "data": one, "mimeType": "image/png"} for one in data]
        served.ask(f"r{count}")
        events = served.hear({"id": f"r{count}", "result": {"content": content}})
        assert sum(isinstance(one, EventReceived) for one in events) == 256
        warned = [one.notice.message for one in events if isinstance(one, Warned)]
        words = "an answer has 256 files at most; the others stay in it as they came"
        assert warned == [words] * bool(left)


def test_structured_content_gives_way_to_files_to_64_levels_and_from_64_characters_on() -> None:
    served = modern()
    data = {size: base64.b64encode(b"x" * (size // 4 * 3)).decode() for size in (60, 64)}
    content = [{"type": "image", "data": one} for one in data.values()]
    value: Any = [data[60], data[64], {"data": data[60]}]
    served.ask()
    served.hear({"id": "r1", "result": {"content": content, "structuredContent": {"a": value}}})
    assert served.result() == {"a": [data[60], {"assetId": "image-2"}, {"assetId": "image-1"}]}
    for levels, shared in ((64, True), (65, False)):
        deep: Any = data[64]
        for _ in range(levels):
            deep = [deep]
        served.ask(f"r{levels}")
        structured = {"content": content, "structuredContent": deep}
        served.hear({"id": f"r{levels}", "result": structured})
        assert ("assetId" in json.dumps(served.result(f"r{levels}"))) is shared


def test_the_words_of_a_failure_have_4000_characters() -> None:
    served = modern()
    for size in (4000, 4001):
        text = "x" * size
        served.ask(f"r{size}")
        content = [{"type": "text", "text": text}]
        served.hear({"id": f"r{size}", "result": {"content": content, "isError": True}})
        assert served.failure(f"r{size}").message == "x" * 4000
        served.ask(f"e{size}")
        served.hear({"id": f"e{size}", "error": {"code": 7, "message": text}})
        assert served.failure(f"e{size}").message == "x" * 4000
        assert served.failure(f"e{size}").details["reported"]["message"] == text


def test_content_below_an_object_counts_as_deeper_too() -> None:
    served = modern()
    data = base64.b64encode(b"x" * 48).decode()
    for levels, shared in ((64, True), (65, False)):
        deep: Any = data
        for _ in range(levels):
            deep = {"a": deep}
        served.ask(f"r{levels}")
        structured = {"content": [{"type": "image", "data": data}], "structuredContent": deep}
        served.hear({"id": f"r{levels}", "result": structured})
        assert ("assetId" in json.dumps(served.result(f"r{levels}"))) is shared


def test_the_newest_revision_of_the_older_era_is_offered_first() -> None:
    served = Served()
    served.start()
    served.wait_over()
    assert served.last()["params"]["protocolVersion"] == "2025-11-25"
    served = Served(pin=EraPin.LEGACY)
    assert served.start()["params"]["protocolVersion"] == "2025-11-25"
    served = Served()
    served.hear({"id": served.start()["id"], "error": NO_METHOD})
    assert served.last()["params"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize(
    ("op", "arg", "attribute"),
    [("prompts/get", "name", "gen_ai.prompt.name"), ("resources/read", "uri", "mcp.resource.uri")],
)
def test_a_value_that_a_client_chose_is_kept_with_256_characters(
    op: str, arg: str, attribute: str
) -> None:
    for size in (256, 257):
        request = Request("r1", Operation.INVOKE, op, {arg: "x" * size})
        assert span_attributes(None, request, Success(None)) == {
            "mcp.method.name": op,
            "network.transport": "pipe",
            attribute: "x" * 256,
        }
