"""Tokens, and who they let in."""

from __future__ import annotations

from typing import Any

from supervisor.kernel.kernel import Kernel
from supervisor.policy.principals import Principal
from tests.kernel.conftest import own
from tests.principals import ADA


def nothing() -> None:
    """Be told that a token is over."""


def comes_in(daemon: Kernel, said: str) -> Principal | None:
    login = daemon.tokens.login(said, "http", nothing)
    return None if login is None else login.principal


async def made(daemon: Kernel, who: Principal = ADA, **args: Any) -> dict[str, Any]:
    found = await own(daemon, who, "token.new", **{"name": "ada", **args})
    assert isinstance(found, dict), found
    return found
