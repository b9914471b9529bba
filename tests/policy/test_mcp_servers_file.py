"""What an `mcpServers` file comes to: descriptors, variables in the place of secrets, words."""

from __future__ import annotations

import json
from pathlib import PurePath, PurePosixPath
from typing import Any

import pytest

from protocol.descriptor.loading import FETCH_S, parse_descriptor
from supervisor.policy.fetching_commands import Fetched
from supervisor.policy.mcp_servers_file import (
    Imported,
    Surroundings,
    imported,
    servers_of,
)

PROJECT, HOME = PurePosixPath("/code/project"), PurePosixPath("/home/ada")
ENV_FILES = {
    "/code/project/.env": """
# a comment
export LEVEL='a b'
PLAIN=1
API_KEY=abc
SHARED=file
not a line
""",
}


def read(path: PurePath) -> str | None:
    return ENV_FILES.get(str(path))


AROUND = Surroundings(PROJECT, HOME, read)


def one(server: Any, name: str = "s") -> Imported:
    (found,) = imported("/mcpServers", {name: server}, AROUND)
    if found.descriptor is not None:
        parse_descriptor(json.dumps(found.descriptor).encode(), "/s.json")
    return found


def transport(server: Any) -> dict[str, Any]:
    descriptor = one({"command": "x", **server}).descriptor
    assert descriptor is not None
    found: dict[str, Any] = descriptor["transport"]
    return found


@pytest.mark.parametrize(
    ("document", "at"),
    [
        ({"mcpServers": {"a": {}}}, "/mcpServers"),
        ({"servers": {"a": {}}, "inputs": []}, "/servers"),
        ({"mcp": {"servers": {"a": {}}}, "editor.fontSize": 12}, "/mcp/servers"),
    ],
    ids=str,
)
def test_the_servers_of_each_program_are_found(document: Any, at: str) -> None:
    assert servers_of(document) == (at, {"a": {}})


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
        (3, ": is 3, must be an object"),
        ({"url": "https://x"}, "/url: means HTTP"),
        ({"type": "sse", "command": "x"}, "/type: means HTTP"),
        ({}, "/command: is null, must be a string"),
        ({"command": "x", "args": "y"}, "/args: must be an array"),
        ({"command": "x", "args": [1]}, "/args: must be an array"),
        ({"command": "x", "env": []}, None),
        ({"command": "x", "env": "y"}, '/env: is "y", must be an object'),
        ({"command": "x", "args": ["a", "${env:TOKEN}"]}, "/args/1: has"),
        ({"command": "x", "args": ["${input:token}"]}, "/args/0: has"),
        ({"command": "x", "cwd": "${file}"}, "/cwd: has"),
        ({"command": "x", "args": ["--api-key", "abc"]}, "/args/1: looks like a secret"),
        ({"command": "x", "args": ["--token=abc"]}, "/args/0: looks like a secret"),
        ({"command": "x", "args": ["sk-abc"]}, "/args/0: looks like a secret"),
        ({"command": "x", "args": ["postgres://ada:abc@db/x"]}, "/args/0: looks like a secret"),
        ({"command": "docker", "args": ["run", "-e", "A_TOKEN=abc", "x"]}, "/args/2: looks like"),
        ({"command": "docker", "args": ["run", "-e", "A=sk-abc", "x"]}, "/args/2: looks like"),
        ({"command": "docker", "args": ["run", "-e", "A_TOKEN", "x"]}, None),
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
    assert str(found.remarks[-1]).startswith(f"/mcpServers/s{words}")


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"autoApprove": []}, "/autoApprove: is not carried over"),
        ({"envFile": "none.env"}, '/envFile: is "none.env", which cannot be read'),
        ({"envFile": 3}, "/envFile: is 3, which cannot be read"),
        ({"env": {"A": {}}}, "/env/A: is an object, and is not carried over"),
        ({"env": {"A_TOKEN": "x"}}, "/env/A_TOKEN: looks like a secret"),
        ({"env": {"A": "${command:x}"}}, '/env/A: has "${command:x}": set A for the daemon'),
        ({"env": {"A": "${input:x}"}}, "/env/A: is asked for there: set A for the daemon"),
        ({"command": "bunx"}, f"/command: may download its program first, so it has {FETCH_S:g} s"),
        ({"command": "uv", "args": ["run", "x"]}, "/command: may download"),
        ({"command": "npx", "args": ["x"]}, "/command: is fetched before the first start"),
        ({"command": "pipx", "args": ["run", "x"]}, "/command: is fetched before the first"),
        ({"timeout": "60"}, '/timeout: is "60", and is not carried over'),
        ({"timeout": True}, "/timeout: is true, and is not carried over"),
        ({"timeout": 0}, "/timeout: is 0, and is not carried over"),
        ({"timeout": 90}, "/timeout: is taken for seconds: a call may be silent for 90 s"),
        ({"timeout": 90000}, "/timeout: is taken for milliseconds: a call may be silent for 90 s"),
        ({"disabled": True}, "/disabled: is true, so it starts with its first request only"),
    ],
    ids=str,
)
def test_whatever_is_lost_or_changed_is_said(server: Any, words: str) -> None:
    (remark,) = one({"command": "x", **server}).remarks
    assert str(remark).startswith(f"/mcpServers/s{words}")


