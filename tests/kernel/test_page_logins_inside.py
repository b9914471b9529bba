"""Of `test_page_logins.py`, what is bound to the structure."""

from __future__ import annotations

import json
from pathlib import Path

from supervisor.kernel.tokens import CODE_S, CODES, PAGE_S, PageCodes
from supervisor.policy.principals import Principal, Scope
from tests.kernel.conftest import daemon_with, own
from tests.kernel.remembering import Remembering
from tests.kernel.tokens import comes_in
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
