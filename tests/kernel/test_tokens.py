"""Tokens: who comes in by one, as whom, for how long, and what is kept of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.kernel import JournalOptions
from supervisor.kernel.tokens import TOKENS
from supervisor.policy.principals import ALL_SCOPES, EVERYTHING, GLOBS, Principal, Scope
from tests.factories import actor
from tests.kernel.conftest import begin, daemon_with, own
from tests.kernel.tokens import comes_in, made
from tests.principals import ADA


async def test_who_says_a_token_is_its_name_with_its_scopes_and_globs(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        usual = await made(daemon)
        assert comes_in(daemon, usual["token"]) == Principal(
            "token:ada", "http", frozenset({Scope.READ, Scope.INVOKE}), EVERYTHING
        )
        narrow = await made(daemon, name="max", scopes=["read"], modules=["kv.get*"])
        assert comes_in(daemon, narrow["token"]) == Principal(
            "token:max", "http", frozenset({Scope.READ}), ("kv.get*",)
        )


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda said: said[:-1],
        lambda said: said + "x",
        lambda said: said[:-1] + ("a" if said[-1] != "a" else "b"),
        lambda said: said.replace("stdiod_", "other_"),
        lambda said: said.rpartition("_")[0],
        lambda said: "stdiod_0000_" + said.split("_", 2)[2],
        lambda said: "",
        lambda said: "_",
        lambda said: "\udc80é",
    ],
)
async def test_what_is_not_quite_a_token_lets_nobody_in(spoilt: Any, tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        assert comes_in(daemon, spoilt((await made(daemon))["token"])) is None


async def test_tokens_are_good_with_the_next_daemon_and_revoked_ones_are_not(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, memory=JournalOptions()) as daemon:
        kept = (await made(daemon))["token"]
        revoked = (await made(daemon, name="max"))["token"]
        await own(daemon, ADA, "token.revoke", name="max")
    async with daemon_with(tmp_path, memory=JournalOptions()) as daemon:
        assert comes_in(daemon, kept) is not None
        assert comes_in(daemon, revoked) is None


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    ("stored", "left"),
    [
        ([f"m{number}" for number in range(100)], [f"m{number}" for number in range(GLOBS)]),
        (["*a*a*a*a*b", "kv*", "*a*a*a*c"], ["kv*", "*a*a*a*c"]),
    ],
)
async def test_a_token_of_an_earlier_version_covers_no_more_globs_than_a_new_one_may(
    stored: list[str], left: list[str], tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, memory=JournalOptions()) as daemon:
        scopes = frozenset({Scope.READ})
        _, said = daemon.tokens.new(ADA, "max", scopes, tuple(stored))
        _, of_all = daemon.tokens.new(ADA, "all", scopes, EVERYTHING)
        await made(daemon)  # once that is stored, so are they
    async with daemon_with(tmp_path, memory=JournalOptions()) as daemon:
        who = comes_in(daemon, said)
        assert who is not None
        assert list(who.modules) == left
        assert comes_in(daemon, of_all) is not None


async def test_who_came_in_with_a_token_is_told_when_it_is_revoked(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        told: list[str] = []
        said = {name: (await made(daemon, name=name))["token"] for name in ("ada", "max")}
        for who, name in (("first", "ada"), ("second", "ada"), ("other", "max"), ("left", "ada")):
            login = daemon.tokens.login(said[name], "http", partial(told.append, who))
            assert login is not None
            if who == "left":
                daemon.tokens.leave(login)
                daemon.tokens.leave(login)
        await own(daemon, ADA, "token.revoke", name="ada")
        assert sorted(told) == ["first", "second"]
        assert comes_in(daemon, said["ada"]) is None
        assert comes_in(daemon, said["max"]) is not None


async def test_nobody_gives_what_he_does_not_have(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        admin = Principal("token:boss", "http", frozenset({Scope.ADMIN}))
        words = await own(daemon, admin, "token.new", name="x")
        assert words == "token:boss may not give what it does not have: read, invoke"
        assert (await made(daemon, admin, scopes=["admin"]))["scopes"] == ["admin"]
        some = Principal("token:some", "http", ALL_SCOPES, ("kv",))
        for op in ("token.new", "token.list", "token.revoke"):
            args = {} if op == "token.list" else {"name": "ada"}
            assert "it concerns all modules" in await own(daemon, some, op, **args)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"name": "ada"}, "there is a token 'ada' already"),
        ({"name": "a\nb"}, "is for people to read"),
        ({"name": " "}, "is for people to read"),
    ],
)
async def test_a_bad_name_is_refused(args: dict[str, Any], words: str, tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        await made(daemon)
        assert words in await own(daemon, ADA, "token.new", **args)


async def test_a_misspelt_name_is_told_with_what_was_meant(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        await made(daemon)
        words = await own(daemon, ADA, "token.revoke", name="adda")
        assert words == "there is no token 'adda'; did you mean 'ada'?"


async def test_the_number_of_tokens_has_a_bound(tmp_path: Path) -> None:
    async with daemon_with(tmp_path) as daemon:
        for number in range(TOKENS):
            daemon.tokens.new(ADA, f"t{number}", ALL_SCOPES, EVERYTHING)
        assert (
            await own(daemon, ADA, "token.new", name="x")
            == f"there are {TOKENS} tokens; revoke one"
        )


async def test_a_token_owns_nothing_of_a_user_or_a_module_of_its_name(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path, name="ada")) as daemon:
        token = comes_in(daemon, (await made(daemon))["token"])
        assert token is not None
        await own(daemon, ADA, "session.new", session_id="hers")
        assert "there is no session" in await own(daemon, token, "session.show", session_id="hers")
        await own(daemon, token, "session.new", session_id="its")
        user = ADA.narrowed((Scope.READ, Scope.INVOKE))
        assert "there is no session" in await own(daemon, user, "session.show", session_id="its")
        asked = begin(daemon, "ada", "invoke", {"op": "echo", "session_id": "its"}, token)
        assert (await asked.response()).ok
