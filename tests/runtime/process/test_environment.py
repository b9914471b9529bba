from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.runtime.process.environment import (
    HostVariables,
    UnsetVariableError,
    resolved,
)
from tests.factories import descriptor

HOST = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LANG": "C",
    "LC_ALL": "C",
    "XDG_RUNTIME_DIR": "/run/me",
    "TZ": "UTC",
    "AWS_SECRET": "hush",
    "LD_PRELOAD": "evil.so",
    "PATHS": "not PATH",
}


def environment(folder: Path, host: dict[str, str] = HOST, **transport: Any) -> dict[str, str]:
    made = descriptor(folder, transport.pop("command", ["x"]), transport=transport)
    return resolved(made, host, "m#1")[1]


def test_only_the_allowed_variables_and_the_instances_name_are_passed_on(tmp_path: Path) -> None:
    allowed = {
        name: HOST[name] for name in HOST if name not in ("AWS_SECRET", "LD_PRELOAD", "PATHS")
    }
    assert environment(tmp_path) == {**allowed, "STDIOD_INSTANCE": "m#1"}


def test_pass_env_passes_on_what_it_names_and_nothing_that_is_not_set(tmp_path: Path) -> None:
    passed = environment(tmp_path, pass_env=["AWS_SECRET", "NOT_THERE"])
    assert passed["AWS_SECRET"] == "hush"
    assert "NOT_THERE" not in passed
    assert "LD_PRELOAD" not in passed


def test_env_sets_variables_and_may_refer_to_the_daemons_own(tmp_path: Path) -> None:
    env = {"A": "x${HOME}y${TZ}", "B": "$HOME ${} $ {HOME}", "PATH": "/opt:${PATH}"}
    passed = environment(tmp_path, env=env)
    assert (passed["A"], passed["B"], passed["PATH"]) == (
        "x/home/meyUTC",
        "$HOME ${} $ {HOME}",
        "/opt:/bin",
    )


def test_what_a_reference_brings_in_is_not_expanded_again(tmp_path: Path) -> None:
    assert environment(tmp_path, {"A": "${B}", "B": "b"}, env={"C": "${A}"})["C"] == "${B}"


def test_a_reference_to_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsetVariableError, match=r"transport\.env\.KEY uses \$\{GONE\}"):
        environment(tmp_path, env={"KEY": "${GONE}"})


def test_env_wins_over_pass_env_but_not_over_the_instances_name(tmp_path: Path) -> None:
    env = {"AWS_SECRET": "mine", "STDIOD_INSTANCE": "other"}
    passed = environment(tmp_path, pass_env=["AWS_SECRET"], env=env)
    assert passed["AWS_SECRET"] == "mine"
    assert passed["STDIOD_INSTANCE"] == "m#1"


PASSED_TO_ALL = {
    *("http_proxy", "HTTPS_PROXY", "no_proxy", "ALL_PROXY", "ftp_proxy"),
    *("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT"),
}
PASSED_TO_FETCHERS = {
    *("npm_config_registry", "NPM_CONFIG_CACHE", "npm_config_fetch_timeout", "UV_INDEX_URL"),
    *("UV_INDEX", "UV_PYTHON_INSTALL_MIRROR", "PIP_INDEX_URL", "DOCKER_HOST", "VOLTA_HOME"),
}
PASSED_TO_NONE = {
    *("npm_config_package", "npm_config_call", "npm_config__auth", "npm_config_prefix"),
    *("NPM_TOKEN", "UV_PUBLISH_TOKEN", "UV_INDEX_CORP_PASSWORD", "UV_INDEX_CORP_USERNAME"),
    *("UV_KEYRING_PROVIDER", "UV_PYTHON_DOWNLOADS_AUTH", "npm_config_//r/:_authToken"),
    *("DOCKER_AUTH_CONFIG", "REGISTRY_AUTH_FILE", "NODE_OPTIONS", "VIRTUAL_ENV", "UV_PROJECT"),
    *("npm_config_fetch_key", "MY_HTTP_PROXY", "UV_HTTP_SECRET"),
}


@pytest.mark.parametrize(
    ("command", "fetches"),
    [
        (["npx", "-y", "x"], True),
        (["/opt/bin/uvx", "x"], True),
        (["docker", "run", "x"], True),
        (["sh", "-c", "exec npx x"], True),
        (["node", "x.js"], False),
    ],
)
def test_proxies_and_certificates_go_to_all_package_tools_to_those_that_fetch(
    tmp_path: Path, command: list[str], fetches: bool
) -> None:
    host = dict.fromkeys(PASSED_TO_ALL | PASSED_TO_FETCHERS | PASSED_TO_NONE, "x")
    passed = environment(tmp_path, host, command=command).keys() - {"STDIOD_INSTANCE"}
    assert passed == PASSED_TO_ALL | (PASSED_TO_FETCHERS if fetches else set())


