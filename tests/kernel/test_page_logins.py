"""Logins of the page: a code that works once, and the login of a browser that it leads to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.kernel import JournalOptions
from supervisor.kernel.page_codes import CODE_S, CODES, PageCodes
from supervisor.kernel.tokens import PAGE_S, PAGES
from supervisor.policy.principals import ALL_SCOPES, Principal, Scope
from tests.kernel.conftest import daemon_with, own
from tests.kernel.remembering import Remembering
from tests.kernel.tokens import comes_in, made
from tests.principals import ADA


def test_a_code_works_once_and_in_time() -> None:
    codes = PageCodes()
    one, two = codes.new(ADA, 0.0), codes.new(ADA, 0.0)
    assert codes.take(one + "x", 1.0) is None
    assert codes.take(one, CODE_S - 0.1) == ADA
    assert codes.take(one, CODE_S - 0.1) is None
    assert codes.take(two, CODE_S) is None


def test_of_unused_codes_the_oldest_makes_room() -> None:
    codes = PageCodes()
    made = [codes.new(ADA, 0.0) for _ in range(CODES + 1)]
    assert [codes.take(one, 1.0) for one in made] == [None, *[ADA] * CODES]
    codes.new(ADA, 0.0)
    late = [codes.new(ADA, CODE_S) for _ in range(CODES)]  # an expired one takes no room
    assert codes.take(late[0], CODE_S) == ADA


async def test_who_logs_in_is_the_user_who_asked_and_may_no_more(tmp_path: Path) -> None:
    recorder = Remembering()
    async with daemon_with(tmp_path, recorder=recorder) as daemon:
        found = await own(daemon, ADA, "page.login", scopes=["read"], modules=["kv"])
        assert found["login_s"] == PAGE_S
        who = daemon.page_codes.take(found["code"], 0.0)
        assert who is not None
        said = daemon.tokens.new_page(who)
        login = comes_in(daemon, said)
        assert login == Principal("ada", "http", frozenset({Scope.READ}), ("kv",))
        (one,) = (await own(daemon, ADA, "token.list"))["tokens"]
        assert one["page_of"] == "ada"
        assert one["expires"] == one["created"] + PAGE_S
        known = json.dumps([one, recorder.entries], default=repr) + repr(recorder.kept)
        assert found["code"] not in known
        assert said.split("_", 2)[2] not in known
        await own(daemon, ADA, "token.revoke", name=one["name"])
        assert comes_in(daemon, said) is None


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
