"""Who is let in, from where, and what is said of it."""

from __future__ import annotations

import base64
import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.faces.running import LOOPBACK, SOCK, Running, running
from tests.system.descriptors import actor


async def test_the_user_of_the_socket_may_do_everything() -> None:
    async with running(http=SOCK) as face:
        path = face.daemon.folder / "http.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with face.unix() as client:
            asked = await client.ask("POST", "/api/v1/modules/supervisor/invoke", {"op": "narrow"})
            name = pwd.getpwuid(os.geteuid()).pw_name
            assert asked.json["result"] == {
                "name": name,
                "face": "http",
                "scopes": ["read", "invoke", "admin"],
                "modules": ["*"],
            }
        face.daemon.end()
        assert not path.exists()


async def test_over_tcp_everything_needs_a_token(at_loopback: Running, token: str) -> None:
    for method, path in (("GET", "/api/v1/health"), ("OPTIONS", "*"), ("GET", "/nothing")):
        async with at_loopback.tcp() as client:
            reply = await client.ask(method, path)
            assert (reply.status, reply.json["code"]) == (401, "UNAUTHORIZED")
            assert reply.headers["www-authenticate"] == 'Bearer realm="stdiod"'
    async with at_loopback.tcp() as client:
        for said in (token[:-1], "x"):
            reply = await client.ask("GET", "/api/v1/health", token=said)
            assert reply.status == 401
            assert said not in reply.body.decode()
        assert (await client.ask("GET", "/api/v1/health", token=token)).status == 200
        basic = base64.b64encode(f"anyone:{token}".encode()).decode()
        headers = [("Authorization", f"Basic {basic}")]
        assert (await client.ask("GET", "/api/v1/health", headers=headers)).status == 200
        for bad in ("Basic !", "Digest x", "Basic " + base64.b64encode(b"\xff").decode()):
            headers = [("Authorization", bad)]
            assert (await client.ask("GET", "/api/v1/health", headers=headers)).status == 401


async def test_a_token_may_what_it_was_made_for() -> None:
    modules = [actor(name=name) for name in ("kv", "x1")]
    async with running(*modules, http=LOOPBACK) as face, face.tcp() as client:
        token = await face.token(scopes=["read", "invoke"], modules=["kv.echo"])
        shown = (await client.ask("GET", "/api/v1/modules", token=token)).json["modules"]
        assert [one["name"] for one in shown] == ["kv"]
        for path, body, status in (
            ("/api/v1/modules/kv/invoke", {"op": "echo"}, 200),
            ("/api/v1/modules/kv/invoke", {"op": "hang"}, 403),
            ("/api/v1/modules/x1/invoke", {"op": "echo"}, 404),
            ("/api/v1/modules/kv/stop", {}, 403),
            ("/api/v1/modules/supervisor/invoke", {"op": "shutdown"}, 403),
        ):
            assert (await client.ask("POST", path, body, token=token)).status == status
        # On the same connection somebody else may ask.
        admin = await face.token(name="boss", scopes=["read", "admin"])
        assert (await client.ask("POST", "/api/v1/modules/kv/stop", token=admin)).status == 200


async def test_a_token_on_the_socket_counts_there_too(at_loopback: Running) -> None:
    async with at_loopback.unix() as client:
        token = await at_loopback.token(name="reader", scopes=["read"])
        assert (await client.ask("POST", "/api/v1/sessions", {}, token=token)).status == 403
        assert (await client.ask("GET", "/api/v1/sessions", token=token + "x")).status == 401
        assert (await client.ask("POST", "/api/v1/sessions", {})).status == 201


