"""`stdiod token`: what is asked of the daemon, and what people and programs get to see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import not_ok, ok


def shown(**others: Any) -> dict[str, Any]:
    usual = {"id": "1f", "name": "ci", "scopes": ["read", "invoke"], "modules": ["*"]}
    return {**usual, "created": 1.8e9, "expires": None, "rate_per_s": None, **others}


@pytest.mark.parametrize(
    ("arguments", "op", "args"),
    [
        (("new", "ci"), "token.new", {"name": "ci"}),
        (
            ("new", "ci", "--scope", "read", "--modules", "kv", "--modules", "d*"),
            "token.new",
            {"name": "ci", "scopes": ["read"], "modules": ["kv", "d*"]},
        ),
        (("new", "ci", "--expires", "0.5"), "token.new", {"name": "ci", "expires_s": 43200.0}),
        (("new", "ci", "--rate", "0.5"), "token.new", {"name": "ci", "rate_per_s": 0.5}),
        (("list",), "token.list", {}),
        (("revoke", "ci"), "token.revoke", {"name": "ci"}),
    ],
)
def test_the_daemon_is_asked(
    arguments: tuple[str, ...], op: str, args: dict[str, Any], run: Run, serve: Serve
) -> None:
    result = {"tokens": []} if op == "token.list" else shown(token="stdiod_1f_x")
    daemon = serve(lambda _: [ok(result)])
    assert run("token", *arguments).exit_code == 0
    assert daemon.frames[0]["input"] == {"op": op, "args": args}
    assert json.loads(run("token", *arguments, "--json").stdout) == result


def test_the_token_alone_is_on_stdout(run: Run, serve: Serve) -> None:
    serve(lambda _: [ok(shown(token="stdiod_1f_x", expires=1.8e9, rate_per_s=2.5))])
    result = run("token", "new", "ci")
    assert result.stdout == "stdiod_1f_x\n"
    words = (
        "ci: may read, invoke, modules *, 2.5 requests a second, until 2027-01-15 08:00:00 UTC\n"
    )
    assert result.stderr == words


def test_the_tokens_are_listed_in_words(run: Run, serve: Serve) -> None:
    serve(lambda _: [ok({"tokens": [shown(), shown(name="odd\x1b[2J", modules=[], scopes=[])]})])
    assert run("token", "list").stdout.splitlines() == [
        "ci: may read, invoke, modules *, until it is revoked",
        "odd\\x1b[2J: may nothing, modules none, until it is revoked",
    ]


def test_a_refusal_ends_with_1(run: Run, serve: Serve) -> None:
    serve(lambda _: [not_ok("bad_request", "there is no token 'x'", reason="invalid_args")])
    result = run("token", "revoke", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no token 'x'" in result.stderr
    assert "describe supervisor" not in result.stderr
    assert "one of the args cannot be used" in result.stderr
