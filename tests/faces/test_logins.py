"""Requests on the control socket that are asked as another (`login.open`, `"as"`)."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h11
import pytest
import trio

from supervisor.policy.principals import Principal, Scope
from tests.bounds import WAIT_S, wait_until
from tests.faces.http.test_websocket import NOT_ALLOWED, upgraded
from tests.faces.lines import Client, request
from tests.faces.mcp.test_http import message
from tests.faces.running import LOOPBACK, Running, running
from tests.kernel.test_scopes import ARGS, COMBINATIONS, LOGINS, SCOPES
from tests.principals import ADA
from tests.system.descriptors import actor

USER = pwd.getpwuid(os.geteuid()).pw_name


class Gateway:
    """A connection of the control socket, and what it asks there."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._count = 0

    async def op(self, op: str, /, login: str | None = None, **args: Any) -> dict[str, Any]:
        return await self.ask("supervisor", op, args, login)

    async def invoke(self, login: str | None, op: str, /, module: str = "m") -> dict[str, Any]:
        return await self.ask(module, "invoke", {"op": op}, login)

    async def ask(
        self, tool: str, operation: str, content: dict[str, Any], login: str | None
    ) -> dict[str, Any]:
        self._count += 1
        await self.begin(f"r{self._count}", tool, operation, content, login)
        return await self.done(f"r{self._count}")

    async def begin(
        self, number: str, tool: str, operation: str, content: dict[str, Any], login: str | None
    ) -> None:
        named = {} if login is None else {"as": login}
        await self.client.send({**request(number, tool, operation, **content), **named})

    async def begin_op(self, number: str, op: str, /, login: str | None, **args: Any) -> None:
        await self.begin(number, "supervisor", op, args, login)

    async def done(self, number: str) -> dict[str, Any]:
        """Return the answer to a request, whatever is said of others before."""
        with trio.fail_after(WAIT_S):
            while True:
                line = await self.client.done()
                if line.get("requestId") == number:
                    return line

    async def event(self, number: str) -> dict[str, Any]:
        with trio.fail_after(WAIT_S):
            line = await self.client.line()
        assert line is not None
        assert line["requestId"] == number
        return line

    async def token(self, **args: Any) -> str:
        said = await self.op("token.new", **{"name": "bob", **args})
        return str(said["result"]["token"])

    async def opened(self, **args: Any) -> str:
        answer = await self.op("login.open", **args)
        assert answer["ok"], answer
        return str(answer["result"]["handle"])


def reason(done: dict[str, Any]) -> str:
    return "ok" if done["ok"] else f"{done['error']['code']}/{done['error']['details']['reason']}"


OVER = "forbidden/login_over"


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[Running, Gateway]]:
    async with running(actor(), actor(name="n")) as daemon, daemon.lines() as client:
        yield daemon, Gateway(client)


async def test_a_request_as_a_login_has_the_rights_of_its_token() -> None:
    async with gateway() as (_, one):
        said = await one.token(scopes=["invoke"], modules=["m.echo"])
        opened = await one.op("login.open", token=said)
        assert opened["result"] == {
            "handle": "h1",
            "name": "token:bob",
            "face": "http",
            "scopes": ["invoke"],
            "modules": ["m.echo"],
            "expires": None,
        }
        assert (await one.invoke("h1", "echo"))["ok"]
        assert reason(await one.invoke("h1", "whoami")) == "forbidden/scope"
        assert reason(await one.invoke("h1", "echo", "n")) == "bad_request/unknown_module"
        assert reason(await one.op("status", "h1")) == "forbidden/scope"
        shown = (await one.op("narrow", "h1"))["result"]
        assert (shown["name"], shown["scopes"]) == ("token:bob", ["invoke"])
        assert (await one.op("status"))["ok"]  # the connection itself is who it was


async def test_a_login_is_narrowed_by_itself_and_not_its_connection() -> None:
    async with gateway() as (_, one):
        login = await one.opened(uid=os.geteuid(), face="mcp")
        shown = (await one.op("narrow", login, scopes=["read"]))["result"]
        assert (shown["name"], shown["face"]) == (USER, "mcp")
        assert reason(await one.invoke(login, "echo")) == "forbidden/scope"
        assert (await one.invoke(None, "echo"))["ok"]