def test_the_variables_of_a_file_are_those_that_env_does_not_set() -> None:
    found = one({"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"SHARED": "env"}})
    assert found.descriptor is not None
    assert found.descriptor["transport"]["env"] == {"LEVEL": "a b", "PLAIN": "1", "SHARED": "env"}
    assert found.descriptor["transport"]["pass_env"] == ["API_KEY"]
    (remark,) = found.remarks
    words = "has API_KEY, which looks like a secret and is not copied: set API_KEY for the daemon"
    assert str(remark) == f"/mcpServers/s/envFile: {words}"


def test_a_command_that_fetches_is_prepared_and_has_no_more_time_than_others_to_start() -> None:
    found = one({"command": "npx", "args": ["-y", "@a/b@1", "${workspaceFolder}"]})
    assert found.descriptor is not None
    assert found.descriptor["transport"]["prepare"] == [
        "npx", "--yes", "--package=@a/b@1", "--", "true",
    ]  # fmt: skip
    assert found.descriptor["transport"]["command"] == [
        "npx", "--offline", "-y", "@a/b@1", "/code/project",
    ]  # fmt: skip
    assert "supervision" not in found.descriptor


@pytest.mark.parametrize("program", ["docker", "podman", "/opt/bin/podman"])
def test_a_container_is_pulled_first_and_its_variables_come_from_the_daemon(program: str) -> None:
    words = ["run", "-i", "--rm", "-e", "TOKEN", "-v", "${workspaceFolder}:/x", "mcp/git:1", "--a"]
    found = one({"command": program, "args": words, "env": {"TOKEN": "abc"}})
    assert found.descriptor is not None
    made = found.descriptor["transport"]
    script = '"$0" image inspect "$1" >/dev/null 2>&1 || exec "$0" pull "$@"'
    assert made["prepare"] == ["sh", "-c", script, program, "mcp/git:1"]
    assert made["command"] == [
        program, "run", "--pull=never", "-i", "--rm", "-e", "TOKEN", "-v", "/code/project:/x",
        "mcp/git:1", "--a",
    ]  # fmt: skip
    assert made["pass_env"] == ["TOKEN"]
    said = [str(remark) for remark in found.remarks]
    assert said == [
        "/mcpServers/s/env/TOKEN: looks like a secret and is not copied: set TOKEN for the daemon",
        f"/mcpServers/s/command: {Fetched([], []).remark}",
    ]


@pytest.mark.parametrize(
    ("given", "name"),
    [("a/b", "a-b"), ("", "server"), ("..", "..-server"), ("\u00fc" * 200, "\u00fc" * 128)],
)
def test_a_name_that_cannot_be_one_is_changed_and_that_is_said(given: str, name: str) -> None:
    found = one({"command": "x"}, given)
    assert found.name == name
    assert "is called" in str(found.remarks[0])


def test_of_two_that_come_to_the_same_name_the_first_counts() -> None:
    both = {"a/b": {"command": "x"}, "a-b": {"command": "y"}}
    first, second = imported("/mcpServers", both, AROUND)
    assert first.descriptor is not None
    assert second.descriptor is None


@pytest.mark.parametrize(
    ("timeout", "invoke_s"),
    [(1, 1), (60, 60), (3600, 3600), (5000, 5), (600_000, 600), (86_400_000, 86_400), (0.5, 0.5)],
)
def test_the_timeout_of_a_server_is_how_long_its_calls_may_take(
    timeout: float, invoke_s: float
) -> None:
    descriptor = one({"command": "npx", "args": ["--odd"], "timeout": timeout}).descriptor
    assert descriptor is not None
    assert descriptor["supervision"] == {"timeouts": {"invoke_s": invoke_s}}
    timeouts = parse_descriptor(json.dumps(descriptor).encode(), "/s.json").supervision.timeouts
    assert (timeouts.start_s, timeouts.total_s) == (FETCH_S, max(3600, invoke_s))
