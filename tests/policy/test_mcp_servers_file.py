"""What an `mcpServers` file comes to: descriptors, variables in the place of secrets, words."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest

from protocol.descriptor.loading import parse_descriptor
from supervisor.policy.mcp_servers_file import FETCH_S, Imported, imported, servers_of

PROJECT, HOME = PurePosixPath("/code/project"), PurePosixPath("/home/ada")


def one(server: Any, name: str = "s") -> Imported:
    (found,) = imported({name: server}, PROJECT, HOME)
    if found.descriptor is not None:
        parse_descriptor(json.dumps(found.descriptor).encode(), "/s.json")
    return found


def transport(server: Any) -> dict[str, Any]:
    descriptor = one({"command": "x", **server}).descriptor
    assert descriptor is not None
    found: dict[str, Any] = descriptor["transport"]
    return found


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"a": {}}},
        {"servers": {"a": {}}, "inputs": []},
        {"mcp": {"servers": {"a": {}}}, "editor.fontSize": 12},
    ],
    ids=str,
)
def test_the_servers_of_each_program_are_found(document: Any) -> None:
    assert servers_of(document) == {"a": {}}


@pytest.mark.parametrize("document", [{}, [], {"mcpServers": []}, {"mcp": 3}, None], ids=str)
def test_a_file_without_servers_has_none(document: Any) -> None:
    assert servers_of(document) is None


def test_a_server_becomes_a_descriptor() -> None:
    server = {"command": "node", "args": ["a b.js", "${workspaceFolder}/x"], "env": {"LEVEL": "1"}}
    found = one(server)
    assert found.remarks == ()
    assert found.descriptor == {
        "name": "s",
        "kind": "tool",
        "capabilities": [],
        "transport": {
            "type": "stdio",
            "protocol": "mcp",
            "command": ["node", "a b.js", "/code/project/x"],
            "env": {"LEVEL": "1"},
        },
    }


@pytest.mark.parametrize(
    ("name", "value", "field", "kept"),
    [
        ("A", "${B}", "env", "${B}"),
        ("A", "${env:B}/x", "env", "${B}/x"),
        ("A", "${A}", "pass_env", None),
        ("A", "${input:token}", "pass_env", None),
        ("A", "${userHome}/x", "env", "/home/ada/x"),
        ("A", 3, "env", "3"),
        ("A", None, "env", ""),
        ("GITHUB_TOKEN", "abc", "pass_env", None),
        ("OPENAI_API_KEY", "abc", "pass_env", None),
        ("DB_PASSWORD", "abc", "pass_env", None),
        ("HEADER", "Bearer abc", "pass_env", None),
        ("URL", "postgres://ada:abc@db/x", "pass_env", None),
        ("GITHUB_TOKEN", "${MY_TOKEN}", "env", "${MY_TOKEN}"),
        ("GITHUB_TOKEN", "", "env", ""),
        ("A", "${command:x}", "pass_env", None),
        ("A", "${B:-x}", "pass_env", None),
    ],
)
def test_a_secret_becomes_a_variable_and_a_variable_stays_one(
    name: str, value: Any, field: str, kept: str | None
) -> None:
    found = transport({"env": {name: value}})
    assert found[field] == ([name] if kept is None else {name: kept})
    assert "abc" not in json.dumps(found)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (3, "it must be an object"),
        ({"url": "https://x"}, "over HTTP"),
        ({"type": "sse", "command": "x"}, "over HTTP"),
        ({}, '"command"'),
        ({"command": "x", "args": "y"}, '"args"'),
        ({"command": "x", "args": [1]}, '"args"'),
        ({"command": "x", "env": []}, None),
        ({"command": "x", "env": "y"}, '"env"'),
        ({"command": "x", "args": ["${env:TOKEN}"]}, "no variable can"),
        ({"command": "x", "args": ["--api-key", "abc"]}, "a secret"),
        ({"command": "x", "args": ["--token=abc"]}, "a secret"),
        ({"command": "x", "args": ["sk-abc"]}, "a secret"),
        ({"command": "x", "args": ["postgres://ada:abc@db/x"]}, "a secret"),
        ({"command": "x", "args": ["--author", "abc"]}, None),
    ],
    ids=str,
)
def test_what_cannot_be_carried_over_is_left_out_with_a_word(
    server: Any, words: str | None
) -> None:
    found = one(server)
    if words is None:
        assert found.descriptor is not None
        return
    assert found.descriptor is None
    assert words in found.remarks[-1]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"envFile": ".env", "autoApprove": []}, 'not carried over: "autoApprove", "envFile"'),
        ({"env": {"A": {}}}, 'its variable "A" is not carried over'),
        ({"env": {"A_TOKEN": "x"}}, "A_TOKEN looks like a secret"),
        ({"env": {"A": "${command:x}"}}, "set A for the daemon"),
        ({"command": "npx"}, f"it has {FETCH_S} s to start"),
        ({"disabled": True}, "with its first request only"),
    ],
    ids=str,
)
def test_whatever_is_lost_or_changed_is_said(server: Any, words: str) -> None:
    (remark,) = one({"command": "x", **server}).remarks
    assert words in remark


@pytest.mark.parametrize(
    ("given", "name"),
    [("a/b", "a-b"), ("", "server"), ("..", "..-server"), ("\u00fc" * 200, "\u00fc" * 128)],
)
def test_a_name_that_cannot_be_one_is_changed_and_that_is_said(given: str, name: str) -> None:
    found = one({"command": "x"}, given)
    assert found.name == name
    assert "is called" in found.remarks[0]


def test_of_two_that_come_to_the_same_name_the_first_counts() -> None:
    both = {"a/b": {"command": "x"}, "a-b": {"command": "y"}}
    first, second = imported(both, PROJECT, HOME)
    assert first.descriptor is not None
    assert second.descriptor is None