async def test_when_a_token_is_revoked_what_is_open_with_it_ends_before_the_answer() -> None:
    async with gateway() as (_, one):
        login = await one.opened(token=await one.token())
        await one.begin("theirs", "m", "invoke", {"op": "hang"}, login)
        await one.begin_op("stream", "ui.subscribe", login)
        await one.event("stream")
        await one.begin("ours", "n", "invoke", {"op": "hang"}, None)
        await one.begin_op("revoke", "token.revoke", None, name="bob")
        ended = [await one.client.done() for _ in range(3)]
        assert {(done["requestId"], reason(done)) for done in ended[:2]} == {
            ("theirs", OVER),
            ("stream", OVER),
        }
        assert (ended[2]["requestId"], ended[2]["ok"]) == ("revoke", True)
        assert "log in again" in ended[0]["error"]["message"]
        assert reason(await one.invoke(login, "echo")) == OVER
        await one.client.send({"requestId": "ours", "operation": "cancel"})
        assert reason(await one.done("ours")) == "cancelled/client"


async def test_after_a_revocation_nothing_is_begun_however_many_logins_are_to_be_told() -> None:
    async with gateway() as (_, one):
        said = await one.token()
        handles = [await one.opened(token=said) for _ in range(200)]
        revoke = request("revoke", "supervisor", "token.revoke", name="bob")
        late = [{**request(handle, "m", op="echo"), "as": handle} for handle in (*handles, "h1000")]
        await one.client.send(revoke, *late)
        answers = [await one.client.done() for _ in range(len(late) + 1)]
        assert {reason(answer) for answer in answers if answer["requestId"] != "revoke"} == {OVER}


async def opened_until_it_expires(one: Gateway) -> str:
    """Open the login of a token that expires soon, but not before it is used, at any pace."""
    for name in range(6):
        said = await one.token(name=f"for {2**name} s", expires_s=2**name)
        answer = await one.op("login.open", token=said)
        if answer["ok"]:
            return str(answer["result"]["handle"])
        assert reason(answer) == "forbidden/wrong_login"
    raise AssertionError("opening a login took half a minute")


async def test_when_a_token_expires_what_is_open_with_it_ends() -> None:
    async with gateway() as (daemon, one), daemon.lines() as theirs:
        follower = Gateway(theirs)
        await follower.begin_op("follow", "login.follow", None)
        assert "fields" not in await follower.event("follow")
        login = await opened_until_it_expires(one)
        await one.begin("theirs", "m", "invoke", {"op": "hang"}, login)
        told = await follower.event("follow")
        assert told["fields"] == {"handle": login, "why": "expired"}
        assert reason(await one.done("theirs")) == OVER
        assert reason(await one.invoke(login, "echo")) == OVER


async def test_who_follows_is_told_of_each_login_that_is_over_and_why() -> None:
    async with gateway() as (daemon, one), daemon.lines() as theirs:
        follower = Gateway(theirs)
        await follower.begin_op("follow", "login.follow", None)
        await follower.event("follow")
        said = await one.token()
        first, second = await one.opened(token=said), await one.opened(token=said)
        async with daemon.lines() as other:
            third = await Gateway(other).opened(uid=os.geteuid())
        assert (await follower.event("follow"))["fields"] == {"handle": third, "why": "closed"}
        closed = await one.op("login.close", handle=first)
        assert closed["result"] == {"handle": first, "forgotten": False}
        assert (await follower.event("follow"))["fields"] == {"handle": first, "why": "closed"}
        assert (await one.op("token.revoke", name="bob"))["ok"]
        assert (await follower.event("follow"))["fields"] == {"handle": second, "why": "revoked"}


async def test_a_login_is_for_all_connections_until_that_of_its_opener_is_gone() -> None:
    async with gateway() as (daemon, one):
        async with daemon.lines() as opener:
            login = await Gateway(opener).opened(token=await one.token())
            assert (await one.invoke(login, "echo"))["ok"]
            await one.begin("theirs", "m", "invoke", {"op": "hang"}, login)
        assert reason(await one.done("theirs")) == OVER
        assert reason(await one.invoke(login, "echo")) == OVER