@pytest.fixture(scope="module")
def token(at_loopback: Running) -> str:
    made: str = at_loopback.daemon.op("token.new", name="ada")["token"]
    return made


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Host", "evil.example")], 421),
        ([("Host", "localhost:1")], 200),
        ([("Host", "[::1]:8080")], 200),
        ([("Host", "a b")], 400),
        ([("Origin", "http://evil.example")], 403),
        ([("Origin", "null")], 403),
        ([("Origin", "http://localhost")], 200),
        ([("Origin", "https://localhost")], 403),
        ([("Sec-Fetch-Site", "cross-site")], 403),
        ([("Sec-Fetch-Site", "same-origin")], 200),
    ],
)
async def test_pages_of_others_are_kept_out(
    headers: list[tuple[str, str]], status: int, at_loopback: Running, token: str
) -> None:
    async with at_loopback.tcp() as client:
        said = dict([("Host", "localhost"), *headers])
        lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        text = f"GET /api/v1/health HTTP/1.1\r\n{lines}Authorization: Bearer {token}\r\n\r\n"
        await client.write(text.encode())
        client.expect_reply()
        reply = await client.reply()
        assert reply.status == status
        assert not any(name.startswith("access-control") for name in reply.headers)


async def test_pages_of_origins_that_are_named_may_use_it() -> None:
    page, other = "https://example.org", "https://example.net"
    config = f'http_origins = ["{page}"]\n'
    async with running(http=LOOPBACK, config=config) as face, face.tcp() as client:
        token = await face.token()
        asks = [("Access-Control-Request-Method", "POST"), ("Origin", page)]
        # A browser says no token with this.
        may = await client.ask("OPTIONS", "/api/v1/sessions", headers=asks)
        assert (may.status, may.headers["access-control-allow-origin"]) == (204, page)
        assert "Authorization" in may.headers["access-control-allow-headers"]
        for said, status in ((token, 200), (token + "x", 401)):
            reply = await client.ask(
                "GET", "/api/v1/sessions", token=said, headers=[("Origin", page)]
            )
            assert (reply.status, reply.headers["vary"]) == (status, "Origin")
            assert reply.headers["access-control-allow-origin"] == page
        for method, more in (("GET", []), ("OPTIONS", asks[:1])):
            headers = [("Origin", other), *more]
            reply = await client.ask(method, "/api/v1/sessions", token=token, headers=headers)
            assert reply.status == 403
            assert not any(name.startswith("access-control") for name in reply.headers)


async def test_a_token_is_good_for_so_many_requests_a_second(at_loopback: Running) -> None:
    async with at_loopback.tcp() as one, at_loopback.tcp() as two:
        token = await at_loopback.token(name="slow", rate_per_s=0.001)
        assert (await one.ask("GET", "/api/v1/health", token=token)).status == 200
        late = await two.ask("GET", "/api/v1/health", token=token)
        assert (late.status, late.json["code"]) == (429, "RATE_LIMITED")
        assert 900 < int(late.headers["retry-after"]) <= 1000
        other = await at_loopback.token(name="fast", rate_per_s=1e6)
        assert (await two.ask("GET", "/api/v1/health", token=other)).status == 200


@pytest.mark.parametrize("query", ["token=", "access_token=", "API_KEY="])
async def test_a_token_in_a_url_is_refused_and_not_said_again(
    query: str, at_loopback: Running, token: str
) -> None:
    async with at_loopback.tcp() as client:
        reply = await client.ask("GET", f"/api/v1/health?{query}{token}", token=token)
        assert (reply.status, reply.json["code"]) == (400, "BAD_REQUEST")
        assert token not in reply.body.decode()


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of localhost for this test alone, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    where = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *words.split(), *name, *where], check=True, capture_output=True)
    return cert, key


async def test_an_address_may_have_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    options = ("--http-cert", str(cert), "--http-key", str(key))
    async with running(actor(), http=LOOPBACK, options=options) as face:
        assert face.address.startswith("https://127.0.0.1:")
        token = await face.token()
        async with face.tcp(trusted=cert) as client:
            assert (await client.ask("GET", "/api/v1/health", token=token)).status == 200
            body = {"op": "echo", "args": {"x": "y" * 200_000}}
            large = await client.ask("POST", "/api/v1/modules/m/invoke", body, token=token)
            assert large.json["result"] == body["args"]
        async with face.tcp() as client:  # without TLS
            await client.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert not (await client.stream.receive_some(10)).startswith(b"HTTP")
