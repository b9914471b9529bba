"""What a client's file of MCP servers comes to: descriptors, env files, remarks."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest

from protocol.descriptor.loading import FETCH_S, parse_descriptor
from supervisor.cli.mcp_servers_file import Imported, Surroundings, imported, servers_of

PROJECT, HOME = PurePosixPath("/code/project"), PurePosixPath("/home/ada")
AROUND = Surroundings(PROJECT, HOME, lambda path: path == "/code/project/my srv")
HELD = ["--init", "--rm", "--cidfile", "${STDIOD_CIDFILE}"]


def all_of(document: Any) -> list[Imported]:
    found = list(imported(servers_of(document), AROUND))
    for one in found:
        if one.descriptor is not None:
            parse_descriptor(json.dumps(one.descriptor).encode(), "/s.json")
            said = json.dumps([one.descriptor, [str(remark) for remark in one.remarks]])
            assert not [secret for secret in one.secrets.values() if secret in said]
    return found


def one(server: Any, name: str = "s", field: str = "mcpServers") -> Imported:
    (found,) = all_of({field: {name: server}})
    return found


def transport(server: Any, field: str = "mcpServers") -> dict[str, Any]:
    descriptor = one({"command": "x", **server}, field=field).descriptor
    assert descriptor is not None
    found: dict[str, Any] = descriptor["transport"]
    return found


@pytest.mark.parametrize(
    ("document", "at"),
    [
        ({"mcpServers": {"a": {}}}, ["/mcpServers"]),
        ({"servers": {"a": {}}, "inputs": []}, ["/servers"]),
        ({"mcp": {"servers": {"a": {}}}, "editor.fontSize": 12}, ["/mcp/servers"]),
        ({"mcp": {"a": {"type": "local", "command": ["x"]}}, "$schema": "y"}, ["/mcp"]),
        ({"context_servers": {"a": {}}, "theme": "One"}, ["/context_servers"]),
        ({"mcp_servers": {"a": {}}, "model": "x"}, ["/mcp_servers"]),
        ({"a": {"command": "x"}}, [""]),
        ({"a": {"command": "x"}, "b": {"serverUrl": "https://x"}}, [""]),
        (
            {"mcpServers": {"a": {}}, "mcp": {"allowed": ["a"], "serverCommand": "x"}},
            ["/mcpServers"],
        ),
        (
            {"mcpServers": {}, "projects": {"/a": {"mcpServers": {"a": {}}}, "/b": {}, "/c": 3}},
            ["/mcpServers", "/projects/~1a/mcpServers"],
        ),
        ({}, []),
        ([], []),
        (None, []),
        ({"mcpServers": 3}, []),
        ({"mcp": 3}, []),
        ({"name": "a package", "scripts": {"test": "x"}}, []),
    ],
    ids=str,
)
def test_the_servers_of_each_client_are_found_by_their_shape(document: Any, at: list[str]) -> None:
    assert [place.at for place in servers_of(document)] == at


def test_a_server_becomes_a_descriptor_that_runs_in_the_project() -> None:
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
            "cwd": "/code/project",
            "command": ["node", "a b.js", "/code/project/x"],
            "env": {"LEVEL": "1"},
        },
    }


@pytest.mark.parametrize(
    ("field", "server", "command"),
    [
        ("mcpServers", {"command": "./srv"}, ["/code/project/srv"]),
        ("mcpServers", {"command": "../bin/x", "cwd": "sub"}, ["/code/project/bin/x"]),
        (
            "mcpServers",
            {"command": "~/x", "args": ["~/y", "--d=~/z", "a~/b"]},
            ["/home/ada/x", "/home/ada/y", "--d=/home/ada/z", "a~/b"],
        ),
        (
            "mcpServers",
            {"command": "python3 srv.py --x 'a b'"},
            ["python3", "srv.py", "--x", "a b"],
        ),
        ("mcpServers", {"command": "npx -y", "args": ["p"]}, ["npx", "-y", "p"]),
        ("mcpServers", {"command": "./my srv"}, ["/code/project/my srv"]),
        ("mcpServers", {"command": "${workspaceFolder}/my srv"}, ["/code/project/my srv"]),
        ("mcpServers", {"command": "x", "args": [8080, True]}, ["x", "8080", "true"]),
        ("mcpServers", {"command": "${BIN:-x}/y"}, ["${BIN:-x}/y"]),
        (
            "mcpServers",
            {"command": "x", "args": ["${env:A}", "${B:-c d}"]},
            ["x", "${A}", "${B:-c d}"],
        ),
        ("servers", {"command": "x", "args": ["${input:my-key}"]}, ["x", "${MY_KEY}"]),
        ("mcp", {"type": "local", "command": ["x", "y"]}, ["x", "y"]),
        ("mcp", {"type": "local", "command": ["x", "{env:A}"]}, ["x", "${A}"]),
        (
            "context_servers",
            {"command": {"path": "x", "args": ["y"], "env": {"A": "b"}}},
            ["x", "y"],
        ),
        ("mcpServers", {"cmd": "x"}, ["x"]),
    ],
    ids=str,
)
def test_a_command_is_the_same_program_wherever_the_daemon_runs(
    field: str, server: Any, command: list[str]
) -> None:
    imported = one(server, field=field)
    assert imported.descriptor is not None
    assert imported.descriptor["transport"]["command"] == command
    assert not [one for one in imported.remarks if "is not carried over" in one.message]


@pytest.mark.parametrize(
    ("name", "value", "field", "kept"),
    [
        ("A", "${B}", "env", {"A": "${B}"}),
        ("A", "${env:B}/x", "env", {"A": "${B}/x"}),
        ("A", "${B:-x}", "env", {"A": "${B:-x}"}),
        ("A", "${A}", "pass_env", ["A"]),
        ("A", "${input:token}", "env", {"A": "${TOKEN}"}),
        ("A", "${input:a}", "pass_env", ["A"]),
        ("A", "${userHome}/x", "env", {"A": "/home/ada/x"}),
        ("A", 3, "env", {"A": "3"}),
        ("A", True, "env", {"A": "true"}),
        ("A", None, "env", None),
        ("GITHUB_TOKEN", "${MY_TOKEN}", "env", {"GITHUB_TOKEN": "${MY_TOKEN}"}),
        ("GITHUB_TOKEN", "", "env", {"GITHUB_TOKEN": ""}),
        ("USE_TOKEN", "true", "env", {"USE_TOKEN": "true"}),
        ("AUTHOR", "ada", "env", {"AUTHOR": "ada"}),
        ("HEADER", "Bearer ${T}", "env", {"HEADER": "Bearer ${T}"}),
        ("KEY-1", "abc", "env", {"KEY-1": "${KEY_1}"}),
        ("API_KEY", "${API_KEY:-dev}", "env", {"API_KEY": "${API_KEY:-dev}"}),
        ("MAX_TOKENS", "${MAX_TOKENS:-4096}", "env", {"MAX_TOKENS": "${MAX_TOKENS:-4096}"}),
        ("A", "redis://:${PASSWORD:-dev}@db", "env", {"A": "redis://:${PASSWORD:-dev}@db"}),
        ("A", "x://u:abc@${H:-db}", "env", {"A": "${A}${H:-db}"}),
        ("A", "x://u:abc@${H:-db}/${D}/x", "env", {"A": "${A}${H:-db}/${D}${A_2}"}),
        ("A", "x://${U}:abc@db", "env", {"A": "${A}${U}${A_2}"}),
    ],
)
def test_a_variable_stays_one(name: str, value: Any, field: str, kept: Any) -> None:
    assert transport({"env": {name: value}}).get(field) == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, "abc")
            for name in ("GITHUB_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD", "KEY", "PASSWD")
        ),
        *(
            (name, "abc")
            for name in ("CLIENT_SECRET", "AUTH", "X_AUTHORIZATION", "AWS_ACCESS_KEY_ID")
        ),
        ("A", "-----BEGIN RSA PRIVATE KEY-----\nMIIE=\n-----END RSA PRIVATE KEY-----"),
        ("A", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"),
        *(
            ("A", f"{head}0123456789abcdefghijABCDEFGHIJ012345")
            for head in (
                "sk-",
                "sk-ant-",
                "ghp_",
                "github_pat_",
                "glpat-",
                "xoxb-",
                "AKIA",
                "AIza",
                "npm_",
                "hf_",
            )
        ),
        ("A", "Bearer abc"),
        ("A", "Authorization: Basic YWRhOmFiYw=="),
        ("A", "postgres://ada:abc@db/x"),
        ("A", "redis://:abc@db"),
        ("A", "https://x/y?api_key=abc"),
    ],
)
def test_a_secret_goes_to_the_env_file(name: str, value: str) -> None:
    found = one({"command": "x", "env": {name: value}})
    assert found.secrets == {name: value}
    assert found.descriptor is not None
    assert found.descriptor["transport"]["env_file"] == ["s.env"]
    (remark,) = found.remarks
    words = f"it is {name} in s.env, not in the descriptor"
    assert str(remark) == f"/mcpServers/s/env/{name}: looks like a secret: {words}"


@pytest.mark.parametrize(
    ("args", "command", "secret"),
    [
        (["--api-key", "abc"], ["--api-key", "${S_API_KEY}"], "abc"),
        (["--token=abc"], ["--token=${S_TOKEN}"], "abc"),
        (["sk-abc"], ["${S_ARG}"], "sk-abc"),
        (
            ["-H", "Authorization: Bearer abc"],
            ["-H", "Authorization: ${S_AUTHORIZATION}"],
            "Bearer abc",
        ),
        (["--header", "X-Api-Key:abc"], ["--header", "X-Api-Key:${S_X_API_KEY}"], "abc"),
        (["-HCookie: Bearer abc"], ["${S_ARG}"], "-HCookie: Bearer abc"),
        (["--env=A_TOKEN=abc"], ["--env=A_TOKEN=${S_A_TOKEN}"], "abc"),
        (["--header=X-Api-Key: a=b"], ["--header=X-Api-Key: ${S_X_API_KEY}"], "a=b"),
        (["-e", "A_TOKEN=a:b"], ["-e", "A_TOKEN=${S_A_TOKEN}"], "a:b"),
        (["--token", "a=b:c"], ["--token", "${S_TOKEN}"], "a=b:c"),
        (["-----BEGIN PRIVATE KEY-----"], ["${S_ARG}"], "-----BEGIN PRIVATE KEY-----"),
        (["GITHUB_PAT=abc"], ["GITHUB_PAT=${S_GITHUB_PAT}"], "abc"),
        (["DB_PASSWORD=abc"], ["DB_PASSWORD=${S_DB_PASSWORD}"], "abc"),
        (["postgres://ada:abc@db/x"], ["${S_URL}"], "postgres://ada:abc@db/x"),
        (["--author", "abc"], ["--author", "abc"], None),
        (["--token", "--verbose"], ["--token", "--verbose"], None),
        (["--token", "${T}"], ["--token", "${T}"], None),
        (["--token", "${T:-none}"], ["--token", "${T:-none}"], None),
        (["--key=${K:-dev}", "K_KEY=${K:-dev}"], ["--key=${K:-dev}", "K_KEY=${K:-dev}"], None),
        (["--dsn", "x://u:abc@${H:-db}"], ["--dsn", "${S_DSN}${H:-db}"], "x://u:abc@"),
    ],
)
def test_a_secret_among_the_arguments_becomes_a_variable(
    args: list[str], command: list[str], secret: str | None
) -> None:
    found = one({"command": "x", "args": args})
    assert found.descriptor is not None
    assert found.descriptor["transport"]["command"] == ["x", *command]
    assert list(found.secrets.values()) == ([secret] if secret else [])


@pytest.mark.parametrize(
    ("command", "args", "env", "secrets"),
    [
        ("A_TOKEN=ghp_abc x y", [], {}, {"A_TOKEN": "ghp_abc"}),
        ("A_TOKEN=ghp_abc", ["x", "y"], {}, {"A_TOKEN": "ghp_abc"}),
        ("A=1 B='2 3' x y", [], {"A": "1", "B": "2 3"}, {}),
        ("A=${B:-1} KEY='a b' x", ["y"], {"A": "${B:-1}"}, {"KEY": "a b"}),
    ],
)
def test_variables_before_a_program_are_its_environment(
    command: str, args: list[str], env: dict[str, str], secrets: dict[str, str]
) -> None:
    found = one({"command": command, "args": args})
    assert found.descriptor is not None
    assert found.descriptor["transport"]["command"] == ["x", "y"]
    assert found.descriptor["transport"].get("env", {}) == env
    assert found.secrets == secrets


def test_two_secrets_of_one_name_and_a_variable_that_has_it_keep_apart() -> None:
    found = one({"command": "x", "args": ["--key=abc", "--key=def"], "env": {"S_KEY": "${A}"}})
    assert found.secrets == {"S_KEY_2": "abc", "S_KEY_3": "def"}


@pytest.mark.parametrize(
    ("server", "words", "secrets"),
    [
        ({"url": "https://x/mcp"}, ["https://x/mcp", "--enable-proxy"], {}),
        ({"httpUrl": "https://x"}, ["https://x", "--enable-proxy"], {}),
        ({"serverUrl": "https://x"}, ["https://x", "--enable-proxy"], {}),
        (
            {"type": "sse", "url": "https://x"},
            ["https://x", "--enable-proxy", "--transport", "sse-only"],
            {},
        ),
        (
            {"type": "streamable-http", "url": "https://x"},
            ["https://x", "--enable-proxy", "--transport", "http-only"],
            {},
        ),
        ({"url": "http://localhost:1/x"}, ["http://localhost:1/x", "--enable-proxy"], {}),
        ({"url": "http://10.0.0.1/x"}, ["http://10.0.0.1/x", "--enable-proxy", "--allow-http"], {}),
        (
            {"url": "https://x", "headers": {"X-Mode": "a b"}},
            ["https://x", "--enable-proxy", "--header", "X-Mode:a b"],
            {},
        ),
        (
            {"url": "https://x", "headers": {"Authorization": "Bearer abc"}},
            ["https://x", "--enable-proxy", "--header", "Authorization:$${S_AUTHORIZATION}"],
            {"S_AUTHORIZATION": "Bearer abc"},
        ),
        (
            {"url": "https://x", "headers": {"Authorization": "Bearer ${env:T}"}},
            ["https://x", "--enable-proxy", "--header", "Authorization:$${S_AUTHORIZATION}"],
            {},
        ),
        (
            {"url": "https://x", "headers": {"Authorization": "Bearer ${T:-public}"}},
            ["https://x", "--enable-proxy", "--header", "Authorization:$${S_AUTHORIZATION}"],
            {},
        ),
        (
            {"url": "https://ada:p%40ss@x/y"},
            ["https://x/y", "--enable-proxy", "--header", "Authorization:$${S_AUTHORIZATION}"],
            {"S_AUTHORIZATION": "Basic YWRhOnBAc3M="},
        ),
        (
            {"url": "https://x/y?api_key=abc"},
            ["${S_URL}", "--enable-proxy"],
            {"S_URL": "https://x/y?api_key=abc"},
        ),
        ({"url": "${BASE:-https://x}/mcp"}, ["${BASE:-https://x}/mcp", "--enable-proxy"], {}),
        (
            {"url": "https://x", "env_http_headers": {"X-Key": "T"}},
            ["https://x", "--enable-proxy", "--header", "X-Key:$${S_X_KEY}"],
            {},
        ),
        (
            {"url": "https://x", "bearer_token_env_var": "T"},
            ["https://x", "--enable-proxy", "--header", "Authorization:$${S_AUTHORIZATION}"],
            {},
        ),
    ],
    ids=str,
)
def test_a_remote_server_is_bridged(server: Any, words: list[str], secrets: dict[str, str]) -> None:
    found = one(server)
    assert found.descriptor is not None
    assert found.descriptor["transport"]["command"] == ["npx", "-y", "mcp-remote", *words]
    assert found.secrets == secrets
    assert "npx -y mcp-remote" in " ".join(map(str, found.remarks))


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["run", "-i", "--rm", "a/b"], ["run", *HELD[:1], *HELD[2:], "-i", "--rm", "a/b"]),
        (["run", "-it", "b", "-t"], ["run", *HELD, "-i", "b", "-t"]),
        (["run", "-d", "b"], ["run", *HELD, "-i", "b"]),
        (["run", "-i", "--restart", "always", "--cidfile=/x", "b"], ["run", *HELD, "-i", "b"]),
        (["run", "-i", "--init=false", "b"], ["run", *HELD, "-i", "--init=false", "b"]),
        (
            ["-c", "far", "container", "run", "-i", "b"],
            ["-c", "far", "container", "run", *HELD, "-i", "b"],
        ),
        (
            ["run", "-i", "-e", "TOKEN=abc", "-eA=1", "--env=B", "b"],
            ["run", *HELD, "-i", "-e", "TOKEN", "-e", "A=1", "--env", "B", "b"],
        ),
        (
            ["run", "-i", "-v", "~/x:/x", "b", "-e", "c"],
            ["run", *HELD, "-i", "-v", "/home/ada/x:/x", "b", "-e", "c"],
        ),
        (["exec", "-it", "b"], ["exec", "-it", "b"]),
    ],
)
@pytest.mark.parametrize("program", ["docker", "/opt/bin/podman"])
def test_a_container_is_held_by_its_id_and_has_no_terminal(
    program: str, words: list[str], made: list[str]
) -> None:
    found = transport({"command": program, "args": words})
    assert found["command"] == [program, *made]
    if "TOKEN=abc" in words:
        assert (found["env_file"], found["pass_env"]) == (["s.env"], ["B"])


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (3, ": is a number, must be an object"),
        ({"type": "ws", "url": "wss://x"}, '/type: is "ws", which stdiod has no bridge for'),
        ({"url": "unix:///x"}, "/url: must be an address such as"),
        ({"url": 3}, "/url: must be an address such as"),
        ({"url": "https://x", "headers": {"A": "b\nc"}}, "/headers/A: is not a header of one line"),
        ({"url": "https://x", "env_http_headers": "T"}, "/env_http_headers: is a string"),
        ({"url": "https://x", "env_http_headers": {"A": 3}}, '/headers/A: has "${3...}"'),
        ({}, "/command: is null, must be the name of a program"),
        ({"command": []}, "/command: is null"),
        ({"command": "ghp_abc", "args": ["x"]}, "/command: looks like a secret, not like"),
        ({"command": "TOKEN=abc"}, "/command: names no program"),
        ({"command": "a && b"}, "/command: is a line for a shell"),
        ({"command": "a 'b"}, "/command: cannot be split into words"),
        ({"command": "x", "args": "y"}, "/args: must be an array"),
        ({"command": "x", "args": [None]}, "/args: must be an array"),
        ({"command": "x", "env": "y"}, "/env: is a string, must be an object"),
        ({"command": "x", "env": {"A": {}}}, "/env/A: is no variable with a value"),
        ({"command": "x", "env": {"A": "${command:x}"}}, '/env/A: has "${command...}"'),
        ({"command": "x", "cwd": 3}, "/cwd: is a number, must be the path of a folder"),
        ({"command": "x", "args": ["${X:-${Y}}"]}, "/args/0: has a variable whose default"),
        ({"command": "x", "env": {"A": "${X:-${Y}}"}}, "/env/A: has a variable whose default"),
        ({"command": "x", "args": ["${command:a}"]}, '/args/0: has "${command...}", which'),
        ({"command": "x", "args": ["${T:-sk-abc}"]}, "/args: holds a secret as the default"),
        ({"command": "x", "args": ["a\0b"]}, "/args/0: holds a NUL"),
        ({"command": "stdiod", "args": ["mcp"]}, ": is not a server to import: it is stdiod"),
    ],
    ids=str,
)
def test_what_cannot_be_carried_over_is_left_out_with_a_word(server: Any, words: str) -> None:
    found = one(server)
    assert found.descriptor is None
    assert str(found.remarks[-1]).startswith(f"/mcpServers/s{words}")
    assert found.enabled is ("stdiod" not in str(server))


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"autoApprove": []}, "/autoApprove: is not carried over"),
        ({"disabledTools": []}, "/disabledTools: is not carried over; all its tools can be called"),
        ({"envFile": 3}, "/envFile: must be the path of a file"),
        ({"environment": {"A_KEY": "abc"}}, "/environment/A_KEY: looks like a secret"),
        (
            {"env": {"A": "${input:x}"}},
            "/env/A: the client asks for ${input:x} when it",
        ),
        (
            {"command": "npx", "args": ["x"]},
            f"/command: may download its program first, so by default it has {FETCH_S:g} s",
        ),
        ({"command": "docker", "args": ["ps"]}, "/command: is no `run`"),
        ({"command": "python3 x.py"}, "/command: is split at its blanks"),
        ({"url": "https://x", "type": "http"}, "/command: is not carried over: the server has a"),
        ({"url": "https://x"}, "/url: is not carried over: the server has a command"),
        (
            {"command": "sudo", "args": ["docker", "run", "b"]},
            "/command: runs a container, which may be left over",
        ),
        (
            {"command": "sh", "args": ["-c", "podman --log-level=x run b"]},
            "/command: runs a container, which may be left over",
        ),
        ({"timeout": "60"}, "/timeout: is no number above 0"),
        ({"timeout": True}, "/timeout: is no number above 0"),
        ({"timeout": 90}, "/timeout: is taken for seconds: invoke_s is 90"),
        ({"timeout": 90000}, "/timeout: is taken for milliseconds: invoke_s is 90"),
        ({"env": {"A_KEY": "<your key>"}}, "/env/A_KEY: looks like a secret"),
    ],
    ids=str,
)
def test_whatever_is_lost_or_changed_is_said(server: Any, words: str) -> None:
    assert str(one({"command": "x", **server}).remarks[0]).startswith(f"/mcpServers/s{words}")


@pytest.mark.parametrize(
    ("field", "server", "timeouts"),
    [
        ("mcpServers", {"timeout": 3600}, {"invoke_s": 3600}),
        ("mcpServers", {"timeout": 600_000}, {"invoke_s": 600}),
        ("context_servers", {"timeout": 5000}, {"invoke_s": 5000}),
        ("mcp", {"timeout": 5000, "type": "local"}, {"invoke_s": 5}),
        ("mcp", {"timeout": 900, "type": "local"}, {"invoke_s": 0.9}),
        ("mcp_servers", {"tool_timeout_sec": 90.5}, {"invoke_s": 90.5}),
        ("mcp_servers", {"startup_timeout_sec": 20}, {"start_s": 20}),
        ("mcp_servers", {"startup_timeout_sec": 10, "command": "npx"}, {"start_s": FETCH_S}),
        ("mcp_servers", {"startup_timeout_sec": 400, "command": "uvx"}, {"start_s": 400}),
        ("mcp_servers", {"startup_timeout_ms": 400_000}, {"start_s": 400}),
    ],
)
def test_a_timeout_has_the_unit_of_its_client(field: str, server: Any, timeouts: Any) -> None:
    found = one({"command": "x", **server}, field=field).descriptor
    assert found is not None
    assert found["supervision"] == {"timeouts": timeouts}


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"s": {"command": "x", "disabled": True}}},
        {"mcpServers": {"s": {"command": "x", "disabled": "true"}}},
        {"mcp_servers": {"s": {"command": "x", "enabled": False}}},
        {"mcp": {"s": {"type": "local", "command": ["x"], "enabled": False}}},
        {"mcpServers": {"s": {"command": "x"}}, "mcp": {"excluded": ["s"]}},
        {"mcpServers": {"s": {"command": "x"}}, "mcp": {"allowed": ["t"]}},
        {"projects": {"/p": {"mcpServers": {"s": {"command": "x"}}, "disabledMcpServers": ["s"]}}},
    ],
    ids=str,
)
def test_a_disabled_server_stays_off(document: Any) -> None:
    (found,) = all_of(document)
    assert found.enabled is False
    assert found.descriptor is not None
    assert found.descriptor["enabled"] is False


def test_a_second_of_a_name_has_none_that_a_later_one_has() -> None:
    of = {"mcpServers": {"db": {"command": "x"}}}
    document = {**of, "projects": {"/p": of, "/q": {"mcpServers": {"db-2": {"command": "x"}}}}}
    assert [one.name for one in all_of(document)] == ["db", "db-3", "db-2"]


def test_servers_of_projects_run_in_them_and_keep_apart() -> None:
    of = {"mcpServers": {"db": {"command": "./x"}}}
    document = {**of, "projects": {"/p/one": of, "/p/two": of, "/q/two": of}}
    found = [one.descriptor for one in all_of(document) if one.descriptor]
    assert [one["name"] for one in found] == ["db", "db-2", "db-3", "db-4"]
    assert [one["transport"]["cwd"] for one in found] == [
        str(PROJECT),
        "/p/one",
        "/p/two",
        "/q/two",
    ]
    assert found[1]["transport"]["command"] == ["/p/one/x"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a/b", "a-b"),
        ("", "server"),
        ("supervisor", "supervisor-server"),
        ("a\nb", "a-b"),
        ("\u00fc" * 200, "\u00fc" * 100),
    ],
)
def test_a_name_that_cannot_be_one_is_changed_and_that_is_said(given: str, name: str) -> None:
    found = one({"command": "x"}, given)
    assert found.name == name
    assert "is called" in str(found.remarks[0])


def test_a_name_that_is_made_up_is_none_that_another_server_has() -> None:
    names = ("a/b", "a-b", "a\nb", "a-b-2")
    found = all_of({"mcpServers": {name: {"command": "x"} for name in names}})
    assert [one.name for one in found] == ["a-b-3", "a-b", "a-b-4", "a-b-2"]


@pytest.mark.parametrize("name", [".", "..", ".hidden", "../x"])
def test_a_name_that_begins_with_a_dot_is_refused(name: str) -> None:
    found = one({"command": "x"}, name)
    assert found.descriptor is None
    assert "begins with a dot" in str(found.remarks[-1])


def test_variables_that_are_passed_on_and_env_files_are_named() -> None:
    server = {"command": "docker", "args": ["run", "-e", "A", "-e", "B=${C}", "x"]}
    found = transport(
        {**server, "env": {"KEY": "abc"}, "env_vars": ["G"], "envFile": "~/.env"},
    )
    assert found["env_file"] == ["/home/ada/.env", "s.env"]
    assert found["pass_env"] == ["G?", "A"]
    assert found["env"] == {"B": "${C}"}