async def test_a_handle_that_is_not_known_closed_or_revoked_is_refused_in_the_same_words() -> None:
    async with gateway() as (_, one):
        closed = await one.opened(uid=os.geteuid())
        assert (await one.op("login.close", handle=closed))["ok"]
        revoked = await one.opened(token=await one.token())
        assert (await one.op("token.revoke", name="bob"))["ok"]
        refused = [(await one.invoke(name, "echo"), name) for name in (closed, revoked, "h77", "")]
        for done, name in refused:
            assert done["error"] == {
                "code": "forbidden",
                "message": f"there is no login {name!r}, or it is over: log in again (login.open)",
                "details": {"origin": "host", "reason": "login_over"},
            }
        assert reason(await one.op("login.close", handle=closed)) == OVER


NARROWED = [
    {"scopes": ["read", "invoke"]},
    {"scopes": ["admin"]},
    {"scopes": ["read", "invoke", "admin"], "modules": ["m", "n"]},
    {"scopes": []},
]
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("login.open", {"uid": 0}),
    ("login.close", {"handle": "HANDLE"}),
    ("login.follow", {}),
    ("unordered", {}),
]


@pytest.mark.parametrize("kept", NARROWED, ids=str)
async def test_who_has_given_up_a_right_opens_no_login_and_learns_of_none(
    kept: dict[str, Any],
) -> None:
    async with gateway() as (daemon, one), daemon.lines() as theirs:
        login = await one.opened(uid=os.geteuid())
        other = Gateway(theirs)
        assert (await other.op("narrow", **kept))["ok"]
        for op, args in ASKED:
            answers = [
                str((await other.op(op, None, **{**args, **named}))["error"])
                for named in (
                    {"handle": name} if "handle" in args else {} for name in (login, "h77")
                )
            ]
            assert answers[0] == answers[1]
            assert "'forbidden'" in answers[0]
            assert "'scope'" in answers[0]
        refused = [await other.invoke(name, "echo") for name in (login, "h77")]
        assert refused[0]["error"] == refused[1]["error"]
        assert reason(refused[0]) == "forbidden/scope"
        assert (await one.invoke(login, "echo"))["ok"]


async def test_who_is_asked_for_opens_no_login_whatever_he_may() -> None:
    async with gateway() as (_, one):
        login = await one.opened(uid=os.geteuid())
        assert (await one.op("token.list", login))["ok"]
        for op, args in ASKED:
            assert reason(await one.op(op, login, **args)) == "forbidden/scope"


async def test_a_login_names_who_it_is_for_in_one_way() -> None:
    async with gateway() as (_, one):
        wrong: list[tuple[dict[str, Any], str]] = [
            ({}, "login.open takes one of token, code and uid, not none"),
            (
                {"token": "x", "uid": 1},
                "login.open takes one of token, code and uid, not token and uid",
            ),
        ]
        for args, words in wrong:
            done = await one.op("login.open", None, **args)
            assert done["error"]["message"] == words
        assert reason(await one.op("login.open", uid=-1)) == "bad_request/invalid_args"
        await one.client.send({**request("x", "m", op="echo"), "as": 17})
        refused = await one.done("x")
        assert refused["error"]["message"] == '"as" of a request is a number, it must be a string'


async def test_a_login_that_was_left_keeps_nothing_of_what_it_asked() -> None:
    async with gateway() as (daemon, one):
        login = await one.opened(token=await one.token())
        pad = {"pad": "x" * 100_000}
        await one.begin("theirs", "m", "invoke", {"op": "hang", "args": pad}, login)
        assert (await one.op("status"))["ok"]
        shown = daemon.daemon.op("status")["daemon"]["held_bytes"]["parties"]
        (held,) = [party for party in shown if party["party"] == f"login {login}"]
        assert held["args"] > 100_000
        assert held["by"]["name"] == "token:bob"
        assert (await one.op("login.close", handle=login))["ok"]
        shown = daemon.daemon.op("status")["daemon"]["held_bytes"]["parties"]
        assert not [party for party in shown if party["party"] == f"login {login}"]


