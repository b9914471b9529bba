"""Logins of the page: a code that works once, and the login of a browser that it leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.kernel import JournalOptions
from supervisor.kernel.tokens import PAGES
from supervisor.policy.principals import ALL_SCOPES, Principal, Scope
from tests.kernel.conftest import daemon_with, own
from tests.kernel.tokens import comes_in, made
from tests.principals import ADA


async def test_who_is_no_user_of_the_machine_gets_no_login(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        boss = Principal("token:boss", "http", ALL_SCOPES)
        words = await own(daemon, boss, "page.login")
        assert words.startswith("a login is for a user of this machine, and token:boss is none")


async def test_a_login_outlives_the_daemon_and_a_code_does_not(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, memory=JournalOptions()) as daemon:
        said = daemon.tokens.new_page(ADA)
        code = (await own(daemon, ADA, "page.login"))["code"]
    async with daemon_with(tmp_path, memory=JournalOptions()) as daemon:
        login: Any = comes_in(daemon, said)
        assert (login.name, login.face, login.scopes) == ("ada", "http", ALL_SCOPES)
        assert daemon.page_codes.take(code, 0.0) is None


async def test_of_many_logins_the_oldest_makes_room_and_no_token_does(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        token = (await made(daemon))["token"]
        said = [daemon.tokens.new_page(ADA) for _ in range(PAGES + 1)]
        assert [comes_in(daemon, one) is not None for one in said] == [False, *[True] * PAGES]
        assert comes_in(daemon, token) is not None


@pytest.mark.parametrize("scopes", [["read", "invoke"], []])
async def test_who_has_given_up_admin_gets_no_login(scopes: list[str], tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        narrow = ADA.narrowed(map(Scope, scopes))
        assert "admin" in await own(daemon, narrow, "page.login")