EXPANDED = {
    "${A}/x": "a/x",
    "${UNSET:-b}": "b",
    "${EMPTY:-b}": "b",
    "${EMPTY}": "",
    "${EMPTY:-}": "",
    "${UNSET:-}": "",
    "${A:-b}": "a",
    "${UNSET:-a b/$c:-d}": "a b/$c:-d",
    "$${A}": "${A}",
    "$$${A}": "$${A}",
    "$A $ {A} ${} ${1X} ${A": "$A $ {A} ${} ${1X} ${A",
    "${A${A}": "${Aa",
}


@pytest.mark.parametrize(("template", "value"), EXPANDED.items())
def test_with_expand_command_folder_and_env_have_variables_with_defaults(
    tmp_path: Path, template: str, value: str
) -> None:
    host = {"A": "a", "EMPTY": ""}
    transport = {"expand": True, "cwd": f"x{template}", "env": {"E": template}}
    made = descriptor(tmp_path, ["x", template], transport=transport)
    found, given = resolved(made, host, "m#1")
    assert found.transport.command == ("x", value)
    assert (found.transport.cwd, given["E"]) == (f"x{value}", value)
    plain = descriptor(tmp_path, ["sh", "-c", template], transport={"cwd": template})
    assert resolved(plain, host, "m#1")[0] == plain


@pytest.mark.parametrize(
    ("field", "transport"),
    [
        ("transport.command[1]", {"command": ["x", "${GONE}"]}),
        ("transport.cwd", {"cwd": "${GONE}"}),
        ("transport.env_file", {"env_file": "${GONE}"}),
        ("transport.env.E", {"env": {"E": "${GONE}"}}),
    ],
)
def test_a_variable_without_a_value_and_a_default_is_named_with_its_field(
    tmp_path: Path, field: str, transport: dict[str, Any]
) -> None:
    with pytest.raises(UnsetVariableError) as raised:
        environment(tmp_path, expand=True, **transport)
    assert str(raised.value) == f"{field} uses ${{GONE}}, which the daemon has not set"


def test_env_files_stand_before_and_after_pass_env_and_are_seen_by_references(
    tmp_path: Path,
) -> None:
    names = ("PATH", "BOTH", "PASSED", "FILE", "ENV")
    (tmp_path / "all").write_text("".join(f"{name}=all\n" for name in names))
    (tmp_path / "one").write_text("PASSED=one\nFILE=one\nENV=one\n")
    (tmp_path / "two").write_text("FILE=two\nENV=two\nBOTH=two\n")
    host = HostVariables(dict.fromkeys(names, "host"), [tmp_path / "all"])
    passed = environment(
        tmp_path,
        host,
        pass_env=["PASSED", "BOTH?", "ENV"],
        env_file=["one", "two"],
        env={"ENV": "${FILE}${BOTH}${PATH}"},
    )
    del passed["STDIOD_INSTANCE"]
    assert passed == {
        "PATH": "all",
        "PASSED": "one",
        "BOTH": "two",
        "FILE": "two",
        "ENV": "twotwoall",
    }


def _big(path: Path) -> None:
    path.write_bytes(b"A=b\n" * 2_500_000)


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "No such file": lambda path: None,
    "is a dangling link": lambda path: path.symlink_to("nowhere"),
    "Is a directory": Path.mkdir,
    "not a regular file": os.mkfifo,
    "is not a regular file": lambda path: path.symlink_to("/dev/zero"),
    "is larger than the 1048576 bytes": _big,
    "line 2 is not NAME=value": lambda path: path.write_text("A=1\nhush\n"),
}


@pytest.mark.parametrize(("words", "make"), BAD_FILES.items())
def test_an_env_file_that_cannot_be_used_is_named_with_its_field_and_without_its_content(
    tmp_path: Path, words: str, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "secrets")
    for host, transport, field in (
        (HOST, {"env_file": "secrets"}, "transport.env_file"),
        (HostVariables(HOST, [tmp_path / "secrets"]), {}, "env_file of the configuration"),
    ):
        with pytest.raises(UnsetVariableError) as raised:
            environment(tmp_path, host, **transport)
        assert str(raised.value).startswith(f"{field} names {tmp_path}/secrets, ")
        assert words in str(raised.value)
        assert "hush" not in str(raised.value)