@pytest.mark.parametrize("has", COMBINATIONS, ids=lambda has: "+".join(sorted(has)) or "none")
async def test_every_op_that_is_asked_as_a_login_needs_its_scope_and_no_other(
    has: frozenset[Scope],
) -> None:
    async with gateway() as (_, one):
        scopes = [str(scope) for scope in has]
        login = await one.opened(token=await one.token(scopes=scopes))
        refused = {}
        for op, args in sorted(ARGS.items(), key=lambda item: item[0] == "shutdown"):
            content = {"op": op, "args": args}
            await one.begin(op, "supervisor", "invoke", content, login)
            await one.client.send({"requestId": op, "operation": "cancel"})
            refused[op] = reason(await one.done(op)) == "forbidden/scope"
        expected = {op: op in LOGINS or SCOPES[op] not in {*has, None} for op in ARGS}
        expected["page.login"] = True  # it is no user's
        assert refused == expected


# --- Wrong ones, rates, browsers ------------------------------------------------


@pytest.mark.parametrize("how", ["token", "code"])
async def test_wrong_ones_are_counted_and_a_right_one_is_taken_at_any_rate(
    how: str,
) -> None:
    async with gateway() as (_, one):
        wrong: dict[str, Any] = {"op": "login.open", "args": {how: "wrong"}}
        for _ in range(5):
            assert reason(await one.ask("supervisor", "invoke", wrong, None)) == (
                "forbidden/wrong_login"
            )
        # More become due meanwhile, at the pace of the machine: so many are asked at once, until
        # one is too many. tests/kernel/test_logins.py tries the rate on a clock that stands still.
        answers: list[dict[str, Any]] = []
        while all(reason(answer) == "forbidden/wrong_login" for answer in answers):
            asked = [request(f"wrong {number}", "supervisor", **wrong) for number in range(50)]
            await one.client.send(*asked)
            answers = [await one.client.done() for _ in asked]
        refused = [answer for answer in answers if reason(answer) != "forbidden/wrong_login"]
        assert {reason(answer) for answer in refused} == {"unreachable/rate_limited"}
        waits = [answer["error"]["details"]["retry_in_s"] for answer in refused]
        assert all(0 < wait_s <= 0.2 for wait_s in waits)
        assert await one.opened(token=await one.token())
        code = (await one.op("page.login"))["result"]["code"]
        assert await one.opened(code=code)


async def test_requests_as_a_login_count_for_the_rate_of_its_token() -> None:
    async with gateway() as (_, one):
        said = await one.token(rate_per_s=0.001)  # none becomes due while this is tried
        handles = [await one.opened(token=said) for _ in range(2)]
        answers = [await one.invoke(handle, "echo") for handle in handles]
        assert [reason(one) for one in answers] == ["ok", "unreachable/rate_limited"]
        error = answers[1]["error"]
        assert error["message"] == "the token is good for 0.001 requests a second"
        assert 0 < error["details"]["retry_in_s"] <= 1000
        assert (await one.invoke(None, "echo"))["ok"]


async def test_a_code_logs_a_browser_in_once_and_its_cookie_does_so_later() -> None:
    async with gateway() as (_, one):
        code = (await one.op("page.login", scopes=["read", "invoke"]))["result"]["code"]
        opened = (await one.op("login.open", code=code))["result"]
        assert (opened["name"], opened["scopes"]) == (USER, ["read", "invoke"])
        assert (await one.invoke(opened["handle"], "echo"))["ok"]
        assert reason(await one.op("login.open", code=code)) == "forbidden/wrong_login"
        again = (await one.op("login.open", token=opened["cookie"]))["result"]
        assert (again["name"], again["expires"]) == (USER, opened["expires"])


async def test_a_browser_that_logs_out_is_logged_out_everywhere_and_nobody_else_is() -> None:
    async with gateway() as (_, one):
        opened = [
            (await one.op("login.open", code=(await one.op("page.login"))["result"]["code"]))[
                "result"
            ]
            for _ in range(2)
        ]
        ours, other = opened[0], opened[1]
        second = await one.opened(token=ours["cookie"])
        await one.begin("ours", "m", "invoke", {"op": "hang"}, second)
        closed = await one.op("login.close", handle=ours["handle"], forget=True)
        assert closed["result"] == {"handle": ours["handle"], "forgotten": True}
        assert reason(await one.invoke(second, "echo")) == OVER
        assert reason(await one.op("login.open", token=ours["cookie"])) == "forbidden/wrong_login"
        assert (await one.invoke(other["handle"], "echo"))["ok"]


