"""How a browser logs in and out, and from whose pages its cookie is taken."""

from __future__ import annotations

import json
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from supervisor.faces.http.page_login import WRONG_PER_S
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.store.settings import JournalOptions
from supervisor.kernel.tokens import PAGE_S
from supervisor.policy.http_exposure import Exposure
from tests.faces.http.client import Client, Reply
from tests.faces.http.in_process import LOOPBACK, Served, served
from tests.faces.http.test_security import certificate
from tests.factories import actor
from tests.kernel.conftest import daemon_with, own
from tests.principals import ADA
from tests.system.descriptors import CALM

VISIT = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]


async def code_of(daemon: Kernel, **args: Any) -> str:
    code: str = (await own(daemon, ADA, "page.login", **args))["code"]
    return code


async def logged_in(face: Served, client: Client, **args: Any) -> list[tuple[str, str]]:
    """Return the header with which a browser is logged in."""
    reply = await client.ask("GET", f"/login?code={await code_of(face.daemon, **args)}")
    return [("Cookie", f"theme=dark; {reply.headers['set-cookie'].partition(';')[0]}")]


async def test_a_code_becomes_a_cookie_that_is_as_good_as_a_token(tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path, actor(tmp_path, supervision=CALM)) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
    ):
        code = await code_of(daemon)
        came: Reply = await client.ask("GET", f"/login?code={code}", headers=VISIT)
        assert (came.status, came.headers["location"]) == (303, "./")
        assert came.headers["referrer-policy"] == "no-referrer"
        port = face.doors[-1].listener.getsockname()[1]
        ((name, cookie),) = SimpleCookie(came.headers["set-cookie"]).items()
        assert name == f"stdiod-{port}"
        said = {key: cookie[key] for key in ("httponly", "samesite", "path", "max-age", "domain")}
        assert said == {
            "httponly": True,
            "samesite": "Strict",
            "path": "/",
            "max-age": str(int(PAGE_S)),
            "domain": "",
        }
        with_it = [("Cookie", f"{name}=stolen; {name}={cookie.value}")]
        asked = {"op": "narrow"}
        who = await client.ask("POST", "/api/v1/modules/supervisor/invoke", asked, headers=with_it)
        assert (who.json["result"]["name"], who.json["result"]["face"]) == ("ada", "http")
        again = await client.ask("GET", f"/login?code={code}")
        assert again.status == 403
        assert "stdiod page" in again.body.decode()
        assert code not in again.body.decode()
        assert "set-cookie" not in again.headers
        assert "default-src 'none'" in again.headers["content-security-policy"]


async def by_token(client: Client, said: str, **more: Any) -> Reply:
    return await client.ask("POST", "/login", {"token": said}, **more)


async def test_a_token_becomes_a_cookie_that_ends_with_it_or_by_logging_out(tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
        face.tcp() as late,
    ):
        token = await face.token(name="ci", scopes=["read"])
        came = await by_token(client, token)
        assert (came.status, came.json) == (200, {"logged_in": True})
        assert "HttpOnly; SameSite=Strict" in came.headers["set-cookie"]
        cookie = [("Cookie", came.headers["set-cookie"].partition(";")[0])]
        who = await client.ask(
            "POST", "/api/v1/modules/supervisor/invoke", {"op": "narrow"}, headers=cookie
        )
        assert (who.json["result"]["name"], who.json["result"]["scopes"]) == ("token:ci", ["read"])
        out = await client.ask("POST", "/logout", headers=cookie)
        assert out.json == {"logged_out": True}
        assert "Max-Age=0" in out.headers["set-cookie"]
        assert (await late.ask("GET", "/api/v1/status", token=token)).status == 200
        await own(daemon, ADA, "token.revoke", name="ci")
        async with face.tcp() as one:
            assert (await one.ask("GET", "/api/v1/status", headers=cookie)).status == 401


@pytest.mark.usefixtures("mock_clock")
async def test_wrong_tokens_are_bounded_as_wrong_codes_are_and_a_good_one_is_taken_all_the_same(
    tmp_path: Path,
) -> None:
    """The clock stands still, so the rate allows no further one while the test runs."""
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
    ):
        token = await face.token()
        wrong = [token[:-1]] * int(WRONG_PER_S) + [token + "x", ""]
        replies = [await by_token(client, said) for said in wrong]
        assert [one.status for one in replies] == [401] * int(WRONG_PER_S) + [429, 429]
        assert not any("set-cookie" in one.headers for one in replies)
        assert (await client.ask("GET", "/login?code=x")).status == 429
        assert (await by_token(client, token)).status == 200


