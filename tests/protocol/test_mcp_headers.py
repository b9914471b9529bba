"""The headers of MCP over HTTP, against what the body says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.jsonrpc import RpcError
from protocol.mcp_server.client import McpRequestError, check_headers, check_param_headers

GOOD = {
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "echo",
}


def problem_of(check: Callable[..., None], *args: Any) -> RpcError | None:
    try:
        check(*args)
    except McpRequestError as refusal:
        return refusal.error
    return None


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        ({}, None),
        ({"mcp-method": " tools/call\t"}, None),
        ({"mcp-name": "=?base64?ZWNobw==?="}, None),
        ({"mcp-method": None}, "mcp-method"),
        ({"mcp-method": "Tools/Call"}, "mcp-method"),
        ({"mcp-method": "tools/call, tools/call"}, "mcp-method"),
        ({"mcp-name": None}, "mcp-name"),
        ({"mcp-name": ""}, "mcp-name"),
        ({"mcp-name": "ECHO"}, "mcp-name"),
        ({"mcp-name": "=?base64?ZWNobw=?="}, "mcp-name"),
        ({"mcp-name": "=?base64?ZWNobx==?="}, "mcp-name"),
        ({"mcp-name": "=?base64?/w==?="}, "mcp-name"),
        ({"mcp-protocol-version": None}, "mcp-protocol-version"),
        ({"mcp-protocol-version": "2025-11-25"}, "mcp-protocol-version"),
    ],
)
def test_headers_say_what_the_body_says(other: dict[str, Any], wrong: str | None) -> None:
    headers = {name: value for name, value in {**GOOD, **other}.items() if value is not None}
    problem = problem_of(check_headers, headers, "tools/call", {"name": "echo"}, "2026-07-28")
    if wrong is None:
        assert problem is None
    else:
        assert problem is not None
        assert (problem.code, wrong in problem.message) == (-32020, True)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("prompts/get", {"name": "p"}, "p"),
        ("resources/read", {"uri": "note://é"}, "=?base64?bm90ZTovL8Op?="),
        ("tools/list", {}, None),
    ],
)
def test_a_name_is_said_of_what_has_one(
    method: str, params: dict[str, Any], name: str | None
) -> None:
    headers = {**GOOD, "mcp-method": method}
    del headers["mcp-name"]
    without = problem_of(check_headers, headers, method, params, "2026-07-28")
    assert (without is None) is (name is None)
    if name is not None:
        assert (
            problem_of(check_headers, {**headers, "mcp-name": name}, method, params, "2026-07-28")
            is None
        )


def schema(kind: str) -> dict[str, Any]:
    marked = {"type": kind, "x-mcp-header": "Region"}
    inner = {"type": "object", "properties": {"b": marked}}
    return {"type": "object", "properties": {"a": inner, "c": {"type": "string"}}}


@pytest.mark.parametrize(
    ("kind", "value", "said", "fits"),
    [
        ("string", "eu", "eu", True),
        ("string", "eu", " eu ", True),
        ("string", "eu", "EU", False),
        ("string", "eu", None, False),
        ("string", None, None, True),
        ("string", None, "eu", False),
        ("string", "é", "=?base64?w6k=?=", True),
        ("string", "é", "=?base64?w6k?=", False),
        ("string", "=?base64?w6k=?=", "=?base64?w6k=?=", False),
        ("integer", 5, "5", True),
        ("integer", 5, "5.0", True),
        ("integer", 5, "05", True),
        ("integer", 5, "6", False),
        ("integer", 10**500, None, True),
        ("boolean", True, "true", True),
        ("boolean", True, "1", False),
        ("boolean", True, "True", False),
        ("number", 0.5, "0.5", True),
    ],
)
def test_headers_of_args_say_what_the_args_say(
    kind: str, value: Any, said: str | None, fits: bool
) -> None:
    args = {} if value is None else {"a": {"b": value}}
    headers = {} if said is None else {"mcp-param-region": said}
    problem = problem_of(check_param_headers, schema(kind), args, headers)
    assert (problem is None) is fits
    if problem is not None:
        assert problem.code == -32020


@pytest.mark.parametrize("args", [{"a": 5}, {"a": [1]}, {"a": None}, {"a": {"b": {}}}])
def test_args_that_do_not_fit_the_schema_are_left_to_it(args: dict[str, Any]) -> None:
    assert problem_of(check_param_headers, schema("string"), args, {}) is None


@pytest.mark.parametrize(
    ("value", "said", "fits"),
    [
        (2**400 - 1, str(2**400 - 1), True),
        (2**400, None, True),
        (2**400, str(2**400), False),
        (-5, "-5.0", True),
        (5, "5.", False),
        (5, "5.5", False),
        (5, "5.0".ljust(400, "0"), True),
        (5, "5.0".ljust(401, "0"), False),
        (5.0, "5", True),
    ],
    ids=lambda one: repr(one)[:20],
)
def test_a_whole_number_is_compared_up_to_400_bits_and_digits(
    value: Any, said: str | None, fits: bool
) -> None:
    headers = {} if said is None else {"mcp-param-region": said}
    problem = problem_of(check_param_headers, schema("integer"), {"a": {"b": value}}, headers)
    assert (problem is None) is fits