async def test_a_token_of_no_browser_is_not_forgotten() -> None:
    async with gateway() as (_, one):
        said = await one.token()
        login = await one.opened(token=said)
        closed = await one.op("login.close", handle=login, forget=True)
        assert closed["result"] == {"handle": login, "forgotten": False}
        assert await one.opened(token=said)


async def test_a_login_of_a_client_who_is_no_user_of_this_machine_is_no_login_of_a_browser() -> (
    None
):
    async with gateway() as (_, one):
        login = await one.opened(token=await one.token(scopes=[str(one) for one in Scope]))
        assert reason(await one.op("page.login", login)) == "forbidden/scope"


def test_the_principal_of_these_tests_may_do_everything() -> None:
    assert Principal(ADA.name, ADA.face).is_full


# --- Unordered connections -------------------------------------------------------

MANY = 1000
"""More requests than are served in a turn, and fewer than may wait."""


async def flood(one: Gateway, first: str, last: str | None) -> list[str]:
    """Ask `MANY` times as one login and then once as another; returns the ids as answered."""
    lines = [{**request(str(number), "nobody", op="go"), "as": first} for number in range(MANY)]
    asked = {} if last is None else {"as": last}
    await one.client.send(*lines, {**request("last", "nobody", op="go"), **asked})
    return [(await one.client.done())["requestId"] for _ in range(MANY + 1)]


@pytest.mark.parametrize("own", [False, True], ids=["as another", "the connection's own"])
async def test_on_an_unordered_connection_no_login_waits_for_another(
    own: bool,
) -> None:
    async with gateway() as (_, one):
        assert (await one.op("unordered"))["result"] == {"unordered": True}
        first, second = await one.opened(uid=os.geteuid()), await one.opened(uid=os.geteuid())
        answered = await flood(one, first, None if own else second)
        assert answered.index("last") < MANY
        answered.remove("last")
        assert answered == list(map(str, range(MANY)))


async def test_on_any_other_connection_requests_are_served_as_they_were_written() -> None:
    async with gateway() as (_, one):
        first, second = await one.opened(uid=os.geteuid()), await one.opened(uid=os.geteuid())
        assert await flood(one, first, second) == [*map(str, range(MANY)), "last"]


async def test_of_a_login_for_which_too_much_waits_requests_are_refused_and_of_no_other() -> None:
    async with gateway() as (_, one):
        assert (await one.op("unordered"))["ok"]
        first, second = await one.opened(uid=os.geteuid()), await one.opened(uid=os.geteuid())
        lines = [{**request(str(n), "nobody", op="go"), "as": first} for n in range(5 * MANY)]
        await one.client.send(*lines, {**request("last", "m", op="echo"), "as": second})
        answers = {}
        for _ in range(5 * MANY + 1):
            done = await one.client.done()
            answers[done["requestId"]] = reason(done)
        assert answers.pop("last") == "ok"
        assert set(answers.values()) == {"bad_request/unknown_module", "unreachable/queue_full"}


async def test_a_cancel_passes_the_requests_that_wait_on_an_unordered_connection() -> None:
    async with gateway() as (_, one):
        assert (await one.op("unordered"))["ok"]
        login = await one.opened(uid=os.geteuid())
        await one.begin("hang", "m", "invoke", {"op": "hang"}, login)
        lines = [{**request(str(n), "nobody", op="go"), "as": login} for n in range(MANY)]
        await one.client.send(*lines, {"requestId": "hang", "as": login, "operation": "cancel"})
        answered = [(await one.client.done())["requestId"] for _ in range(MANY + 1)]
        assert answered.index("hang") < MANY


