"""Results as servers write them: each comes to something sensible, for `invoke` and MCP clients."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.field.conftest import server
from tests.field.mcp_client import NEWER, OLDER, McpClient
from tests.field.odd_results import LONG, RESULTS, URLSAFE
from tests.field.servers import PNG
from tests.field.servers import RESULTS as PLAIN
from tests.field.test_odd_definitions import odd
from tests.system.client import Answer
from tests.system.daemon import Daemon, shared

Clients = dict[str, McpClient]

STRICT: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": dict},
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    config = tmp_path_factory.mktemp("config") / "stdiod.toml"
    config.write_text("[mcp.views.default]\nprefix = false\n")
    with shared(server("results"), odd("odd_results"), options=("--config", str(config))) as one:
        yield one


@pytest.fixture(scope="module")
def clients(daemon: Daemon) -> Iterator[Clients]:
    with (
        McpClient(daemon.socket, revision=NEWER) as newer,
        McpClient(daemon.socket, revision=OLDER) as older,
        McpClient(daemon.socket, revision="2024-11-05") as oldest,
    ):
        yield {NEWER: newer, OLDER: older, "2024-11-05": oldest}


def invoke(daemon: Daemon, tool: str) -> Answer:
    module = "odd_results" if tool in RESULTS else "results"
    return daemon.invoke(module, tool)


def assets(answer: Answer) -> dict[str, dict[str, Any]]:
    return {one["assetId"]: one for one in answer.events if one["type"] == "asset"}


def bytes_of(answer: Answer, asset: str) -> bytes:
    return Path(assets(answer)[asset]["path"]).read_bytes()


@pytest.mark.parametrize("tool", [*RESULTS, *PLAIN])
def test_no_result_is_one_that_strict_clients_refuse(clients: Clients, tool: str) -> None:
    for revision, client in clients.items():
        result = client.call(tool)["result"]
        assert isinstance(result["content"], list)
        assert isinstance(result.get("isError", False), bool)
        assert isinstance(result.get("_meta", {}), dict)
        assert "assetId" not in json.dumps(result)
        if revision != NEWER:
            assert isinstance(result.get("structuredContent", {}), dict)
        for block in result["content"]:
            assert None not in block.values(), block
            fields = STRICT[block["type"]]
            assert all(isinstance(block[name], kind) for name, kind in fields.items()), block
            if block["type"] == "resource":
                held = block["resource"]
                assert isinstance(held.get("text", held.get("blob")), str), block


@pytest.mark.parametrize(
    ("tool", "expected", "media_type"),
    [
        ("lines", PNG, "image/png"),
        ("unpadded", PNG, "image/png"),
        ("urlsafe", URLSAFE.replace("_", "/").replace("-", "+"), "image/png"),
        ("data_url", PNG, "image/gif"),
        ("audio_url", PNG, "audio/wav"),
        ("image_data_url", PNG, "image/png"),
        ("image_no_mime", PNG, "application/octet-stream"),
    ],
)
def test_base64_as_servers_write_it_is_an_asset(
    daemon: Daemon, clients: Clients, tool: str, expected: str, media_type: str
) -> None:
    answer = invoke(daemon, tool)
    [block] = answer.result["content"]
    assert bytes_of(answer, block["assetId"]) == base64.b64decode(expected)
    assert assets(answer)[block["assetId"]]["mediaType"] == media_type
    assert not answer.warnings
    for client in clients.values():
        [block] = client.call(tool)["result"]["content"]
        if block["type"] != "text":  # the oldest revision has no sound
            assert (block["data"], block["mimeType"]) == (expected, media_type)


def test_a_data_url_in_a_blob_is_an_asset(daemon: Daemon, clients: Clients) -> None:
    answer = invoke(daemon, "data_url_blob")
    [block] = answer.result["content"]
    assert bytes_of(answer, block["resource"]["assetId"]) == base64.b64decode(PNG)
    [block] = clients[OLDER].call("data_url_blob")["result"]["content"]
    assert block["resource"]["blob"] == PNG
    assert block["resource"]["mimeType"] == "text/x;charset=utf-8"


@pytest.mark.parametrize("tool", ["no_base64", "url_of_text", "own_id", "image_empty"])
def test_what_is_no_base64_stays_as_it_came_with_a_warning(
    daemon: Daemon, clients: Clients, tool: str
) -> None:
    came = {**PLAIN, **RESULTS}[tool]["content"][0]
    expected = {key: value for key, value in came.items() if key != "assetId"}
    answer = invoke(daemon, tool)
    assert answer.result["content"] == [expected]
    assert answer.warnings == ["asset_not_copied"]
    assert not assets(answer)
    for client in clients.values():
        assert client.call(tool)["result"]["content"] == [expected]


def test_data_that_stands_in_structured_content_as_well_is_the_same_asset(
    daemon: Daemon, clients: Clients
) -> None:
    answer = invoke(daemon, "shared")
    named = {"assetId": "image-1"}
    assert answer.result == {"image": {**named, "name": "n"}, "again": [named], "short": "QUJD"}
    assert bytes_of(answer, "image-1") == base64.b64decode(LONG)
    for client in clients.values():  # as its output schema has it
        result = client.call("shared")["result"]
        assert result["structuredContent"] == RESULTS["shared"]["structuredContent"]
        assert result["content"][0]["data"] == LONG


@pytest.mark.parametrize("tool", ["error_text", "error_one", "error_words"])
def test_is_error_of_a_wrong_type_counts(daemon: Daemon, clients: Clients, tool: str) -> None:
    answer = invoke(daemon, tool)
    assert answer.verdict == "internal/reported"
    assert answer.error["message"] in ("t", "what went wrong")
    for client in clients.values():
        assert client.call(tool)["result"]["isError"] is True


@pytest.mark.parametrize("tool", ["error_false", "iserror_null", "block_nulls"])
def test_is_error_that_is_false_or_null_does_not(
    daemon: Daemon, clients: Clients, tool: str
) -> None:
    assert invoke(daemon, tool).ok
    for client in clients.values():
        assert client.call(tool)["result"].get("isError", False) is False


TEXTS: list[tuple[str, list[str]]] = [
    ("content_string", ["Hello"]),
    ("content_strings", ["a", "b"]),
    ("content_null", []),
    ("empty", []),
    ("nothing", []),
    ("wrapped", ["inner"]),
    ("wrapped_text", ["inner"]),
    ("no_content", ['{"task":"x","bullets":[1,2]}']),
    ("text_number", ["42"]),
    ("content_object", ["t"]),
    ("content_number", ["5"]),
    ("mixed", ["a", "5", "untyped", "t"]),
    ("unknown_block", ['{"type":"chart","data":[1,2]}', "t"]),
    ("block_nulls", ["t"]),
    ("structured_null", ["t"]),
    ("breaks", ["a\u2028b\u2029c\u0085d"]),
    ("nul", ["a\0b"]),
]


@pytest.mark.parametrize(("tool", "expected"), TEXTS, ids=[one for one, _ in TEXTS])
def test_what_a_model_can_read_is_text(
    daemon: Daemon, clients: Clients, tool: str, expected: list[str]
) -> None:
    assert invoke(daemon, tool).ok
    for client in clients.values():
        result = client.call(tool)["result"]
        assert [one["text"] for one in result["content"]] == expected
        assert not result.get("isError")


def test_a_result_that_is_no_object_is_an_error_in_words(daemon: Daemon, clients: Clients) -> None:
    for tool in ("bare_string", "bare_null", "bare_list"):
        assert "its result is" in invoke(daemon, tool).error["message"]
        assert clients[OLDER].call(tool)["result"]["isError"] is True


def test_structured_content_that_does_not_fit_its_schema_is_passed_on(clients: Clients) -> None:
    for revision, client in clients.items():
        assert client.call("out_mismatch")["result"]["structuredContent"] == {"b": 1}
        assert "structuredContent" not in client.call("out_missing")["result"]
        failed = client.call("out_error")["result"]
        assert (failed["isError"], failed["content"][0]["text"]) == (True, "real reason")
        assert ("structuredContent" in failed) is (revision == NEWER)


def test_characters_that_end_lines_for_others_are_written_escaped(clients: Clients) -> None:
    client = clients[OLDER]
    assert client.process.stdout is not None
    client.send("tools/call", {"name": "breaks", "arguments": {}})
    line = client.process.stdout.readline()
    assert rb"a\u2028b\u2029c\u0085d" in line
    assert len(line.decode().splitlines()) == 1


def test_they_are_on_the_socket_and_in_json_too(daemon: Daemon) -> None:
    words = ["invoke", "odd_results", "breaks", "--json", "--socket", str(daemon.socket)]
    command = [sys.executable, "-m", "supervisor.cli", *words]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(daemon.socket))
        request = {"requestId": "b", "tool": "odd_results", "operation": "invoke"}
        asked = {**request, "input": {"op": "breaks"}}
        connection.sendall(json.dumps(asked).encode() + b"\n")
        line = connection.makefile("rb").readline()
    for told in (printed, line):
        assert rb"a\u2028b\u2029c\u0085d" in told
        assert len(told.decode().splitlines()) == 1
