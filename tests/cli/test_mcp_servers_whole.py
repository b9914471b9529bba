"""Whole imports of servers: the descriptor, each remark in its order, and the env file."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from supervisor.cli.mcp_servers_file import Servers, Surroundings, imported, servers_of

AROUND = Surroundings(PurePosixPath("/code"), PurePosixPath("/home/ada"), lambda _: False)
FETCHED = (
    "/command: may download its program first, so by default it has 300 s to start "
    "(timeouts.start_s)"
)
BRIDGED = (
    "/url: is bridged by `npx -y mcp-remote`; if the server wants a sign-in, run that with its "
    "address once in a terminal"
)
HELD = (
    "/command: runs with --init --rm --cidfile -i and without -d, -t, --restart: stdiod speaks "
    "with it, and removes its container"
)
ASKED = "when it starts the server; here it is the variable"


def hidden(at: str, name: str) -> str:
    return f"{at}: looks like a secret: it is {name} in my s.env, not in the descriptor"


WHOLE: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[str], dict[str, str]]] = {
    "npx": (
        "mcpServers",
        {
            "command": "npx",
            "args": ["-y", "p", "--token=abc"],
            "env": {"A_KEY": "qwe", "B": "${input:my key}", "C": "${input:my key}/${input:2nd}"},
            "tools": [],
            "zzz": 1,
            "timeout": 90,
            "envFile": "${workspaceFolder}/.env",
        },
        {
            "cwd": "/code",
            "command": ["npx", "-y", "p", "--token=${MY_S_TOKEN}"],
            "env": {"B": "${MY_KEY}", "C": "${MY_KEY}/${V_2ND}"},
            "env_file": ["/code/.env", "my s.env"],
            "timeouts": {"invoke_s": 90.0},
        },
        [
            hidden("/env/A_KEY", "A_KEY"),
            *(
                f"/env/{name}: the client asks for ${{input:{asked}}} {ASKED} "
                f"{variable}: put {variable}=... into an env file of the module"
                for name, asked, variable in (
                    ("B", "my key", "MY_KEY"),
                    ("C", "my key", "MY_KEY"),
                    ("C", "2nd", "V_2ND"),
                )
            ),
            hidden("/args", "MY_S_TOKEN"),
            FETCHED,
            "/tools: is not carried over; all its tools can be called",
            "/zzz: is not carried over",
            "/timeout: is taken for seconds: invoke_s is 90",
        ],
        {"A_KEY": "qwe", "MY_S_TOKEN": "abc"},
    ),
    "remote": (
        "mcpServers",
        {
            "command": "x",
            "url": "http://ada:pass@far/mcp",
            "type": "sse",
            "headers": {"X-Mode": "a"},
            "env_http_headers": {"X-Key": "K"},
            "bearer_token_env_var": "T",
            "cwd": "/x",
        },
        {
            "command": [
                *("npx", "-y", "mcp-remote", "http://far/mcp", "--enable-proxy", "--allow-http"),
                *("--transport", "sse-only", "--header", "X-Mode:a"),
                *("--header", "X-Key:$${MY_S_X_KEY}"),
                *("--header", "Authorization:$${MY_S_AUTHORIZATION}"),
            ],
            "env": {"MY_S_X_KEY": "${K}", "MY_S_AUTHORIZATION": "Bearer ${T}"},
        },
        [
            "/command: is not carried over: the server has a url",
            "/url: is not encrypted, and --allow-http lets mcp-remote use it all the same",
            BRIDGED,
            FETCHED,
        ],
        {},
    ),
    "container": (
        "mcpServers",
        {
            "command": "docker",
            "args": [
                *("--debug", "run", "-dt", "--restart=always", "--tty=false", "--rm"),
                *("--env", "A_TOKEN=abc", "-e", "B=1", "-e", "C", "-e", "A_TOKEN"),
                *("-p=1:2", "--name", "n", "img", "-t"),
            ],
        },
        {
            "cwd": "/code",
            "command": [
                *("docker", "--debug", "run", "--init", "--cidfile", "${STDIOD_CIDFILE}", "-i"),
                *("--rm", "--env", "A_TOKEN", "-e", "B=1", "-e", "C", "-e", "A_TOKEN"),
                *("-p", "1:2", "--name", "n", "img", "-t"),
            ],
            "env_file": ["my s.env"],
            "pass_env": ["C"],
        },
        [
            hidden("/args", "A_TOKEN"),
            HELD,
            FETCHED,
        ],
        {"A_TOKEN": "abc"},
    ),
    "line": (
        "mcpServers",
        {"command": "A=1 B_KEY=qwe C=${C} x 'y z'", "args": ["~/a", "--b=~"], "cwd": "~"},
        {
            "cwd": "/home/ada",
            "command": ["x", "y z", "/home/ada/a", "--b=/home/ada"],
            "env": {"A": "1"},
            "env_file": ["my s.env"],
            "pass_env": ["C"],
        },
        [
            "/command: is split at its blanks into program and arguments",
            "/command: sets A, which is carried over as a variable",
            hidden("/command", "B_KEY"),
            "/command: sets B_KEY, which is carried over as a variable",
            "/command: sets C, which is carried over as a variable",
        ],
        {"B_KEY": "qwe"},
    ),
    "vscode": (
        "servers",
        {"command": "x", "env": {"PATH": "/a", "N": None, "P": "${PATH}:/b"}, "type": "stdio"},
        {"cwd": "/code", "command": ["x"], "env": {"PATH": "${PATH}:/a", "P": "${PATH}:/b"}},
        [],
        {},
    ),
    "codex": (
        "mcp_servers",
        {
            "command": "uvx",
            "args": ["p"],
            "env_vars": ["B", "A"],
            "env": {"X": "${X}"},
            "startup_timeout_sec": 5,
            "tool_timeout_sec": 1.23456,
            "startup_timeout_ms": -1,
        },
        {
            "cwd": "/code",
            "command": ["uvx", "p"],
            "pass_env": ["X", "A?", "B?"],
            "timeouts": {"invoke_s": 1.235, "start_s": 300.0},
        },
        [
            FETCHED,
            "/tool_timeout_sec: is taken for seconds: invoke_s is 1.235",
            "/startup_timeout_ms: is no number above 0, and is not carried over",
            "/startup_timeout_sec: is taken for seconds: start_s is 300",
        ],
        {},
    ),
    "opencode": (
        "mcp",
        {
            "type": "local",
            "command": ["x", "{env:A}/{env:B}"],
            "environment": {"Z": "{env:Z}"},
            "timeout": 5000,
        },
        {
            "cwd": "/code",
            "command": ["x", "${A}/${B}"],
            "pass_env": ["Z"],
            "timeouts": {"invoke_s": 5.0},
        },
        ["/timeout: is taken for milliseconds: invoke_s is 5"],
        {},
    ),
    "secrets": (
        "mcpServers",
        {
            "command": "x",
            "args": [
                *("--dsn", "x://u:abc@${H}/y:z@w/${D}", "PASSWORD: qwe"),
                "-----BEGIN PRIVATE KEY-----",
            ],
        },
        {
            "cwd": "/code",
            "command": [
                *("x", "--dsn", "${MY_S_DSN}${H}${MY_S_DSN_2}${D}"),
                *("PASSWORD: ${MY_S_PASSWORD}", "${MY_S_ARG}"),
            ],
            "env_file": ["my s.env"],
        },
        [
            hidden("/args", "MY_S_DSN and MY_S_DSN_2"),
            hidden("/args", "MY_S_PASSWORD"),
            hidden("/args", "MY_S_ARG"),
        ],
        {
            "MY_S_DSN": "x://u:abc@",
            "MY_S_DSN_2": "/y:z@w/",
            "MY_S_PASSWORD": "qwe",
            "MY_S_ARG": "-----BEGIN PRIVATE KEY-----",
        },
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_server_is_imported_with_all_that_is_to_be_said_of_it(case: str) -> None:
    field, server, made, remarks, secrets = WHOLE[case]
    (found,) = imported(servers_of({field: {"my s": server}}), AROUND)
    made = dict(made)
    timeouts = made.pop("timeouts", None)
    descriptor = {
        "name": "my s",
        "kind": "tool",
        "capabilities": [],
        "transport": {"type": "stdio", "protocol": "mcp", **made},
    }
    if timeouts is not None:
        descriptor["supervision"] = {"timeouts": timeouts}
    assert found.descriptor == descriptor
    assert list(map(str, found.remarks)) == [f"/{field}/my s{one}" for one in remarks]
    assert (found.name, found.enabled, found.secrets) == ("my s", True, secrets)


def test_all_places_of_a_file_are_read_in_one_order() -> None:
    one = {"a": {"command": "x"}}
    document = {
        "projects": {"/p": {"mcpServers": one, "disabledMcpServers": ["a", 3]}, "/q": 3, "/r~": {}},
        "mcp_servers": one,
        "context_servers": one,
        "mcp": {"mcpServers": one, "servers": one, **one, "excluded": ["b"], "allowed": []},
        "servers": one,
        "mcpServers": {**one, "b": 3},
    }
    assert servers_of(document) == [
        Servers("/mcpServers", {**one, "b": 3}, off=frozenset({"a", "b"})),
        Servers("/servers", one, "vscode"),
        Servers("/mcp/servers", one, "vscode"),
        Servers("/mcp/mcpServers", one, "vscode"),
        Servers("/mcp", one, "opencode"),
        Servers("/context_servers", one, "zed"),
        Servers("/mcp_servers", one, "codex"),
        Servers(
            "/projects/~1p/mcpServers",
            one,
            folder=PurePosixPath("/p"),
            off=frozenset({"a"}),
        ),
    ]


@pytest.mark.parametrize(
    ("given", "timeouts"),
    [
        (0, None),
        (-0.001, None),
        (0.001, {"invoke_s": 0.001}),
        (3600, {"invoke_s": 3600}),
        (3601, {"invoke_s": 3.601}),
        (3_599_999_999, {"invoke_s": 3_599_999.999}),
        (3_600_000_000, None),
    ],
)
def test_a_timeout_up_to_an_hour_is_in_seconds_and_a_longer_one_in_milliseconds(
    given: float, timeouts: Any
) -> None:
    (found,) = imported(
        servers_of({"mcpServers": {"s": {"command": "x", "timeout": given}}}), AROUND
    )
    assert found.descriptor is not None
    assert found.descriptor.get("supervision", {}).get("timeouts") == timeouts
    assert len(found.remarks) == (given != 0)


@pytest.mark.parametrize(
    ("words", "held"),
    [
        (["--debug", "run", "x"], 2),
        (["--host=x", "run", "x"], 2),
        (["--host", "x", "run", "x"], 3),
        (["-D", "container", "run", "x"], 3),
        (["run"], 1),
        (["container"], None),
        (["-D"], None),
        ([], None),
    ],
    ids=str,
)
def test_the_run_of_a_container_is_found_behind_its_options(
    words: list[str], held: int | None
) -> None:
    server = {"command": "docker", "args": words}
    (found,) = imported(servers_of({"mcpServers": {"s": server}}), AROUND)
    assert found.descriptor is not None
    flags = ["--init", "--rm", "--cidfile", "${STDIOD_CIDFILE}", "-i"]
    made = words if held is None else [*words[:held], *flags, *words[held:]]
    assert found.descriptor["transport"]["command"] == ["docker", *made]


def test_of_a_server_that_is_left_out_nothing_is_hidden_in_vain() -> None:
    server = {"url": "https://x", "headers": {"X Key": "sk-abc"}}
    (found,) = imported(servers_of({"mcpServers": {"s": server}}), AROUND)
    assert found.descriptor is None
    assert list(map(str, found.remarks)) == [
        "/mcpServers/s/headers/X Key: is not a header of one line"
    ]


@pytest.mark.parametrize(
    ("fields", "enabled"),
    [
        ({}, True),
        ({"enabled": True}, True),
        ({"enabled": "TRUE"}, True),
        ({"disabled": False}, True),
        ({"disabled": False, "enabled": True}, True),
        ({"disabled": "True"}, False),
        ({"enabled": "False"}, False),
        ({"disabled": True, "enabled": True}, False),
        ({"disabled": False, "enabled": False}, False),
    ],
    ids=str,
)
def test_a_server_is_on_unless_its_client_has_it_off(fields: dict[str, Any], enabled: bool) -> None:
    server = {"command": "x", **fields}
    (found,) = imported(servers_of({"mcpServers": {"s": server}}), AROUND)
    assert found.descriptor is not None
    assert found.enabled is enabled
    assert found.descriptor.get("enabled", True) is enabled