async def test_a_login_of_a_process_is_that_of_its_module() -> None:
    async with gateway() as (daemon, one):
        uid, pid = os.geteuid(), daemon.daemon.pid("m")
        opened = (await one.op("login.open", uid=uid, pid=pid))["result"]
        assert (opened["name"], opened["face"]) == ("module:m", "module")
        refused = await one.invoke(opened["handle"], "echo", "n")
        assert reason(refused) == "forbidden/capability"
        user = (await one.op("login.open", uid=uid, pid=os.getpid()))["result"]
        assert user["name"] == USER
        assert reason(await one.op("login.open", pid=1)) == "bad_request/invalid_args"


# --- Words and ends --------------------------------------------------------------


ENDS = {
    "closed": "it was closed",
    "revoked": "its token was revoked",
}


@pytest.mark.parametrize("why", ENDS)
async def test_what_was_asked_as_a_login_that_is_over_says_how_it_ended(why: str) -> None:
    async with gateway() as (daemon, one), daemon.lines() as theirs:
        follower = Gateway(theirs)
        await follower.begin_op("follow", "login.follow", None)
        first = await follower.event("follow")
        assert first["message"] == "each login that is over is told of from here on"
        login = await one.opened(token=await one.token())
        for name in ("first", "second"):
            await one.begin(name, "m", "invoke", {"op": "hang"}, login)
        if why == "closed":
            await one.begin_op("end", "login.close", None, handle=login)
        else:
            await one.begin_op("end", "token.revoke", None, name="bob")
        ended = [await one.client.done() for _ in range(2)]
        assert [done["requestId"] for done in ended] == ["second", "first"]
        for done in ended:
            assert reason(done) == OVER
            words = f"the login as which it was asked is over: {ENDS[why]}; log in again"
            assert done["error"]["message"] == f"{words} (login.open)"
        told = await follower.event("follow")
        assert told["message"] == f"the login {login} is over: {why}"
        assert told["fields"] == {"handle": login, "why": why}


WRONG: list[tuple[dict[str, Any], str, str, str]] = [
    ({"token": "x"}, "forbidden", "wrong_login", "the token is unknown, or no longer valid"),
    (
        {"code": "x"},
        "forbidden",
        "wrong_login",
        "the code is unknown, used, or too old; run `stdiod page` again",
    ),
    (
        {"token": "x", "pid": 1},
        "bad_request",
        "invalid_args",
        "a pid is that of a process of the user uid, which is missing",
    ),
    (
        {"code": "x", "token": "y", "uid": 1},
        "bad_request",
        "invalid_args",
        "login.open takes one of token, code and uid, not token and code and uid",
    ),
]


@pytest.mark.parametrize(("args", "code", "why", "words"), WRONG, ids=str)
async def test_a_login_that_is_not_opened_is_refused_with_the_reason(
    args: dict[str, Any], code: str, why: str, words: str
) -> None:
    async with gateway() as (_, one):
        error = (await one.op("login.open", None, **args))["error"]
        assert (error["code"], error["message"]) == (code, words)
        assert (error["details"]["origin"], error["details"]["reason"]) == ("host", why)
        assert (await one.opened(uid=os.geteuid())) == "h1"


async def test_a_login_with_an_unknown_view_is_over_before_its_answer() -> None:
    async with gateway() as (daemon, one), daemon.lines() as theirs:
        follower = Gateway(theirs)
        await follower.begin_op("follow", "login.follow", None)
        await follower.event("follow")
        refused = await one.op("login.open", uid=os.geteuid(), view="nothing")
        assert reason(refused) == "bad_request/invalid_args"
        assert refused["error"]["details"]["pointer"] == "/view"
        assert (await follower.event("follow"))["fields"] == {"handle": "h1", "why": "closed"}
        assert reason(await one.invoke("h1", "echo")) == OVER


async def test_no_connection_with_fewer_rights_asks_as_another() -> None:
    async with gateway() as (daemon, one), daemon.lines() as theirs:
        login, other = await one.opened(uid=os.geteuid()), Gateway(theirs)
        assert (await other.op("narrow", scopes=["invoke"]))["ok"]
        words = f"{USER} may not ask as another: only a connection of the control socket with all"
        assert (await other.invoke(login, "echo"))["error"]["message"].startswith(words)
        assert (await one.invoke(login, "echo"))["ok"]


