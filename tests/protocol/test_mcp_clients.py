"""Clients of MCP: what a request says of its client, and the lines that they send and get."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from protocol.dialects.mcp.vocabulary import Era
from protocol.errors import Reason
from protocol.json_line import Fault
from protocol.jsonrpc import RpcError, RpcMistake, answer_line, mistake
from protocol.mcp_server.client import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    McpClient,
    McpRequestError,
    legacy_client,
    modern_client,
    says_modern,
    split_batch,
)
from protocol.mcp_server.results import renamed_contents

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LEVEL = "io.modelcontextprotocol/logLevel"
GOOD: dict[str, Any] = {VERSION: "2026-07-28", CAPABILITIES: {"elicitation": {}}}
REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def refusal_of(function: Callable[..., object], *args: Any) -> RpcError:
    with pytest.raises(McpRequestError) as refusal:
        function(*args)
    return refusal.value.error


def test_a_request_of_the_newer_era_names_its_client() -> None:
    found = modern_client({"_meta": GOOD})
    assert found == McpClient(Era.MODERN, "2026-07-28", {"elicitation": {}}, None)
    assert found.is_modern
    assert modern_client({"_meta": {**GOOD, LEVEL: "alert"}}) == McpClient(
        Era.MODERN, "2026-07-28", {"elicitation": {}}, "alert"
    )
    assert says_modern("tools/list", {"_meta": {VERSION: "x"}})
    assert says_modern("server/discover", {})
    assert says_modern("subscriptions/listen", {})
    others: tuple[Any, ...] = (None, {}, [VERSION])
    for meta in others:
        assert not says_modern("tools/list", {"_meta": meta})


OBJECT = f'the request has no object "_meta" with "{VERSION}" and "{CAPABILITIES}"'


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (None, OBJECT),
        ([], OBJECT),
        ({}, f'"{VERSION}" in _meta is missing, it must be a string'),
        ({**GOOD, VERSION: 5}, f'"{VERSION}" in _meta is a number, it must be a string'),
        ({VERSION: "x"}, f'"{CAPABILITIES}" in _meta is missing, it must be an object'),
        (
            {**GOOD, CAPABILITIES: []},
            f'"{CAPABILITIES}" in _meta is an array, it must be an object',
        ),
        ({**GOOD, LEVEL: "loud"}, f'the logLevel "loud" is none of {", ".join(LEVELS)}'),
    ],
    ids=str,
)
def test_a_request_that_does_not_name_its_client_is_refused(meta: Any, words: str) -> None:
    assert refusal_of(modern_client, {"_meta": meta}) == RpcError(-32602, words)


def test_a_revision_that_is_not_spoken_is_refused_with_those_that_are() -> None:
    words = f'the revision "2099-01-01" is not spoken here; there are {", ".join(REVISIONS)}'
    data = {"supported": REVISIONS, "requested": "2099-01-01"}
    meta = {**GOOD, VERSION: "2099-01-01"}
    assert refusal_of(modern_client, {"_meta": meta}) == RpcError(-32022, words, data)
    assert (MISSING_CAPABILITY, HEADER_MISMATCH) == (-32021, -32020)


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [*((one, one) for one in REVISIONS[1:]), ("2026-07-28", "2025-11-25"), ("x", "2025-11-25")],
)
def test_a_client_of_the_older_era_gets_its_revision_or_the_newest(asked: str, spoken: str) -> None:
    found = legacy_client({"protocolVersion": asked, "capabilities": {"roots": {}}})
    assert found == McpClient(Era.LEGACY, spoken, {"roots": {}}, "info")
    assert not found.is_modern
    assert legacy_client({"protocolVersion": asked, "capabilities": 5}) == McpClient(
        Era.LEGACY, spoken, {}, "info"
    )


def test_a_client_without_a_revision_is_refused() -> None:
    words = '"protocolVersion" is null, it must be a string'
    assert refusal_of(legacy_client, {}) == RpcError(-32602, words)


@pytest.mark.parametrize(
    ("least", "wanted"),
    [
        (None, []),
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("notice", ["warning", "error"]),
        ("error", ["error"]),
        ("critical", []),
    ],
)
def test_a_client_gets_the_logs_of_its_level_and_above(
    least: str | None, wanted: list[str]
) -> None:
    client = McpClient(Era.LEGACY, "2025-11-25", {}, least)
    told = [client.wants(level) for level in ("debug", "info", "warn", "error")]
    assert [one for one in told if one is not None] == wanted


BATCHING = McpClient(Era.LEGACY, "2025-03-26", {})


def test_only_a_client_of_the_revision_with_batches_may_send_one() -> None:
    words = (
        "a batch is for clients that have agreed on the revision 2025-03-26 in initialize; "
        "send each message by itself"
    )
    for client in (None, McpClient(Era.LEGACY, "2025-06-18", {})):
        assert refusal_of(split_batch, b"[{}]", client) == RpcError(-32600, words)
    assert split_batch(b' [{"a": 1},2]', BATCHING) == [b'{"a": 1}', b"2"]


@pytest.mark.parametrize(("members", "fits"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_a_batch_of_a_client_has_1_to_1000_messages(members: int, fits: bool) -> None:
    batch = json.dumps([{}] * members).encode()
    words = "a batch has 1 to 1000 messages, none of which is a batch; this one has {} members"
    if fits:
        assert split_batch(batch, BATCHING) == [b"{}"] * members
    else:
        refused = RpcError(-32600, words.format(members))
        assert refusal_of(split_batch, batch, BATCHING) == refused
    assert refusal_of(split_batch, b"[{}, [{}]]", BATCHING) == RpcError(-32600, words.format(2))


def test_a_batch_that_is_no_json_is_refused() -> None:
    for text in (b"[{", b'[{"a":"\xff"}]x', b"[" * 100_000):
        found = refusal_of(split_batch, text, BATCHING)
        assert found.code == -32700
        assert found.message.startswith("the batch is not JSON: ")


def test_an_answer_has_the_id_of_its_request_and_none_without_one() -> None:
    assert json.loads(answer_line(5, {"a": 1})) == {"jsonrpc": "2.0", "id": 5, "result": {"a": 1}}
    assert json.loads(answer_line(None, RpcError(-1, "w"))) == {
        "jsonrpc": "2.0",
        "error": {"code": -1, "message": "w"},
    }
    assert json.loads(answer_line("x", RpcError(-1, "w", 0))) == {
        "jsonrpc": "2.0",
        "id": "x",
        "error": {"code": -1, "message": "w", "data": 0},
    }
    assert json.loads(answer_line(5, {"a": "\ud800"})) == {
        "jsonrpc": "2.0",
        "id": 5,
        "error": {
            "code": -32603,
            "message": "the answer cannot be passed on: UnicodeEncodeError",
        },
    }
    assert answer_line(5, {"a": "\u2028"}) == b'{"jsonrpc":"2.0","id":5,"result":{"a":"\\u2028"}}'


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.MALFORMED_JSON, -32700),
        (Reason.INVALID_UTF8, -32700),
        (Reason.LINE_TOO_LONG, -32700),
        (Reason.NOT_OBJECT, -32600),
        (Reason.INVALID_EVENT, -32600),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_its_beginning(reason: Reason, code: int) -> None:
    found = RpcMistake(Fault(reason, "the line is odd", "xyz"))
    assert mistake(found) == RpcError(code, "the line is odd", {"excerpt": "xyz"})


def test_contents_that_were_read_have_the_uris_that_the_client_knows() -> None:
    contents = [{"uri": "a:1", "text": "x"}, {"uri": 5}, {"text": "y"}, 7]
    assert renamed_contents({"contents": contents, "b": 2}, "m+") == {
        "contents": [{"uri": "m+a:1", "text": "x"}, *contents[1:]],
        "b": 2,
    }
    assert renamed_contents({"contents": contents}, "") == {"contents": contents}
    assert renamed_contents({"contents": 5}, "m+") == {"contents": 5}