@pytest.mark.parametrize("host", ["box.example", "192.0.2.7:80", "localhost.example"])
async def test_a_token_is_taken_over_tls_or_at_loopback_and_else_it_is_said_why_not(
    tmp_path: Path, host: str
) -> None:
    cert, key = certificate(tmp_path)
    for exposure, is_safe in (
        (Exposure(host="0.0.0.0"), False),
        (Exposure(host="0.0.0.0", cert=cert, key=key), True),
    ):
        async with (
            daemon_with(tmp_path) as daemon,
            served(daemon, tmp_path, exposure) as face,
            face.tcp(trusted=exposure.cert) as client,
        ):
            token = await face.token()
            body = json.dumps({"token": token}).encode()
            head = f"POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            await client.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            client.expect_reply()
            reply = await client.reply()
            assert reply.status == (200 if is_safe else 403)
            assert ("set-cookie" in reply.headers) == is_safe
            assert is_safe or "others could read the token here: use TLS" in reply.json["error"]
        async with (
            daemon_with(tmp_path) as daemon,
            served(daemon, tmp_path, exposure) as face,
            face.tcp(trusted=exposure.cert) as client,
        ):
            assert (await by_token(client, await face.token())).status == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"token": 7}, [], 400),
        ({"tokens": "x"}, [], 400),
        ({"token": "x" * 20_000}, [], 413),
        (b"token=x", [("Content-Type", "application/x-www-form-urlencoded")], 415),
        ({"token": "x"}, [("Origin", "http://evil.example")], 403),
        ({"token": "x"}, [("Sec-Fetch-Site", "cross-site")], 403),
        ({}, [], 401),
        (b"", [], 401),
    ],
)
async def test_what_is_no_token_of_our_own_page_lets_nobody_in(
    tmp_path: Path, body: Any, headers: list[tuple[str, str]], status: int
) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
    ):
        reply = await client.ask("POST", "/login", body, headers=headers)
        assert reply.status == status
        assert "set-cookie" not in reply.headers


@pytest.mark.usefixtures("mock_clock")
async def test_wrong_codes_become_fewer_words_and_a_good_one_is_taken_all_the_same(
    tmp_path: Path,
) -> None:
    """The clock stands still, so the rate allows no further one while the test runs."""
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
    ):
        asked = range(int(WRONG_PER_S) + 2)
        statuses = [(await client.ask("GET", "/login?code=x")).status for _ in asked]
        assert statuses == [403] * int(WRONG_PER_S) + [429, 429]
        assert (await client.ask("GET", f"/login?code={await code_of(daemon)}")).status == 303


async def test_a_page_of_another_site_may_lead_to_the_login_and_see_nothing_of_it(
    tmp_path: Path,
) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
    ):
        other = ("Sec-Fetch-Site", "cross-site")
        path = f"/login?code={await code_of(daemon)}"
        for dest in ("iframe", "image"):
            headers = [other, VISIT[0], ("Sec-Fetch-Dest", dest)]
            assert (await client.ask("GET", path, headers=headers)).status == 403
        assert (await client.ask("GET", path, headers=[other, *VISIT])).status == 303
        assert (await client.ask("GET", "/", headers=[other, *VISIT])).status == 200
        cookie = await logged_in(face, client)
        headers = [other, *VISIT, *cookie]
        assert (await client.ask("GET", "/api/v1/status", headers=headers)).status == 403


async def test_a_cookie_is_taken_from_our_own_page_alone(tmp_path: Path) -> None:
    page = "http://localhost:3000"
    exposure = replace(LOOPBACK, origins=frozenset({page}))
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, exposure) as face,
        face.tcp() as client,
    ):
        cookie = await logged_in(face, client)
        for more, status in (
            ([], 201),
            ([("Origin", "http://localhost")], 201),
            ([("Origin", "https://localhost"), ("Sec-Fetch-Site", "same-origin")], 201),
            ([("Origin", page)], 401),  # which may use it with a token
            ([("Origin", page), ("Sec-Fetch-Site", "same-site")], 401),
            ([("Origin", "http://evil.example")], 403),
            ([("Sec-Fetch-Site", "same-site")], 403),
        ):
            async with face.tcp() as one:  # what is refused before its body ends the connection
                reply = await one.ask("POST", "/api/v1/sessions", {}, headers=[*cookie, *more])
            assert reply.status == status, more
            assert "access-control-allow-credentials" not in reply.headers
        form = [("Content-Type", "text/plain"), *cookie]
        assert (await client.ask("POST", "/api/v1/sessions", {}, headers=form)).status == 415