# --- Names that resemble others ---------------------------------------------------

ALIKE = [
    "bob",
    "Bob",
    "bob ",
    " bob",
    "b\u043eb",  # Cyrillic
    "b\u03bfb",  # Greek
    "\uff42\uff4f\uff42",  # full width
    "b\u00f3b",
    "bo\u0301b",  # the same, decomposed
    "token:bob",
    USER,
]
UNREADABLE = ["", " ", "bob\u00a0", "bob\u200b", "bob\u202e", "b\u00adob", "bob\n", "bob\x00"]
"""Names that nobody could tell from others."""


async def test_of_tokens_whose_names_are_alike_the_one_is_revoked_that_is_named() -> None:
    async with gateway() as (daemon, one), daemon.lines() as theirs:
        follower = Gateway(theirs)
        await follower.begin_op("follow", "login.follow", None)
        await follower.event("follow")
        for name in UNREADABLE:
            refused = await one.op("token.new", name=name)
            assert reason(refused) == "bad_request/invalid_args", name
        logins = {}
        for name in ALIKE:
            said = await one.token(name=name, modules=["m" if name == "bob" else "n"])
            opened = (await one.op("login.open", token=said))["result"]
            assert opened["name"] == f"token:{name}"
            logins[name] = opened["handle"]
        session = (await one.op("session.new", logins["bob"]))["result"]["session_id"]
        for name, login in logins.items():
            module, other = ("m", "n") if name == "bob" else ("n", "m")
            assert (await one.invoke(login, "echo", module))["ok"], name
            assert reason(await one.invoke(login, "echo", other)) == "bad_request/unknown_module"
            listed = (await one.op("session.list", login))["result"]["sessions"]
            assert [found["session_id"] for found in listed] == [session] * (name == "bob"), name
        for name in (*UNREADABLE, "BOB", "bob  "):
            assert reason(await one.op("token.revoke", name=name)) == "bad_request/invalid_args"
        while logins:
            name, login = logins.popitem()
            assert (await one.op("token.revoke", name=name))["ok"]
            told = (await follower.event("follow"))["fields"]
            assert told == {"handle": login, "why": "revoked"}, name
            assert reason(await one.invoke(login, "echo")) == OVER
            for other, still in logins.items():
                module = "m" if other == "bob" else "n"
                assert (await one.invoke(still, "echo", module))["ok"], (name, other)


async def test_a_handle_or_a_glob_that_resembles_another_is_not_that_one() -> None:
    async with gateway() as (_, one):
        login = await one.opened(uid=os.geteuid())
        assert login == "h1"
        for alike in ("H1", "h1 ", " h1", "h01", "h\uff11", "h1\x00", "h\u0661"):
            assert reason(await one.invoke(alike, "echo")) == OVER, alike
            assert reason(await one.op("login.close", handle=alike)) == OVER, alike
        for alike in ("M", "m ", "\uff4d", "\u043c", "m\u200b"):
            narrow = await one.opened(uid=os.geteuid())
            await one.op("narrow", narrow, modules=[alike])
            assert not (await one.invoke(narrow, "echo"))["ok"], alike
            assert (await one.op("login.close", handle=narrow))["ok"]
        assert (await one.invoke(login, "echo"))["ok"]


# --- Over HTTP --------------------------------------------------------------------

GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}}


