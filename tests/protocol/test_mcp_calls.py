"""Calls of a server of MCP: answers, progress, files, cancels, what it asks, and bad lines."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from protocol.connection import (
    Alive,
    Answered,
    EventReceived,
    HostCalled,
    Logged,
    Quarantined,
    Request,
    Stray,
    Unanswered,
    Violated,
    Warned,
)
from protocol.descriptor.model import StdoutPolicy
from protocol.dialects.mcp.requests import ROUNDS
from protocol.dialects.mcp.vocabulary import LEGACY
from protocol.errors import Failure, Reason, Success
from protocol.events import AssetBytes, Log, UiEvent
from protocol.framing import Written
from protocol.replies import Operation
from protocol.trace_context import EXAMPLE
from tests.protocol.mcp_process import Served, legacy, modern
from tests.protocol.wire import describe, health, line

HI = {"content": [{"type": "text", "text": "hi"}]}
ALL_GRANTED = ("roots", "user.ask", "model.*")
OTHER_OPS: list[tuple[str, dict[str, Any], str]] = [
    ("resources/list", {}, "resources/list"),
    ("resources/list", {"cursor": "c"}, "resources/list"),
    ("resources/templates", {}, "resources/templates/list"),
    ("resources/read", {"uri": "a:b"}, "resources/read"),
    ("prompts/list", {}, "prompts/list"),
    ("prompts/get", {"name": "p", "arguments": {"a": "b"}}, "prompts/get"),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
        "completion/complete",
    ),
]

both = pytest.mark.parametrize("served", [legacy(), modern()], ids=["legacy", "modern"])
eras = pytest.mark.parametrize("ready", [legacy, modern])


@eras
def test_ids_are_whole_numbers_counted_from_1_and_a_calls_is_the_token_of_its_progress(
    ready: Any,
) -> None:
    served = ready()
    asked = served.ask("r1", "echo", text="x")
    numbers = [one["id"] for one in served.written if "id" in one]
    assert numbers == list(range(1, len(numbers) + 1))
    assert (asked["id"], asked["method"]) == (numbers[-1], "tools/call")
    assert asked["params"]["name"] == "echo"
    assert asked["params"]["arguments"] == {"text": "x"}
    assert asked["params"]["_meta"]["progressToken"] == asked["id"]
    served.hear({"id": "r1", "result": HI})
    assert served.result() == HI


@pytest.mark.parametrize(("op", "args", "method"), OTHER_OPS, ids=str)
def test_other_ops_are_requests_of_the_same_name(op: str, args: Any, method: str) -> None:
    served = modern()
    asked = served.ask("r1", op, **args)
    assert asked["method"] == method
    assert {key: value for key, value in asked["params"].items() if key != "_meta"} == args
    served.hear({"id": "r1", "result": {"resultType": "complete", "x": 1}})
    assert served.result() == {"x": 1}


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("resources/list", {"cursor": 3}),
        ("resources/read", {}),
        ("resources/read", {"uri": "a:b", "_meta": {"progressToken": "r9"}}),
        ("prompts/get", {"name": "p", "arguments": {"a": 1}}),
        ("completion/complete", {"ref": {"type": "ref/else"}, "argument": {}}),
    ],
    ids=str,
)
def test_what_the_schema_does_not_allow_is_not_written(op: str, args: Any) -> None:
    served = modern()
    before = len(served.written)
    served.ask("r1", op, **args)
    assert served.failure().details["reason"] == "invalid_args"
    assert len(served.written) == before


@both
def test_a_probe_is_answered_by_any_answer_and_a_describe_at_once(served: Served) -> None:
    served.take(served.connection.ask(health("h1")))
    method = served.last()["method"]
    assert method == ("server/discover" if "_meta" in served.written[0]["params"] else "ping")
    served.hear({"id": "h1", "error": {"code": -32601, "message": "no ping here"}})
    assert served.result("h1") == {"status": "ok"}
    served.take(served.connection.ask(describe("d1")))
    assert served.result("d1")["tools"][0]["name"] == "echo"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({**HI, "structuredContent": {"a": 1}}, {"a": 1}),
        ({"structuredContent": [1]}, [1]),
        ({**HI, "resultType": "complete", "_meta": {"x": 1}}, {**HI, "_meta": {"x": 1}}),
        ({"content": []}, {"content": []}),
        ({"content": [{"type": "unheard"}, 3]}, {"content": [{"type": "unheard"}, 3]}),
    ],
    ids=str,
)
def test_structured_content_is_the_result_else_the_answer_is(result: Any, expected: Any) -> None:
    served = modern()
    served.ask()
    served.hear({"id": "r1", "result": result})
    assert served.result() == expected


def test_files_become_assets_and_stand_in_the_result_by_id() -> None:
    png, wav, pdf = (base64.b64encode(one).decode() for one in (b"png", b"wav", b"pdf"))
    link = {"type": "resource_link", "uri": "file:///x", "name": "x"}
    content = [
        {"type": "image", "data": png, "mimeType": "image/png", "annotations": {"priority": 1}},
        {"type": "audio", "data": wav, "mimeType": "no type"},
        {
            "type": "resource",
            "resource": {"uri": "a:b", "blob": pdf, "mimeType": "application/pdf"},
        },
        {"type": "resource", "resource": {"uri": "a:c", "text": "t"}},
        link,
    ]
    served = modern()
    served.ask()
    events = served.hear({"id": "r1", "result": {"content": content}})
    found = [one.event for one in events if isinstance(one, EventReceived)]
    assert [
        (one.asset_id, one.kind, one.media_type, one.data)
        for one in found
        if isinstance(one, AssetBytes)
    ] == [
        ("image-1", "image", "image/png", png),
        ("audio-2", "audio", "application/octet-stream", wav),
        ("file-3", "file", "application/pdf", pdf),
    ]
    image, _, resource, *rest = served.result()["content"]
    assert image["assetId"] == "image-1"
    assert image["annotations"] == {"priority": 1}
    assert "data" not in image
    assert resource["resource"] == {
        "uri": "a:b",
        "mimeType": "application/pdf",
        "assetId": "file-3",
    }
    assert rest == content[3:]


@pytest.mark.parametrize(
    ("op", "args", "result", "expected"),
    [
        (
            "resources/read",
            {"uri": "a:b"},
            {"contents": [{"uri": "a:b", "blob": "eA=="}]},
            {"contents": [{"uri": "a:b", "assetId": "file-1"}]},
        ),
        (
            "prompts/get",
            {"name": "p"},
            {"messages": [{"role": "user", "content": {"type": "image", "data": "eA=="}}]},
            {"messages": [{"role": "user", "content": {"type": "image", "assetId": "image-1"}}]},
        ),
        (
            "prompts/get",
            {"name": "p"},
            {"messages": [{"role": "user", "content": [HI["content"][0], "x"]}]},
            {
                "messages": [
                    {"role": "user", "content": HI["content"][0]},
                    {"role": "user", "content": {"type": "text", "text": "x"}},
                ]
            },
        ),
    ],
)
def test_so_do_those_of_resources_and_prompts(
    op: str, args: Any, result: Any, expected: Any
) -> None:
    served = legacy()
    served.ask("r1", op, **args)
    served.hear({"id": "r1", "result": result})
    assert served.result() == expected


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ({"result": {**HI, "isError": True}}, "internal", "hi"),
        ({"result": {"content": [], "isError": True}}, "internal", "the tool failed and does not"),
        ({"result": {"resultType": "task"}}, "internal", "resultType"),
        ({"error": {"code": -32602, "message": "bad"}}, "bad_request", "bad"),
        ({"error": {"code": -32601, "message": "no"}}, "unsupported_op", "no"),
        ({"error": {"code": -5}}, "internal", "the error -5"),
        ({"result": 3}, "internal", "its result is a number"),
        ({}, "internal", "its result is null"),
        ({"result": HI, "error": {"code": 1}}, "internal", "a result and an error"),
    ],
    ids=str,
)
def test_an_answer_that_is_a_failure_or_none_fails_its_request(
    answer: Any, code: str, words: str
) -> None:
    served = modern()
    served.ask()
    served.hear({"id": "r1", **answer})
    assert served.failure().code == code
    assert words in served.failure().message
    served.ask("r2")
    served.hear({"id": "r2", "result": HI})
    assert served.result("r2") == HI


@pytest.mark.parametrize("rpc_id", [1, "r2", "1", 1.5, True, [], {}, "r1 ", 0, None], ids=str)
def test_an_answer_with_another_id_is_nobodys_while_several_are_open(rpc_id: Any) -> None:
    served = modern()
    served.ask()
    served.ask("r2", "echo")
    ids = [*served.ids.values()]
    open_ids = ", ".join(map(str, ids))
    served.ids.clear()
    (event,) = served.hear({"id": rpc_id, "result": HI})
    assert isinstance(event, Stray)
    assert event.in_place_of_answer == (
        f"the server answered id {json.dumps(rpc_id)}; the open requests have ids {open_ids}"
    )
    served.hear(*({"id": one, "result": HI} for one in ids))
    assert served.result("r1") == served.result("r2")


def test_the_second_of_two_answers_is_a_stray() -> None:
    served = modern()
    served.ask()
    first, second = served.hear(*[{"id": "r1", "result": HI}] * 2)
    assert isinstance(first, Answered)
    assert isinstance(second, Stray)


@pytest.mark.parametrize("others", [(), ("r2",)], ids=str)
def test_an_error_without_an_id_is_of_the_only_line_that_waits(others: tuple[str, ...]) -> None:
    served = modern()
    for name in ("r1", *others):
        served.ask(name)
    (event,) = served.hear({"id": None, "error": {"code": -32700, "message": "what?"}})
    assert isinstance(event, Stray if others else Answered)


@pytest.mark.parametrize(
    "noise",
    [
        b"Server running on stdio\n",
        b"[]\n",
        b"[3]\n",
        b"3\n",
        b"{\n",
        b"\xff\n",
        b'{"level":"info"}\n',
        b'{"jsonrpc":"2.0"}\n',
        b'{"jsonrpc":"2.0","method":3}\n',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n',
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n',
        b'{"jsonrpc":"2.0","method":"x","params":[]}\n',
        b'{"id":null,"result":{}}\n',
        b'{"method":"GET","id":7}\n',
        b'{"level":"error","error":"disk full"}\n',
        b'sent: {"jsonrpc":"2.0","id":7,"method":"roots/list"}\n',
    ],
    ids=str,
)
@pytest.mark.parametrize("stdout", [StdoutPolicy.TOLERANT, StdoutPolicy.STRICT])
def test_noise_is_set_aside_by_a_tolerant_host_and_ends_requests_of_a_strict_one(
    noise: bytes, stdout: StdoutPolicy
) -> None:
    served = legacy(stdout=stdout)
    assert [type(one) for one in served.hear(noise)] == [Quarantined]
    served.ask()
    events = served.hear(noise)
    if stdout is StdoutPolicy.STRICT:
        assert [type(one) for one in events] == [Quarantined, Answered]
    else:
        assert [type(one) for one in events] == [Warned]
        served.hear({"id": "r1", "result": HI})
        assert served.result() == HI
    assert served.unread()[1:] == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_line_that_is_too_long_fails_the_only_request(count: int) -> None:
    served = modern(line_bytes=4096)
    for number in range(count):
        served.ask(f"r{number}")
    events = served.hear(line({"id": "r0", "result": "x" * 5000}))
    assert [type(one) for one in events] == [Answered if count == 1 else Quarantined]
    served.ask("next")
    served.hear({"id": "next", "result": HI})
    assert served.result("next") == HI


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        ([1, 2.5, 3], [1, 2.5, 3]),
        ([2, 1, 2, 3], [2, 3]),
        ([True, "1", None, 10**30], [10**30]),
    ],
    ids=str,
)
def test_progress_is_told_as_long_as_it_increases(progress: list[Any], told: list[Any]) -> None:
    served = modern()
    served.ask()
    for done in progress:
        params = {"progressToken": "r1", "progress": done, "total": 9, "message": "m"}
        served.hear({"method": "notifications/progress", "params": params})
    events = [one.event for one in served.events if isinstance(one, EventReceived)]
    payloads = [one.payload for one in events if isinstance(one, UiEvent)]
    assert payloads == [{"done": done, "total": 9, "message": "m"} for done in told]
    warned = [one for one in served.events if isinstance(one, Warned)]
    assert len(warned) == len(progress) - len(told)
    # What a client is not told shows all the same that the server is at work.
    assert served.events.count(Alive("r1")) == len(warned)


@pytest.mark.parametrize("token", ["r1", "r2", 1, None, []], ids=str)
def test_progress_of_no_open_request_is_a_stray(token: Any) -> None:
    served = modern()
    served.ask()
    served.hear({"id": "r1", "result": HI})
    params = {"progressToken": token, "progress": 1}
    (event,) = served.hear({"method": "notifications/progress", "params": params})
    assert isinstance(event, Stray)


@pytest.mark.parametrize(
    ("level", "data", "logged"),
    [
        ("debug", "x", ("debug", "x")),
        ("notice", {"a": 1}, ("info", '{"a":1}')),
        ("warning", None, ("warn", "null")),
        ("emergency", "x", ("error", "x")),
        (None, "x", ("info", "x")),
        ([], "x", ("info", "x")),
    ],
    ids=str,
)
def test_a_log_is_of_the_only_request_else_of_the_process(
    level: Any, data: Any, logged: tuple[str, str]
) -> None:
    served = legacy()
    said = {"method": "notifications/message", "params": {"level": level, "data": data}}
    (of_process,) = served.hear(said)
    served.ask()
    (of_request,) = served.hear(said)
    served.ask("r2")
    (of_two,) = served.hear(said)
    assert isinstance(of_request, EventReceived)
    assert isinstance(of_process, Logged)
    assert isinstance(of_two, Logged)
    for event in (of_process.event, of_request.event, of_two.event):
        assert isinstance(event, Log)
        assert (event.level, event.message) == logged


def test_a_thousand_cancels_leave_no_answer_to_be_taken_for_anothers() -> None:
    served = modern()
    served.unread()
    for number in range(1000):
        name = f"r{number}"
        served.ask(name)
        served.take(served.connection.cancel(name, Written.ALL))
        (event,) = served.hear({"id": f"r{number - 1}", "result": HI})
        assert isinstance(event, Stray)
    told = [one["params"]["requestId"] for one in served.unread() if "id" not in one]
    assert told == [served.ids[f"r{number}"] for number in range(1000)]
    assert not [one for one in served.events if isinstance(one, Answered)]


@pytest.mark.parametrize("written", [Written.NOTHING, Written.PART])
def test_what_was_not_written_is_not_cancelled(written: Written) -> None:
    served = modern()
    served.ask()
    served.unread()
    served.take(served.connection.cancel("r1", written))
    served.take(served.connection.cancel("r1", written))
    assert served.unread() == []


# What an older server asks.


def called(served: Served, method: str, **params: Any) -> HostCalled:
    (event,) = served.hear({"id": 7, "method": method, "params": params})
    assert isinstance(event, HostCalled)
    return event


def test_only_what_the_descriptor_lists_is_declared() -> None:
    none, all_ = legacy(), legacy(capabilities=ALL_GRANTED)
    assert none.written[0]["params"]["capabilities"] == {}
    declared: dict[str, Any] = {"roots": {}, "elicitation": {"form": {}}, "sampling": {}}
    assert all_.written[0]["params"]["capabilities"] == declared
    meta = modern(capabilities=ALL_GRANTED).written[0]["params"]["_meta"]
    assert meta["io.modelcontextprotocol/clientCapabilities"] == declared


@pytest.mark.parametrize("rpc_id", [0, -1, "", "r1", "own-1", 10**30], ids=str)
def test_a_ping_is_answered_with_its_id_whatever_that_is(rpc_id: Any) -> None:
    served = legacy()
    served.ask()
    assert served.hear({"id": rpc_id, "method": "ping"}) == []
    assert served.last() == {"jsonrpc": "2.0", "id": rpc_id, "result": {}}
    served.hear({"id": "r1", "result": {"content": []}})
    assert served.result("r1") == {"content": []}


FORM = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("asked", "call", "outcome"),
    [
        (
            ("roots/list", {}),
            ("roots.list", {}),
            {"roots": [{"uri": "file:///x", "name": "x"}]},
        ),
        (
            ("elicitation/create", FORM),
            ("user.ask", {"message": "who?", "form": FORM["requestedSchema"]}),
            {"action": "accept", "content": {"a": 1, "b": True, "c": ["x"], "d": "y"}},
        ),
        (
            ("sampling/createMessage", {"messages": [], "maxTokens": 1, "_meta": {}}),
            ("model.sample", {"messages": [], "maxTokens": 1}),
            {
                "role": "assistant",
                "content": {"type": "text", "text": "x"},
                "model": "m",
                "stopReason": "x",
            },
        ),
    ],
)
@pytest.mark.parametrize("open_requests", [0, 1, 2])
def test_what_it_asks_is_a_call_to_the_host(
    asked: Any, call: Any, outcome: Any, open_requests: int
) -> None:
    served = legacy(capabilities=ALL_GRANTED)
    for number in range(open_requests):
        served.ask(f"r{number}")
    method, params = asked
    event = called(served, method, **params)
    assert event.request_id == ("r0" if open_requests == 1 else None)
    assert (event.call.method, event.call.params) == call
    served.says(event, Success(outcome))
    assert served.last() == {"jsonrpc": "2.0", "id": 7, "result": outcome}


@pytest.mark.parametrize("version", LEGACY)
def test_what_is_written_is_of_the_revision_that_was_agreed_on(version: str) -> None:
    # `Served` holds each line to the schema of its revision.
    served = legacy(version=version, capabilities=ALL_GRANTED)
    served.take(served.connection.ask(health("h1")))
    served.take(
        served.connection.ask(Request("r0", Operation.INVOKE, "echo", {}, traceparent=EXAMPLE))
    )
    assert served.last()["params"]["_meta"]["traceparent"] == EXAMPLE
    for number, (op, args, _) in enumerate(OTHER_OPS):
        served.ask(f"r{number + 1}", op, **args)
    served.hear({"id": "p", "method": "ping"}, {"id": "x", "method": "unheard/of"})
    served.says(called(served, "roots/list"), Success({"roots": [{"uri": "file:///x"}]}))
    if version >= "2025-06-18":
        person = called(served, "elicitation/create", **FORM)
        served.says(person, Success({"action": "accept", "content": {"a": 1}}))
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    sample = {"role": "assistant", "model": "m", "content": blocks}
    served.says(called(served, "sampling/createMessage", messages=[]), Success(sample))
    assert served.last()["result"]["content"] == {"type": "text", "text": "a\nb"}
    served.take(served.connection.cancel("r1", Written.ALL))
    assert served.last()["method"] == "notifications/cancelled"


@pytest.mark.parametrize(
    ("method", "outcome", "code"),
    [
        ("roots/list", Success({}), -32603),
        ("roots/list", Success({"roots": [{"uri": 3}]}), -32603),
        ("elicitation/create", Success({"action": "accept", "content": {"a": {}}}), -32603),
        ("elicitation/create", Success({"action": "yes"}), -32603),
        ("elicitation/create", Failure.because(Reason.CAPABILITY, "no"), -32603),
        ("sampling/createMessage", Failure.because(Reason.UNKNOWN_OP, "no"), -32601),
    ],
)
def test_what_the_host_refuses_or_answers_in_another_form_is_an_error(
    method: str, outcome: Any, code: int
) -> None:
    served = legacy(capabilities=ALL_GRANTED)
    params = FORM if method == "elicitation/create" else {}
    served.says(called(served, method, **params), outcome)
    assert (served.last()["id"], served.last()["error"]["code"]) == (7, code)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/list", {}, -32601),
        ("elicitation/create", {}, -32602),
        ("elicitation/create", {**FORM, "mode": "url", "url": "http://x"}, -32602),
        ("elicitation/create", {**FORM, "message": 3}, -32602),
        ("elicitation/create", {**FORM, "requestedSchema": []}, -32602),
    ],
    ids=str,
)
def test_what_it_may_not_ask_is_refused_at_once(method: str, params: Any, code: int) -> None:
    served = legacy(capabilities=ALL_GRANTED)
    assert served.hear({"id": "x", "method": method, "params": params}) == []
    assert (served.last()["id"], served.last()["error"]["code"]) == ("x", code)


def test_a_request_whose_id_is_open_already_is_answered_once() -> None:
    served = legacy(capabilities=ALL_GRANTED)
    event = called(served, "roots/list")
    (second,) = served.hear({"id": 7, "method": "roots/list"})
    assert isinstance(second, Stray)
    served.unread()
    served.says(event, Success({"roots": []}))
    assert len(served.unread()) == 1


# What a newer server wants to know.


def required(**fields: Any) -> dict[str, Any]:
    return {"id": "r1", "result": {"resultType": "input_required", **fields}}


def test_a_request_is_asked_again_with_what_the_server_wanted_to_know() -> None:
    served = modern(capabilities=ALL_GRANTED)
    first = served.ask("r1", "echo", text="x")["id"]
    wanted = {
        "who": {"method": "elicitation/create", "params": FORM},
        "where": {"method": "roots/list"},
    }
    who, where = served.hear(required(inputRequests=wanted, requestState="s"))
    assert isinstance(who, HostCalled)
    assert isinstance(where, HostCalled)
    assert (who.request_id, who.call.method, where.call.method) == ("r1", "user.ask", "roots.list")
    served.unread()
    served.says(where, Success({"roots": []}))
    assert served.unread() == []
    served.says(who, Success({"action": "decline"}))
    (again,) = served.unread()
    assert again["id"] == served.ids["r1"] > first
    params = again["params"]
    assert (params["name"], params["arguments"]) == ("echo", {"text": "x"})
    assert params["inputResponses"] == {"who": {"action": "decline"}, "where": {"roots": []}}
    assert (params["requestState"], params["_meta"]["progressToken"]) == ("s", again["id"])
    (late,) = served.hear({"id": first, "result": HI})
    assert isinstance(late, Stray)
    served.hear({"id": again["id"], "result": HI})
    assert served.result() == HI


def test_a_round_is_cancelled_under_its_own_id_and_one_in_between_not_at_all() -> None:
    served = modern()
    served.ask()
    served.hear(required(requestState="s"))
    again = served.unread()[-1]
    served.take(served.connection.cancel("r1", Written.ALL))
    assert served.unread()[-1]["params"] == {"requestId": again["id"]}
    served.ask()
    (asked,) = served.hear(required(inputRequests={"a": {"method": "roots/list"}}))
    served.unread()
    assert isinstance(asked, HostCalled)
    served.take(served.connection.cancel("r1", Written.ALL))
    assert served.says(asked, Success({"roots": []})) == []
    assert served.unread() == []


def test_a_refusal_of_the_hosts_is_the_requests_failure() -> None:
    served = modern()
    served.ask()
    (asked,) = served.hear(required(inputRequests={"a": {"method": "roots/list"}}))
    assert isinstance(asked, HostCalled)
    served.says(asked, Failure.because(Reason.CAPABILITY, "no"))
    assert served.failure().code == "forbidden"


def test_rounds_are_bounded() -> None:
    served = modern()
    rpc_id = served.ask()["id"]
    for _ in range(ROUNDS):
        served.hear({**required(requestState="s"), "id": rpc_id})
        assert served.last()["id"] > rpc_id, "it is asked again"
        rpc_id = served.last()["id"]
    served.hear({**required(requestState="s"), "id": rpc_id})
    assert str(ROUNDS) in served.failure().message


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"requestState": 3},
        {"inputRequests": []},
        {"inputRequests": {"a": 3}},
        {"inputRequests": {"a": {"method": "tools/list"}}},
        {"inputRequests": {"a": {"method": "elicitation/create"}}},
        {"inputRequests": {str(n): {"method": "roots/list"} for n in range(33)}},
    ],
    ids=lambda fields: str(fields)[:60],
)
def test_a_round_that_makes_no_sense_fails_its_request(fields: Any) -> None:
    served = modern()
    served.ask()
    served.hear(required(**fields))
    assert served.failure().details["reason"] == "invalid_event"


def test_a_newer_server_that_asks_by_itself_is_not_answered() -> None:
    served = modern(capabilities=ALL_GRANTED)
    served.unread()
    events = served.hear({"id": 1, "method": "ping"}, {"id": 2, "method": "roots/list"})
    assert [type(one) for one in events] == [Stray, Stray]
    assert served.unread() == []


# Its end.


def test_a_whole_last_line_counts_and_half_a_one_does_not() -> None:
    for end, kind in ((b"", Answered), (b'{"jsonrpc"', Violated)):
        served = modern()
        served.ask()
        data = end or line({"jsonrpc": "2.0", "id": served.ids["r1"], "result": HI})[:-1]
        served.hear(data)
        assert served.connection.unfinished_line
        assert [type(one) for one in served.take(served.connection.receive_eof())] == [kind]


def test_what_is_open_at_the_end_is_unanswered_once() -> None:
    served = modern()
    served.ask("r1")
    served.ask("r2")
    assert list(served.connection.process_exited(None)) == [Unanswered("r1"), Unanswered("r2")]
    assert list(served.connection.process_exited(None)) == []


@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/tools/list_changed"},
        {"method": "notifications/progress", "params": {"progressToken": "r1", "progress": 1}},
        {"method": "notifications/unheard"},
        {"id": "own-1", "method": "roots/list"},
        {"id": 1, "method": "ping"},
    ],
    ids=str,
)
def test_what_comes_before_the_handshake_does_no_harm(message: dict[str, Any]) -> None:
    served = Served()
    asked = served.start()
    served.hear(message)
    served.hear({"id": asked["id"], "error": {"code": 1, "message": ""}})
    assert served.last()["method"] == "initialize"
