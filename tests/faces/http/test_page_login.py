"""How a browser logs in and out, and from whose pages its cookie is taken."""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.bounds import WAIT_S
from tests.faces.http.client import Client, Reply
from tests.faces.http.test_security import certificate
from tests.faces.running import LOOPBACK, Running, running
from tests.system.daemon import Daemon

USER = pwd.getpwuid(os.geteuid()).pw_name
WRONG_PER_S = 5.0
"""The rate of wrong tokens and codes that are told so, as docs/http.md has it."""
PAGE_S = 12 * 3600
"""How long a login is good (docs/http.md)."""

VISIT = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]


def code_of(face: Running, **args: Any) -> str:
    code: str = face.daemon.op("page.login", **args)["code"]
    return code


async def logged_in(face: Running, client: Client, **args: Any) -> list[tuple[str, str]]:
    """Return the header with which a browser is logged in."""
    reply = await client.ask("GET", f"/login?code={code_of(face, **args)}")
    return [("Cookie", f"theme=dark; {reply.headers['set-cookie'].partition(';')[0]}")]


async def test_a_code_becomes_a_cookie_that_is_as_good_as_a_token() -> None:
    # A daemon of its own: a wrong code counts among the few that are told in a second.
    async with running(http=LOOPBACK) as face, face.tcp() as client:
        code = code_of(face)
        came: Reply = await client.ask("GET", f"/login?code={code}", headers=VISIT)
        assert (came.status, came.headers["location"]) == (303, "./")
        assert came.headers["referrer-policy"] == "no-referrer"
        port = face.address.rpartition(":")[2]
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
        assert (who.json["result"]["name"], who.json["result"]["face"]) == (USER, "http")
        again = await client.ask("GET", f"/login?code={code}")
        assert again.status == 403
        assert "stdiod page" in again.body.decode()
        assert code not in again.body.decode()
        assert "set-cookie" not in again.headers
        assert "default-src 'none'" in again.headers["content-security-policy"]


async def by_token(client: Client, said: str, **more: Any) -> Reply:
    return await client.ask("POST", "/login", {"token": said}, **more)


async def test_a_token_becomes_a_cookie_that_ends_with_it_or_by_logging_out(
    at_loopback: Running,
) -> None:
    async with at_loopback.tcp() as client, at_loopback.tcp() as late:
        token = await at_loopback.token(name="ci", scopes=["read"])
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
        at_loopback.daemon.op("token.revoke", name="ci")
        async with at_loopback.tcp() as one:
            assert (await one.ask("GET", "/api/v1/status", headers=cookie)).status == 401


async def test_wrong_tokens_and_codes_are_bounded_and_good_ones_are_taken_all_the_same() -> None:
    async with running(http=LOOPBACK) as face, face.tcp() as client:
        token = await face.token()
        wrong = b"".join(
            b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            for said in (token[:-1], token + "x", "")
            for body in [json.dumps({"token": said}).encode()]
        )
        wrong += b"GET /login?code=x HTTP/1.1\r\nHost: localhost\r\n\r\n"
        statuses: list[str] = []
        began, replies = time.monotonic(), b""
        with trio.fail_after(WAIT_S):
            while "429" not in statuses:
                asked = len(statuses) + 4 * 25
                await client.write(wrong * 25)
                while len(statuses) < asked:
                    replies += await client.stream.receive_some(1 << 16)
                    statuses = re.findall(r"HTTP/1.1 (\d+)", replies.decode())
        assert {*statuses} == {"401", "403", "429"}
        assert "429" not in statuses[: int(WRONG_PER_S)]
        told = len(statuses) - statuses.count("429")
        assert told <= 1 + WRONG_PER_S * (1 + time.monotonic() - began)
        assert b"set-cookie" not in replies.lower()
        async with face.tcp() as other:
            assert (await by_token(other, token)).status == 200
            assert (await other.ask("GET", f"/login?code={code_of(face)}")).status == 303


async def test_a_token_is_taken_over_tls_or_at_loopback_and_else_it_is_said_why_not(
    tmp_path: Path,
) -> None:
    cert, key = certificate(tmp_path)
    tls = ("--http-cert", str(cert), "--http-key", str(key))
    for options, trusted in ((("--http-insecure",), None), (tls, cert)):
        async with running(http="0.0.0.0:0", options=options) as face:
            token = await face.token()
            for host in ("box.example", "192.0.2.7:80", "localhost.example"):
                async with face.tcp(trusted=trusted) as client:
                    reply = await from_host(client, host, token)
                assert reply.status == (403 if trusted is None else 200), host
                assert ("set-cookie" in reply.headers) == (trusted is not None), host
                words = "others could read the token here: use TLS"
                assert trusted is not None or words in reply.json["error"], host
            async with face.tcp(trusted=trusted) as client:
                assert (await by_token(client, token)).status == 200


async def from_host(client: Client, host: str, token: str) -> Reply:
    """Log in with a token at an address that the client calls by that name."""
    body = json.dumps({"token": token}).encode()
    head = f"POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    await client.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    client.expect_reply()
    return await client.reply()


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
    body: Any, headers: list[tuple[str, str]], status: int, at_loopback: Running
) -> None:
    async with at_loopback.tcp() as client:
        reply = await client.ask("POST", "/login", body, headers=headers)
        assert reply.status == status
        assert "set-cookie" not in reply.headers