async def test_who_logs_out_with_a_token_has_the_login_of_the_cookie_ended_too(
    tmp_path: Path,
) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
        face.tcp() as late,
    ):
        cookie, token = await logged_in(face, client), await face.token()
        for ended in (True, False):
            out = await client.ask("POST", "/logout", headers=cookie, token=token)
            assert out.json == {"logged_out": ended}
            assert "Max-Age=0" in out.headers["set-cookie"]
        assert (await late.ask("GET", "/api/v1/status", headers=cookie)).status == 401
        # The token is none of a browser's, and goes on.
        assert (await client.ask("GET", "/api/v1/status", token=token)).status == 200


async def test_who_logs_out_is_parted_from_and_has_no_login_any_more(tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
        face.tcp() as stream,
    ):
        cookie = await logged_in(face, client)
        other = await logged_in(face, client)
        live = [*cookie, ("Accept", "text/event-stream")]
        await stream.send("GET", "/api/v1/approvals", headers=live)
        while not daemon.approvals.status(ADA)["followers"]:
            await trio.lowlevel.checkpoint()
        out = await client.ask("POST", "/logout", headers=cookie)
        assert out.json == {"logged_out": True}
        assert "Max-Age=0" in out.headers["set-cookie"]
        assert await client.is_closed()
        while not await stream.is_closed():
            pass
        async with face.tcp() as late:
            for who, status in ((cookie, 401), (other, 200)):
                reply = await late.ask("GET", "/api/v1/status", headers=who)
                assert reply.status == status
            token = await face.token()
            out = await late.ask("POST", "/logout", token=token)
            assert out.json == {"logged_out": False}
            assert (await late.ask("GET", "/api/v1/status", token=token)).status == 200


async def test_a_login_may_what_its_page_was_made_for(tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
    ):
        cookie = await logged_in(face, client, scopes=["read"])
        assert (await client.ask("GET", "/api/v1/sessions", headers=cookie)).status == 200
        assert (await client.ask("POST", "/api/v1/sessions", {}, headers=cookie)).status == 403


async def test_a_login_is_good_with_the_next_daemon(tmp_path: Path) -> None:
    port = 0
    cookie: list[tuple[str, str]] = []
    for _ in range(2):
        exposure = Exposure(host="127.0.0.1", port=port)
        async with (
            daemon_with(tmp_path, memory=JournalOptions()) as daemon,
            served(daemon, tmp_path, exposure) as face,
            face.tcp() as client,
        ):
            port = face.doors[-1].listener.getsockname()[1]
            cookie = cookie or await logged_in(face, client)
            assert (await client.ask("GET", "/api/v1/health", headers=cookie)).status == 200


async def test_over_tls_the_cookie_goes_nowhere_else(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    exposure = Exposure(host="127.0.0.1", port=0, cert=cert, key=key)
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, exposure) as face,
        face.tcp(trusted=cert) as client,
    ):
        came = await client.ask("GET", f"/login?code={await code_of(daemon)}")
        assert came.headers["set-cookie"].startswith("__Host-stdiod-")
        assert came.headers["set-cookie"].endswith("; Secure")


async def test_on_the_socket_nobody_needs_a_login(tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path) as face,
        face.unix() as client,
    ):
        code = await code_of(daemon)
        came = await client.ask("GET", f"/login?code={code}")
        assert came.status == 303
        assert "set-cookie" not in came.headers
        assert daemon.page_codes.take(code, trio.current_time()) is not None
        asked = await by_token(client, await face.token())
        assert (asked.json, "set-cookie" in asked.headers) == ({"logged_in": False}, False)


@pytest.mark.parametrize("header", ["Cookie: a=1\r\nCookie: b=2", "Cookie:"])
async def test_an_odd_cookie_lets_nobody_in(header: str, tmp_path: Path) -> None:
    async with (
        daemon_with(tmp_path) as daemon,
        served(daemon, tmp_path, LOOPBACK) as face,
        face.tcp() as client,
    ):
        await client.write(
            f"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode()
        )
        client.expect_reply()
        assert (await client.reply()).status in (400, 401)