async def test_no_client_over_http_is_somebody_else_whatever_handle_it_says() -> None:
    whoami: dict[str, Any] = {"whoami": {}}
    modules = actor(inputs=whoami), actor(name="n", inputs=whoami)
    async with running(*modules, http=LOOPBACK) as face, face.tcp() as his, face.tcp() as hers:
        bob = await face.token(name="bob", modules=["n"], scopes=["read", "invoke", "admin"])
        ada = await face.token(name="ada", modules=["m"])
        assert (await his.ask("GET", "/api/v1/health", token=bob)).status == 200  # and stays
        begun = await hers.ask("POST", "/mcp", message("initialize", GREETING), token=ada)
        session = ("Mcp-Session-Id", begun.headers["mcp-session-id"])
        path, own = "/api/v1/modules/n/invoke", "/api/v1/modules/m/invoke"
        for handle in ("h1", "h2", "h3"):
            said = {"op": "whoami", "as": handle}
            for given, headers in ((said, []), ({"op": "whoami"}, [("As", handle)])):
                reply = await hers.ask("POST", path, given, token=ada, headers=headers)
                assert reply.status in (400, 404), reply.body
            reply = await hers.ask("POST", f"{path}?as={handle}", said, token=ada)
            assert reply.status in (400, 404)
            called = {"name": "n__whoami", "arguments": {}, "as": handle, "_meta": {"as": handle}}
            asked = {**message("tools/call", called), "as": handle}
            reply = await hers.ask("POST", "/mcp", asked, token=ada, headers=[session])
            assert "error" in reply.json
            async with face.tcp() as client:
                socket = await upgraded(client, token=ada)
                payload = {"action": "invoke", "module": "n", "op": "whoami", "as": handle}
                await socket.say({"type": "request", "id": "1", "as": handle, "payload": payload})
                answer = await socket.frame()
                assert answer["type"] == "error" or not answer["payload"]["ok"], answer
        assert (await hers.ask("POST", own, {"op": "whoami"}, token=ada)).status == 200
        assert face.daemon.status("n")["counters"]["invocations"] == 0


INVOKE = "/api/v1/modules/m/invoke"


class TokenClients:
    """A client with nothing open, one with a call, an MCP session, a stream and a WebSocket."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def come(self, face: Running, left: contextlib.AsyncExitStack) -> None:
        token = self._token
        self.idle, self.busy, mcp, self.streamed, watched = [
            await left.enter_async_context(face.tcp()) for _ in range(5)
        ]
        assert (await self.idle.ask("GET", "/api/v1/health", token=token)).status == 200
        begun = await mcp.ask("POST", "/mcp", message("initialize", GREETING), token=token)
        assert begun.status == 200
        self.session = ("Mcp-Session-Id", begun.headers["mcp-session-id"])
        events = [("Accept", "text/event-stream")]
        await self.streamed.send("GET", "/api/v1/events?since=0", token=token, headers=events)
        assert (await self.streamed.head()).status == 200
        self.socket = await upgraded(watched, token=token)
        await self.busy.send("POST", INVOKE, {"op": "hang", "timeout_s": 60}, token=token)
        await wait_until(lambda: in_flight(face) or not has_token(face), "the call")
        assert in_flight(face)

    async def have_nothing(self) -> None:
        with trio.fail_after(WAIT_S):
            assert (await self.busy.reply()).status == 499
            assert await self.busy.is_closed()
            assert await self.idle.is_closed()
            assert (await self.socket.closed())[0] == NOT_ALLOWED
            assert b"event: done" in await self.streamed.rest()
            assert await self.streamed.is_closed()


def in_flight(face: Running) -> int:
    count: int = face.daemon.status("m")["in_flight"]
    return count


def has_token(face: Running) -> bool:
    return bool(face.daemon.op("token.list")["tokens"])


@pytest.mark.parametrize("why", ["revoked", "expired"])
async def test_who_came_over_http_with_a_token_that_is_over_has_nothing_any_more(why: str) -> None:
    async with running(actor(), http=LOOPBACK) as face, contextlib.AsyncExitStack() as left:
        assert face.address  # the gateway serves
        scopes, lives_s = ["read", "invoke", "admin"], 3
        while True:
            lives = {"expires_s": lives_s} if why == "expired" else {}
            token = await face.token(scopes=scopes, **lives)
            clients = TokenClients(token)
            try:
                await clients.come(face, left)
                break
            except (AssertionError, h11.ProtocolError, trio.BrokenResourceError):
                if has_token(face):
                    raise
                lives_s *= 2  # on a slow machine it has expired before all were there
        if why == "revoked":
            face.daemon.op("token.revoke", name="ada")
        await clients.have_nothing()
        for method, path, body, more in (
            ("POST", INVOKE, {"op": "echo"}, []),
            ("POST", "/mcp", message("ping"), [clients.session]),
        ):
            async with face.tcp() as client:
                reply = await client.ask(method, path, body, token=token, headers=more)
                assert reply.status == 401
        await face.has_in_flight(0)
