"""The page at `/`, and how a browser logs in to it: a code becomes a cookie, as good as a token.

    GET /login?code=...    303 to the page with a cookie; or a 403 that says what to type
    POST /login            {"token":...}: 200 with the token itself as the cookie
    POST /logout           the login is over, and so is whatever was open with it

The files are read once. They say nothing of any module and need no token: the page's script calls
the routes with the login of its user. The cookie is for this daemon by its name, as browsers give
cookies to every port of a host. It is `HttpOnly`, so no script reads it, and `SameSite=Strict`, so
no page of another site has it sent; it is taken from our own page alone.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from protocol.amcp_errors import ErrorCode
from protocol.errors import Reason
from protocol.frames import encode
from protocol.problem import named
from supervisor.edge.http.auth import token_of, unauthorized
from supervisor.edge.http.daemon import Credentials, Login, OpFailedError
from supervisor.edge.http.exchange import Exchange
from supervisor.edge.http.messages import (
    JSON,
    Headers,
    Refusal,
    WholeResponse,
)
from supervisor.policy.http_exposure import is_loopback

FOLDER = Path(__file__).parent / "page"

INDEX = "index.html"
REFUSED = "refused.html"

PAGE_S = 12 * 3600
"""How long a browser keeps its cookie; the login's end is the daemon's to say."""

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_SOURCES = (
    "default-src 'none'",
    *("script-src 'self'", "style-src 'self'", "img-src 'self'", "media-src 'self'"),
    *("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    # What a module says can never become markup: a script that tried would be an error.
    *("require-trusted-types-for 'script'", "trusted-types 'none'"),
)

_SAFE: Headers = [
    ("Content-Security-Policy", "; ".join(_SOURCES)),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    # It may be kept, and is asked for again: with its tag that costs nothing.
    ("Cache-Control", "no-cache"),
]


@cache
def _files() -> dict[str, WholeResponse]:
    """Return all files by their paths below the folder; "" is the document itself."""
    found = {}
    for path in FOLDER.rglob("*"):
        if path.suffix in _MEDIA:
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            headers = [("Content-Type", _MEDIA[path.suffix]), ("ETag", tag), *_SAFE]
            name = "" if path.name == INDEX else path.relative_to(FOLDER).as_posix()
            found[name] = WholeResponse(200, headers, body)
    return found


def load_files() -> None:
    """Read the files now, and not with the first request."""
    _files()


async def send_file(exchange: Exchange, args: dict[str, Any]) -> None:
    """Send a file of the page; raises `Refusal`."""
    del args
    # A name is looked up among those that there are, and never joined to a path.
    name = "/".join(exchange.segments[1:])
    file = _files().get(name)
    if file is None:
        raise Refusal(ErrorCode.NOT_FOUND, f"the page has no file {named(name, 80)}")
    seen = exchange.headers.get("if-none-match", "")
    if dict(file.headers)["ETag"] in (one.strip().removeprefix("W/") for one in seen.split(",")):
        await exchange.respond(304, file.headers[1:], b"")
    else:
        await exchange.respond(*file)


async def log_in_by_code(exchange: Exchange, args: dict[str, Any]) -> None:
    """Answer a browser with a code; raises `Refusal`."""
    leads_on: Headers = [("Location", "./"), ("Referrer-Policy", "no-referrer")]
    if exchange.method == "HEAD" or exchange.door.cookie is None:  # nothing to use a code up for
        await exchange.respond(303, leads_on, b"")
        return
    code = args.get("code", "")
    try:
        cookie = await exchange.daemon.log_in_by_code(code)
    except OpFailedError as error:
        _check_wrong(error, "too many codes were wrong; run `stdiod page` again")
        refused = _files()[REFUSED]
        await exchange.respond(403, refused.headers, refused.body)
        return
    await exchange.respond(303, [*leads_on, _cookie(exchange, cookie, PAGE_S)], b"")


async def log_in_by_token(exchange: Exchange, args: dict[str, Any]) -> None:
    """Make a browser's token its cookie, which ends with the token; raises `Refusal`."""
    door, said = exchange.door, args.get("token", "")
    headers = [JSON]
    if door.cookie is not None:
        if door.scheme != "https" and not is_loopback(door.check_host(exchange)):
            words = "others could read the token here: use TLS or localhost, or `stdiod page`"
            raise Refusal(ErrorCode.FORBIDDEN, words)
        try:
            await exchange.daemon.log_in(Credentials(token=said))
        except OpFailedError as error:
            _check_wrong(error, "too many tokens were wrong; try again")
            raise unauthorized() from None
        headers.append(_cookie(exchange, said, PAGE_S))
    await exchange.respond(200, headers, encode({"logged_in": door.cookie is not None}))


async def log_out(exchange: Exchange, args: dict[str, Any]) -> None:
    """End the login of a browser, by token or cookie.

    A request may have both: the token names the principal, and the cookie is taken back.
    """
    del args
    login, forgotten = exchange.login, False
    of_cookie = await _of_cookie(exchange)
    for one in {login, of_cookie}:
        if one is not None and one.credentials.token is not None and not one.is_token:
            forgotten |= await exchange.daemon.log_out(one)
    headers = [JSON]
    if exchange.door.cookie is not None:
        headers.append(_cookie(exchange, "", 0))
    told = {"logged_out": forgotten or of_cookie is not None}
    await exchange.respond(200, headers, encode(told))


async def _of_cookie(exchange: Exchange) -> Login | None:
    said = exchange.door.cookie_of(exchange)
    if said is None:
        return None
    if token_of(exchange) is None:
        return exchange.login
    try:
        return await exchange.daemon.log_in(Credentials(token=said))
    except OpFailedError as error:
        if error.is_wrong_login:
            return None
        raise


def _check_wrong(error: OpFailedError, words: str) -> None:
    """Raise `Refusal` if too many logins were wrong, and `error` if it is another failure."""
    if error.reason == Reason.RATE_LIMITED:
        headers = [("Retry-After", "1")]
        raise Refusal(ErrorCode.RATE_LIMITED, words, headers=headers) from None
    if not error.is_wrong_login and error.reason != Reason.INVALID_ARGS:
        raise error


def _cookie(exchange: Exchange, value: str, age_s: int) -> tuple[str, str]:
    door = exchange.door
    secure = "; Secure" if door.scheme == "https" else ""
    kept = f"Max-Age={age_s}; Path=/; HttpOnly; SameSite=Strict{secure}"
    return "Set-Cookie", f"{door.cookie}={value}; {kept}"