async def test_a_page_of_another_site_may_lead_to_the_login_and_see_nothing_of_it(
    at_loopback: Running,
) -> None:
    async with at_loopback.tcp() as client:
        other = ("Sec-Fetch-Site", "cross-site")
        path = f"/login?code={code_of(at_loopback)}"
        for dest in ("iframe", "image"):
            headers = [other, VISIT[0], ("Sec-Fetch-Dest", dest)]
            assert (await client.ask("GET", path, headers=headers)).status == 403
        assert (await client.ask("GET", path, headers=[other, *VISIT])).status == 303
        assert (await client.ask("GET", "/", headers=[other, *VISIT])).status == 200
        cookie = await logged_in(at_loopback, client)
        headers = [other, *VISIT, *cookie]
        assert (await client.ask("GET", "/api/v1/status", headers=headers)).status == 403


async def test_a_cookie_is_taken_from_our_own_page_alone() -> None:
    page = "http://localhost:3000"
    config = f'http_origins = ["{page}"]\n'
    async with running(http=LOOPBACK, config=config) as face, face.tcp() as client:
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
    at_loopback: Running,
) -> None:
    async with at_loopback.tcp() as client, at_loopback.tcp() as late:
        cookie, token = await logged_in(at_loopback, client), await at_loopback.token(name="both")
        for ended in (True, False):
            out = await client.ask("POST", "/logout", headers=cookie, token=token)
            assert out.json == {"logged_out": ended}
            assert "Max-Age=0" in out.headers["set-cookie"]
        assert (await late.ask("GET", "/api/v1/status", headers=cookie)).status == 401
        # The token is none of a browser's, and goes on.
        assert (await client.ask("GET", "/api/v1/status", token=token)).status == 200


async def test_who_logs_out_is_parted_from_and_has_no_login_any_more(at_loopback: Running) -> None:
    async with at_loopback.tcp() as client, at_loopback.tcp() as stream:
        cookie = await logged_in(at_loopback, client)
        other = await logged_in(at_loopback, client)
        live = [*cookie, ("Accept", "text/event-stream")]
        await stream.send("GET", "/api/v1/events", headers=live)
        assert (await stream.head()).status == 200
        out = await client.ask("POST", "/logout", headers=cookie)
        assert out.json == {"logged_out": True}
        assert "Max-Age=0" in out.headers["set-cookie"]
        assert await client.is_closed()
        while not await stream.is_closed():
            pass
        async with at_loopback.tcp() as late:
            for who, status in ((cookie, 401), (other, 200)):
                reply = await late.ask("GET", "/api/v1/status", headers=who)
                assert reply.status == status
            token = await at_loopback.token(name="stays")
            out = await late.ask("POST", "/logout", token=token)
            assert out.json == {"logged_out": False}
            assert (await late.ask("GET", "/api/v1/status", token=token)).status == 200


async def test_a_login_may_what_its_page_was_made_for(at_loopback: Running) -> None:
    async with at_loopback.tcp() as client:
        cookie = await logged_in(at_loopback, client, scopes=["read"])
        assert (await client.ask("GET", "/api/v1/sessions", headers=cookie)).status == 200
        assert (await client.ask("POST", "/api/v1/sessions", {}, headers=cookie)).status == 403


async def test_a_login_is_good_with_the_next_daemon(tmp_path: Path) -> None:
    port = 0
    cookie: list[tuple[str, str]] = []
    for _ in range(2):
        with Daemon(tmp_path, options=("--http", f"127.0.0.1:{port}")) as daemon:
            face = Running(daemon)
            port = int(face.address.rpartition(":")[2])
            async with face.tcp() as client:
                cookie = cookie or await logged_in(face, client)
                assert (await client.ask("GET", "/api/v1/health", headers=cookie)).status == 200


async def test_over_tls_the_cookie_goes_nowhere_else(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    tls = ("--http-cert", str(cert), "--http-key", str(key))
    async with (
        running(http=LOOPBACK, options=tls) as face,
        face.tcp(trusted=cert) as client,
    ):
        came = await client.ask("GET", f"/login?code={code_of(face)}")
        assert came.headers["set-cookie"].startswith("__Host-stdiod-")
        assert came.headers["set-cookie"].endswith("; Secure")


async def test_on_the_socket_nobody_needs_a_login(at_loopback: Running) -> None:
    async with at_loopback.unix() as client, at_loopback.tcp() as browser:
        code = code_of(at_loopback)
        came = await client.ask("GET", f"/login?code={code}")
        assert came.status == 303
        assert "set-cookie" not in came.headers
        # Nor is the code used up by it.
        assert (await browser.ask("GET", f"/login?code={code}")).status == 303
        asked = await by_token(client, await at_loopback.token(name="local"))
        assert (asked.json, "set-cookie" in asked.headers) == ({"logged_in": False}, False)


@pytest.mark.parametrize("header", ["Cookie: a=1\r\nCookie: b=2", "Cookie:"])
async def test_an_odd_cookie_lets_nobody_in(header: str, at_loopback: Running) -> None:
    async with at_loopback.tcp() as client:
        await client.write(
            f"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode()
        )
        client.expect_reply()
        assert (await client.reply()).status in (400, 401)
