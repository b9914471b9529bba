"""Logins, as a face has them: by whom they are opened, whose requests they are, and their ends."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from protocol.errors import Failure
from protocol.events import Log
from protocol.response import Response
from supervisor.kernel.kernel import Client, Congestion, Kernel, Party
from supervisor.kernel.logins import FOLLOWED, LOGINS
from supervisor.policy.mcp_views import McpOptions, View
from supervisor.policy.principals import Scope
from tests.factories import actor
from tests.kernel.conftest import Asker, daemon_with, own
from tests.kernel.tokens import made
from tests.principals import ADA

VIEWS = {"some": View("some", modules=("m.echo",))}
SOON = {"stop_s": 0.1, "exit_s": 0.1}
AGAIN = "log in again (login.open)"


def gateway() -> Party:
    """A connection that may open logins, and ask with them."""
    party = Party(ADA)
    party.has_logins = True
    return party


class Gateway:
    def __init__(self, daemon: Kernel) -> None:
        self.daemon = daemon
        self.party = gateway()
        self.ended: list[str] = []
        """The messages of requests that were asked with logins, as they ended."""

    async def op(self, op: str, /, **args: Any) -> Any:
        """Return the result of an op, or the words of its refusal."""
        document = await self.begin(op, **args).document()
        return document["result"] if document["ok"] else document["error"]["message"]

    async def refused(self, op: str, /, **args: Any) -> tuple[Any, ...]:
        error = (await self.begin(op, **args).document())["error"]
        details = error["details"]
        return error["code"], details["reason"], error["message"], details.get("pointer")

    def begin(self, op: str, /, **args: Any) -> Asker:
        asker = Asker()
        content = {"op": op, "args": args}
        self.daemon.begin(self.party, "supervisor", "invoke", content, asker)
        return asker

    def hang(self, handle: str) -> None:
        """Ask something with a login that has no answer."""
        login = self.daemon.logins.find(handle, self.party)
        assert not isinstance(login, Failure), login.message
        client = _Hanging(self, f"{handle} {len(login.open)}", login.open)
        begun = self.daemon.begin(login.party, "m", "invoke", {"op": "hang"}, client)
        assert begun is not None
        login.open[client] = begun.cancel


class _Hanging(Client):
    def __init__(self, gateway: Gateway, name: str, among: dict[Client, Any]) -> None:
        self._gateway, self._name, self._among = gateway, name, among

    def finished(self, response: Response) -> None:
        del self._among[self]
        assert isinstance(response.outcome, Failure)
        self._gateway.ended.append(f"{self._name}: {response.outcome.message}")


@asynccontextmanager
async def daemon_with_logins(folder: Path, **options: Any) -> AsyncIterator[Gateway]:
    made = actor(folder, supervision={"concurrency": 100, "timeouts": SOON})
    async with daemon_with(folder, made, mcp=McpOptions(VIEWS), **options) as daemon:
        yield Gateway(daemon)


async def test_a_login_is_who_has_the_token_the_code_or_the_uid(tmp_path: Path) -> None:
    async with daemon_with_logins(tmp_path, clock=lambda: 1000.0) as one:
        token = await made(one.daemon, scopes=["read"], modules=["m*"], expires_s=60)
        principal = {"name": "token:ada", "scopes": ["read"], "modules": ["m*"]}
        assert await one.op("login.open", token=token["token"], face="mcp") == {
            "handle": "h1", "face": "mcp", **principal, "expires": 1060.0,
        }  # fmt: skip
        assert await one.op("login.open", token=token["token"], view="some") == {
            "handle": "h2", "face": "http", **principal, "modules": ["m.echo"], "expires": 1060.0,
        }  # fmt: skip
        code = (await one.op("page.login", scopes=["read"]))["code"]
        page = await one.op("login.open", code=code)
        assert await one.op("login.open", token=page["cookie"]) == {
            "handle": "h4",
            "face": "http",
            "name": "ada",
            "scopes": ["read"],
            "modules": ["*"],
            "expires": 1000.0 + 12 * 3600,
        }
        del page["cookie"]
        assert page == {**page, "handle": "h3", "name": "ada", "expires": 1000.0 + 12 * 3600}
        user = await own(one.daemon, ADA, "narrow")
        by_uid = await one.op("login.open", uid=os.geteuid(), pid=os.getpid(), face="x-1")
        assert by_uid == {**user, "handle": "h5", "face": "x-1", "name": by_uid["name"]}
        assert by_uid["name"] not in {"ada", "token:ada"}
        again = await one.op("login.open", code=code)
        assert again == "the code is unknown, used, or too old; run `stdiod page` again"


async def test_what_opens_no_login_is_refused_and_leaves_none(tmp_path: Path) -> None:
    async with daemon_with_logins(tmp_path) as one:
        token = (await made(one.daemon))["token"]
        bad = "bad_request", "invalid_args"
        takes = "login.open takes one of token, code and uid, not"
        assert await one.refused("login.open") == (*bad, f"{takes} none", "")
        both = await one.refused("login.open", uid=1, token=token)
        assert both == (*bad, f"{takes} token and uid", "")
        words = "a pid is that of a process of the user uid, which is missing"
        assert await one.refused("login.open", token=token, pid=1) == (*bad, words, "/pid")
        code, reason, _, pointer = await one.refused("login.open", token=token, view="other")
        assert (code, reason, pointer) == (*bad, "/view")
        wrong = await one.refused("login.open", token=token[:-1])
        assert wrong == (
            "forbidden", "wrong_login", "the token is unknown, or no longer valid", None,
        )  # fmt: skip
        gone = await one.refused("login.close", handle="h1")
        assert gone == (
            "forbidden", "login_over", "there is no login 'h1', or it is over already", None,
        )  # fmt: skip
        assert one.daemon.logins.party("h1") is None
        assert one.daemon.logins.party(None) is None


async def test_who_may_not_log_in_asks_as_nobody(tmp_path: Path) -> None:
    async with daemon_with_logins(tmp_path) as one:
        handle = (await one.op("login.open", uid=os.geteuid()))["handle"]
        narrow = gateway()
        narrow.principal = ADA.narrowed((Scope.READ, Scope.ADMIN))
        for party in (Party(ADA), narrow):
            found = one.daemon.logins.find(handle, party)
            assert isinstance(found, Failure)
            assert (found.code, found.details["reason"]) == ("forbidden", "scope")
            assert found.message == (
                "ada may not ask as another: only a connection of the control socket with all "
                "rights may say `as`"
            )
        login = one.daemon.logins.find(handle, gateway())
        assert not isinstance(login, Failure)
        assert login.party is one.daemon.logins.party(handle)


async def test_wrong_tokens_have_a_rate_and_right_ones_have_none(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with daemon_with_logins(tmp_path) as one:
        token = (await made(one.daemon))["token"]

        async def wrong() -> tuple[Any, ...]:
            return (await one.refused("login.open", token="stdiod_x_y"))[1:3]

        once = "the token is unknown, or no longer valid"
        often = f"{once}; and too many were wrong: try again later"
        mock_clock.jump(10)
        for _ in range(5):
            assert await wrong() == ("wrong_login", once)
        assert await wrong() == ("rate_limited", often)
        error = (await one.begin("login.open", code="x").document())["error"]
        assert error["details"]["retry_in_s"] == pytest.approx(0.2)
        assert (await one.op("login.open", token=token))["name"] == "token:ada"
        mock_clock.jump(0.21)
        assert await wrong() == ("wrong_login", once)
        assert await wrong() == ("rate_limited", often)


async def test_a_token_with_a_rate_has_it_for_all_its_logins(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with daemon_with_logins(tmp_path) as one:
        token = (await made(one.daemon, rate_per_s=2))["token"]
        handles = [(await one.op("login.open", token=token))["handle"] for _ in range(2)]
        mock_clock.jump(10)

        def asks(handle: str) -> Any:
            found = one.daemon.logins.find(handle, one.party)
            return found if isinstance(found, Failure) else None

        assert [asks(handle) for handle in handles] == [None, None]
        refused = asks(handles[0])
        assert refused.message == "the token is good for 2 requests a second"
        assert refused.details == {"origin": "host", "reason": "rate_limited", "retry_in_s": 0.5}
        mock_clock.jump(0.5)
        assert asks(handles[1]) is None
        assert asks(handles[0]) is not None


async def test_there_are_so_many_logins_and_no_more(tmp_path: Path) -> None:
    async with daemon_with_logins(tmp_path) as one:
        token = (await made(one.daemon))["token"]
        handles = [
            one.daemon.logins.by_token(one.party, token, "http").handle for _ in range(LOGINS - 1)
        ]
        assert (await one.op("login.open", uid=os.geteuid()))["handle"] == f"h{LOGINS}"
        full = ("queue_full", f"there are {LOGINS} open logins; close some (login.close)", None)
        code = (await one.op("page.login"))["code"]
        for how in ({"token": token}, {"code": code}, {"uid": os.geteuid()}):
            assert (await one.refused("login.open", **how))[1:] == full
        await one.op("login.close", handle=handles[-1])
        assert (await one.op("login.open", code=code))["name"] == "ada"
        assert (await one.refused("login.open", token=token))[1:] == full


async def test_what_is_open_ends_with_the_login_the_last_first_and_before_that_is_answered(
    tmp_path: Path,
) -> None:
    async with daemon_with_logins(tmp_path) as one:
        token = (await made(one.daemon))["token"]
        first, second = [(await one.op("login.open", token=token))["handle"] for _ in range(2)]
        by_uid = (await one.op("login.open", uid=os.geteuid()))["handle"]
        for handle in (first, first, second, by_uid):
            one.hang(handle)
        over = "the login as which it was asked is over:"
        closed = await one.op("login.close", handle=first)
        assert closed == {"handle": first, "forgotten": False}
        assert one.ended == [f"{first} {n}: {over} it was closed; {AGAIN}" for n in (1, 0)]
        one.ended.clear()
        assert (await one.op("token.revoke", name="ada"))["name"] == "ada"
        assert one.ended == [f"{second} 0: {over} its token was revoked; {AGAIN}"]
        one.ended.clear()
        forget = await one.op("login.close", handle=by_uid, forget=True)
        assert forget == {"handle": by_uid, "forgotten": False}
        assert one.ended == [f"{by_uid} 0: {over} it was closed; {AGAIN}"]
        for handle in (first, second, by_uid):
            found = one.daemon.logins.find(handle, one.party)
            assert isinstance(found, Failure)
            assert found.message == f"there is no login {handle!r}, or it is over: {AGAIN}"


async def test_the_logins_of_a_connection_end_with_it_and_others_stay(tmp_path: Path) -> None:
    async with daemon_with_logins(tmp_path) as one:
        token = (await made(one.daemon))["token"]
        other = Gateway(one.daemon)
        left = [(await other.op("login.open", token=token))["handle"] for _ in range(2)]
        stays = (await one.op("login.open", token=token))["handle"]
        for handle in (*left, stays):
            one.hang(handle)
        one.daemon.logins.leave(other.party)
        await wait_all_tasks_blocked()
        assert sorted(said.partition(" ")[0] for said in one.ended) == left
        assert isinstance(one.daemon.logins.find(left[0], one.party), Failure)
        assert not isinstance(one.daemon.logins.find(stays, one.party), Failure)


async def test_who_logs_a_browser_out_ends_all_logins_with_its_token(tmp_path: Path) -> None:
    async with daemon_with_logins(tmp_path) as one:
        page = await one.op("login.open", code=(await one.op("page.login"))["code"])
        same = (await one.op("login.open", token=page["cookie"]))["handle"]
        one.hang(same)
        closed = await one.op("login.close", handle=page["handle"], forget=True)
        assert closed == {"handle": page["handle"], "forgotten": True}
        assert len(one.ended) == 1
        assert "its token was revoked" in one.ended[0]
        assert (await one.op("login.open", token=page["cookie"])).startswith("the token is unknown")
        token = (await made(one.daemon))["token"]
        handle = (await one.op("login.open", token=token))["handle"]
        closed = await one.op("login.close", handle=handle, forget=True)
        assert closed["forgotten"] is False
        assert (await one.op("login.open", token=token))["name"] == "token:ada"


async def test_however_many_logins_a_token_has_no_time_passes_until_all_are_over(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with daemon_with_logins(tmp_path) as one:
        token = (await made(one.daemon))["token"]
        logins = [one.daemon.logins.by_token(one.party, token, "http") for _ in range(200)]
        one.hang(logins[0].handle)
        one.hang(logins[-1].handle)
        began = trio.current_time()
        await one.op("token.revoke", name="ada")
        assert len(one.ended) == 2
        assert all(one.daemon.logins.party(login.handle) is None for login in logins)
        assert trio.current_time() == began


async def test_at_the_time_of_its_token_a_login_has_expired(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with daemon_with_logins(tmp_path, clock=trio.current_time) as one:
        token = (await made(one.daemon, expires_s=10))["token"]
        handle = (await one.op("login.open", token=token))["handle"]
        one.hang(handle)
        mock_clock.jump(9.9)
        await wait_all_tasks_blocked()
        assert one.ended == []
        mock_clock.jump(0.2)
        await wait_all_tasks_blocked()
        over = "the login as which it was asked is over: its token has expired"
        assert one.ended == [f"{handle} 0: {over}; {AGAIN}"]


@pytest.mark.parametrize("more", [0, 1])
async def test_a_follower_has_so_many_ends_waiting_for_it_and_is_ended_with_one_more(
    more: int, tmp_path: Path
) -> None:
    async with daemon_with_logins(tmp_path) as one:
        slow, asker = gateway(), Asker()
        content: dict[str, Any] = {"op": "login.follow", "args": {}}
        handle = one.daemon.begin(slow, "supervisor", "invoke", content, asker)
        assert handle is not None
        await asker.heard(1)
        reader = one.begin("login.follow")
        await reader.heard(1)
        asker.slow = Congestion.SLOW
        token = (await made(one.daemon))["token"]
        handles = []
        for _ in range(1 + FOLLOWED + more):
            login = one.daemon.logins.by_token(one.party, token, "http")
            one.daemon.logins.close(login.handle, forget=False)
            handles.append(login.handle)
            if len(handles) % FOLLOWED == 1:
                await wait_all_tasks_blocked()
        asker.slow = Congestion.NONE
        handle.resume()
        await asker.heard(2 + FOLLOWED)
        ends = [one.fields for one in asker.events[1:] if isinstance(one, Log)]
        assert ends == [{"handle": name, "why": "closed"} for name in handles[: 1 + FOLLOWED]]
        await wait_all_tasks_blocked()
        assert len(asker.responses) == more
        if more:
            error = (await asker.document())["error"]
            assert error["details"]["reason"] == "slow_reader"
            assert error["message"] == (
                "too many ends of logins were not read; close the connection, and open all anew"
            )
        await reader.heard(1 + len(handles))
