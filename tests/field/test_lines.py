"""Lines that are not quite JSON-RPC are taken for what they mean, or fail their request at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.field.conftest import Connect, server
from tests.field.odd_servers import FORMS, odd
from tests.field.servers import LINES
from tests.system.daemon import Daemon

Host = Callable[..., Daemon]

FRAMED = "frames its messages with Content-Length headers, as LSP does; MCP over stdio has one"
TEXT = '"result":{"content":[{"type":"text","text":"T"}]}}'
OK = '{"jsonrpc":"2.0","id":ID,' + TEXT
NOTED = (
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":TOKEN,'
    '"progress":1,'
)

SERVED: dict[str, tuple[str | None, str]] = {
    "lone_surrogate": ("cut \ufffd", "lone_surrogate"),
    "nan": (None, "malformed_json"),
    "u2028": ("a\u2028b\u2029c\x85d\x7f", ""),
    "rawtab": ("a\tb\x1bc", "malformed_json"),
    "noversion": ("no jsonrpc", "odd_message"),
    "string_id": ("id as given", "odd_message"),
    "error_null": ("error null", ""),
    "batch": ("in a batch", "odd_message"),
    "ansi": ("after an escape", "malformed_json"),
    "prefix": ("after words", "malformed_json"),
    "crlf": ("crlf", ""),
    "bom": ("bom", ""),
    "pretty": (None, "malformed_json"),
    "duplicate": ("first", ""),
}
"""What each word of `lines` comes to: the text, and the warning that it has."""

FAILED = {
    "result_null": "both",
    "error_string": "just words",
    "error_nocode": "no code",
    "error_strcode": "E_GONE: text code",
    "error_nullid": "lost the id",
    "framed": f"the server {FRAMED} message a line",
}


def test_each_odd_line_answers_its_call_at_once_and_leaves_the_next_alone(
    host: Host, connect: Connect
) -> None:
    assert SERVED.keys() | FAILED.keys() == LINES.keys()
    daemon = host(server("lines"))
    for word, (text, warning) in SERVED.items():
        answer = daemon.invoke("lines", word)
        assert answer.warnings == [warning] * bool(warning), word
        content = answer.result.get("content", [])
        assert [one["text"] for one in content] == [text] * (text is not None), word
    for word, message in FAILED.items():
        assert daemon.invoke("lines", word).error["message"] == message
    client = connect(daemon)
    assert client.call("nan")["result"]["structuredContent"] == {"a": None}
    assert client.call("error_strcode")["error"]["message"] == "E_GONE: text code"
    assert client.text("framed") == FAILED["framed"]
    assert client.text("crlf") == "crlf"


def test_a_server_that_prints_everything_so_is_served_or_its_start_says_why(host: Host) -> None:
    daemon = host(*[odd("forms", how) for how in FORMS])
    unreadable = "gave no answer to initialize that can be taken: the line is not JSON"
    said = {"framed": FRAMED, "typed": FRAMED, "repr": unreadable, "unquoted": unreadable}
    for how in FORMS:
        answer = daemon.invoke(how, "echo")
        if how in said:
            assert f"{how} is not ready: it {said[how]}" in answer.error["message"]
        else:
            assert answer.ok, (how, answer.done)


TAKEN: dict[str, list[str]] = {
    OK.replace("T", "caf\xe9 \x93q\x94"): ["invalid_utf8"],
    OK.replace('"T"', '"\\\\ud800 \\ud83d\\ude00 \\udc00"'): ["lone_surrogate"],
    OK.replace('"type"', '"\\ud800":1,"type"'): ["lone_surrogate"],
    OK.replace("T", "\x00\x1f\x7f"): ["malformed_json"],
    OK.replace("T", "\xff\t\\ud800").replace("}]}}", '}],"n":NaN}}'): ["invalid_utf8"],
    OK.replace("ID", '"ID"'): ["odd_message"],
    OK.replace("ID", "ID.0"): ["odd_message"],
    OK.replace('"id"', '"id":77,"id"'): [],
    OK.replace('"2.0"', "2.0"): ["odd_message"],
    OK.replace('"result"', '"error":false,"result"'): ["odd_message"],
    OK.replace('"result"', '"method":"tools/call","result"'): ["odd_message"],
    f"[{NOTED}" + '"total":2}},{"jsonrpc":"2.0","method":"notifications/x"},' + OK + "]": [
        "odd_message"
    ],
    NOTED + '"total":2}}' + OK: ["malformed_json"] * 2,
    OK + ' {"level":"info"}' + '{"jsonrpc":"2.0","method":"notifications/x"}': ["malformed_json"],
    "2026-11-27 {info} sent: " + OK: ["malformed_json"],
    NOTED + '"message":"\\ud800"}}\n' + OK: ["lone_surrogate"],
    NOTED + '"total":NaN}}\n' + OK: ["malformed_json"],
    NOTED.replace("TOKEN", '"TOKEN"') + '"message":"m"}}\n' + OK: [],
    '{"jsonrpc":"2.0","id":null,"method":"notifications/message","params":{"data":"x"}}\n' + OK: [],
    "[]\n" + OK: ["not_object"],
    '{\n"id": ID,\n"jsonrpc": "2.0",\n"result": {"content": [\n]}\n}': ["malformed_json"],
}


def test_what_is_clear_is_taken_with_a_warning(host: Host) -> None:
    daemon = host(*[odd("prints", "2025-06-18")])
    for line, warnings in TAKEN.items():
        daemon.op("restart", module="2025-06-18")  # what is said once, is said of each
        answer = daemon.invoke("2025-06-18", "say", line=f"{line}\n")
        assert answer.ok, (line, answer.done)
        assert answer.warnings == warnings, (line, answer.done)


REFUSED: dict[str, str] = {
    "{'jsonrpc': '2.0', 'id': ID, 'result': {'content': [], 'isError': False}}": "double quotes",
    "{jsonrpc: '2.0', id: ID, result: {content: []}}": "double quotes",
    '{"id":ID,"jsonrpc":"2.0","result":{"content":[],}}': "trailing comma",
    '{"jsonrpc":"2.0","result":{"content":[],"x":nan},"id":ID}': "not JSON",
    OK.replace("T", "a\nb"): "ends in the middle",
    '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a': "in the middle",
    '{"jsonrpc":"2.0","id":ID,"result":{"n":1e999}}': "too large",
    '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"x":NaN,"t":"'
    + "x" * 300_000
    + '"}}': "`NaN`",
    '{"jsonrpc":"2.0","id":ID,"result":' + "[" * 100_000: "nested too deeply",
    '{"jsonrpc":"2.0","id":ID,"result":"words"}': "its result is a string",
    '{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1}}': "a result and an error",
    "{\n  jsonrpc: '2.0',\n  id: ID,\n  result: {}\n}": "not JSON",
    OK.replace('"T"', '"}{",') + OK: "not JSON",
    OK + OK[:-1]: "follows its JSON",
    "Content-Type: x\r\nContent-Length: 4\r\n\r\n": FRAMED,
    "[" + "1," * 1000 + "1]": "a batch of more than 1000 messages",
}


def test_what_is_not_fails_its_request_at_once_with_what_is_wrong(host: Host) -> None:
    daemon = host(odd("prints", "2025-06-18"))
    for line, words in REFUSED.items():
        error = daemon.invoke("2025-06-18", "say", line=f"{line}\n").error
        assert words in error["message"], (line[:99], error)
        assert error["details"]["line_excerpt"]
        assert daemon.invoke("2025-06-18", "echo").ok


def test_no_line_settles_another_request_than_it_names(host: Host) -> None:
    daemon = host(odd("prints", "2025-06-18"))
    held = [daemon.client.send_invoke("2025-06-18", "hold") for _ in range(2)]
    for line in (
        '{"id":0,"jsonrpc":"2.0","result":{}}',
        '{"jsonrpc":"2.0","result":{"x":[{"id":4,"result":NaN}],}}',
        '{"id":4,"method":"roots/list",}',
        '{"id":4,"jsonrpc":"2.0","method":"x","result":nan}',
        "{'text': 'id: 4'}",
        "sent {'id': 4}",
        '{"level":"error","error":"x"}',
        '{"result":{"x":{"id":5,"id":4}}',
    ):
        assert daemon.invoke("2025-06-18", "say", line=f"{line}\n{OK}\n").ok
    for one in held:
        daemon.client.cancel(one)
        assert daemon.client.answer(one).error["code"] == "cancelled"


def test_batches_are_nothing_odd_in_the_revision_that_has_them(host: Host) -> None:
    daemon = host(odd("prints", "2025-03-26"))
    for _ in range(2):
        answer = daemon.invoke("2025-03-26", "say", line=f'[{NOTED}"total":2}}}},{OK}]\n')
        assert (answer.ok, answer.warnings) == (True, [])
        assert [one["payload"]["done"] for one in answer.events] == [1]


def test_null_arguments_and_params_of_a_client_are_none(host: Host, connect: Connect) -> None:
    client = connect(host(server("resources", "one")))
    assert client.ask("tools/list", None)["tools"]
    for method, name in (("tools/call", "echo"), ("prompts/get", "review")):
        params: dict[str, Any] = {"name": name, "arguments": None}
        assert client.ask(method, params)
    for number, method in enumerate(("ping", "tools/list"), 900):
        client.write({"id": number, "method": method, "params": None})
        assert "result" in client.answer(number)


@pytest.mark.parametrize("line", ["[]", '{"jsonrpc":"2.0","id":ID,"result":{"a":NaN}}'])
def test_a_strict_host_takes_nothing_odd(host: Host, line: str) -> None:
    document = odd("prints", "2025-06-18")
    document["transport"]["stdout"] = "strict"
    daemon = host(document)
    error = daemon.invoke("2025-06-18", "say", line=f"{line}\n").error
    assert error["details"]["reason"] in ("malformed_json", "not_object")
