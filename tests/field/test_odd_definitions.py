"""One odd definition never costs a client the others: lists are such as strict clients take."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.field.conftest import Connect, server
from tests.field.mcp_client import NEWER, OLDER, McpClient
from tests.field.odd_results import TOOLS
from tests.field.servers import schemas
from tests.system.daemon import Daemon
from tests.system.descriptors import descriptor

ODD = Path(__file__).with_name("odd_results.py")

REVISIONS = pytest.mark.parametrize("revision", [NEWER, OLDER, "2024-11-05"])

Host = Callable[..., Daemon]


def odd(word: str) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", str(ODD), word]
    return descriptor(word, command, protocol="mcp")


def assert_strict(tool: dict[str, Any], revision: str) -> None:
    """Hold a tool to what the SDKs for TypeScript and Python hold it to."""
    assert None not in tool.values(), tool
    kinds = {"title": str, "description": str, "_meta": dict, "icons": list, "execution": dict}
    for field, wanted in (kinds | {"annotations": dict, "inputSchema": dict}).items():
        assert isinstance(tool.get(field, wanted()), wanted), tool
    hints = tool.get("annotations", {})
    assert all(isinstance(value, bool) for key, value in hints.items() if key.endswith("Hint"))
    for icon in tool.get("icons", []):
        assert isinstance(icon["src"], str)
        assert isinstance(icon.get("sizes", []), list)
    shown = [tool["inputSchema"]]
    if "outputSchema" in tool:
        assert isinstance(tool["outputSchema"], dict), tool
        shown += [tool["outputSchema"]] if revision != NEWER else []
    for schema in shown:
        assert schema["type"] == "object", tool
        kind = dict if revision != NEWER else (dict, bool)
        assert all(isinstance(one, kind) for one in schema.get("properties", {}).values()), tool
        assert all(isinstance(one, str) for one in schema.get("required", [])), tool
        assert isinstance(schema.get("$schema", ""), str), tool


def words_of(daemon: Daemon, module: str) -> list[str]:
    return [event["message"] for event in daemon.client.op("logs", module=module).events]


@REVISIONS
@pytest.mark.parametrize("word", ["schemas", "definitions"])
def test_all_tools_are_listed_as_a_strict_client_takes_them(
    host: Host, connect: Connect, revision: str, word: str
) -> None:
    daemon = host(server(word) if word == "schemas" else odd(word))
    tools = connect(daemon, revision=revision).tools()
    expected = schemas.tools if word == "schemas" else TOOLS
    assert list(tools) == [one["name"] for one in expected]
    for tool in tools.values():
        assert_strict(tool, revision)
    for name in ("dangling_out", "null_out", "out_pattern", "out_type", "out_remote", "out_list"):
        assert "outputSchema" not in tools.get(name, {})
    untyped = {"array_out", "out_anyof"} & tools.keys()
    assert all(("outputSchema" in tools[name]) is (revision == NEWER) for name in untyped)
    assert {name: tools[name] for name in ("good",)} == {
        one["name"]: one for one in expected if one["name"] == "good"
    }


def test_what_is_mended_still_says_what_it_said(host: Host, connect: Connect) -> None:
    tools = connect(host(odd("definitions"))).tools()
    schema = {name: tool["inputSchema"] for name, tool in tools.items()}
    assert schema["prop_null"] == {
        "type": "object",
        "properties": {"a": {}, "b": {"type": "string"}},
    }
    assert schema["prop_bools"]["properties"] == {"a": {}, "b": {"not": {}}}
    assert schema["required_mixed"]["required"] == ["a"]
    assert schema["one_of"]["oneOf"] == [{"type": "object"}, {"type": "object"}]
    assert tools["hint_text"]["annotations"] == {"title": "x"}
    assert tools["icon_odd"]["icons"] == [{"src": "data:,"}]
    assert tools["out_bool_prop"]["outputSchema"]["properties"] == {"a": {}}


@pytest.mark.parametrize("word", ["schemas", "definitions"])
def test_an_odd_tool_is_called_like_any_other(host: Host, connect: Connect, word: str) -> None:
    client = connect(host(server(word) if word == "schemas" else odd(word)))
    for name in ("good", "null_schema", "no_schema", "type_list", "props_list", "required_true"):
        if name in client.tools():
            assert json.loads(client.text(name, a="x"))["name"] == name


@REVISIONS
def test_prompts_and_resources_are_mended_too(host: Host, connect: Connect, revision: str) -> None:
    client = connect(host(odd("definitions")), revision=revision)
    assert client.ask("prompts/list")["prompts"] == [
        {"name": "good"},
        {"name": "nulls"},
        {"name": "args_object"},
        {"name": "args_odd", "arguments": [{"name": "a"}]},
    ]
    assert client.ask("resources/list")["resources"] == [
        {"uri": "a://good", "name": "good"},
        {"uri": "a://un/named.txt", "name": "named.txt"},
        {"uri": "a://c", "name": "c"},
        {"uri": "a://d", "name": "d", "annotations": {}},
    ]
    [template] = client.ask("resources/templates/list")["resourceTemplates"]
    assert template == {"uriTemplate": "t://{a}", "name": "{a}"}
    prompt = client.ask("prompts/get", {"name": "good"})
    assert prompt["messages"] == [{"role": "user", "content": {"type": "text", "text": "words"}}]
    assert "description" not in prompt
    [read] = client.ask("resources/read", {"uri": "a://good"})["contents"]
    assert read == {"uri": "a://good", "text": "no uri"}


def test_the_log_says_once_of_each_odd_definition_what_is_wrong(
    host: Host, connect: Connect
) -> None:
    daemon = host(server("schemas"))
    connect(daemon).tools()
    said = words_of(daemon, "schemas")
    for name in ("anyof_notype", "null_schema", "type_list", "dangling_out", "array_out"):
        assert sum(f'"{name}"' in one for one in said) == 1, said
    assert "tools/list: \"null_schema\": 'inputSchema' is null and becomes" in "\n".join(said)
    assert not any('"good"' in one or '"zod_int"' in one for one in said)


def test_check_warns_of_odd_definitions_and_of_no_others(tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(odd("definitions")))
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "supervisor.cli", "check", str(path), "--json"],
        capture_output=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    document = json.loads(ended.stdout)
    findings = document["modules"][0]["findings"] if "modules" in document else document["findings"]
    [found] = [one for one in findings if one["clause"] == "introduction"]
    assert found["status"] == "warning"
    assert any(one.startswith('tools/list: "top_array"') for one in found["exchanged"])
    assert not any('"good"' in one for one in found["exchanged"])


def test_a_list_is_one_page_while_it_fits_into_a_mebibyte(host: Host, connect: Connect) -> None:
    client: McpClient = connect(host(odd("many")))
    page = client.ask("tools/list")
    assert len(page["tools"]) == 2000
    assert "nextCursor" not in page
