"""The client of a request: its connection, its token or cookie, the origin of its page.

    http.sock    whoever may open it is its user, as the kernel knows it: a module's process, too
    HOST:PORT    each request needs a token; a browser's is in a cookie of our own origin

A page of any site can point its own name at 127.0.0.1 (DNS rebinding), and have a browser send
requests here: both are refused by the head alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
import re
import socket
import struct
from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.amcp_errors import ErrorCode
from supervisor.edge.http.daemon import Credentials, Daemon, Login
from supervisor.edge.http.messages import (
    CLOSE,
    Refusal,
)
from supervisor.edge.http.room import Holder
from supervisor.policy.http_exposure import Exposure, is_loopback

if TYPE_CHECKING:
    from supervisor.edge.http.exchange import Exchange
    from supervisor.edge.http.messages import (
        Headers,
    )

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::(\d{1,5}))?")
_PEER = struct.Struct("iII")  # unix(7): pid, uid, gid
_NUMBERS = itertools.count(1)

CLIENTS: Counter[str] = Counter()
"""How many connections each source has."""


class Peer(Holder):
    """A client's connection, of which the server makes one: `scope["state"]["peer"]`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.of_socket: Credentials | None = None
        """The user and process at the other side of a Unix socket; None over TCP."""
        self.login: Login | None = None
        """The login of the last request; each request may come with another token."""
        self.is_parting = False
        """Whether the connection is closed after the open request."""
        self.exchange: Exchange | None = None
        """Its request that is being answered."""
        self._daemon: Daemon | None = None
        self.is_gone = False
        """Whether the client has hung up."""
        self.loop = asyncio.get_running_loop()
        self._transport = transport
        self.unanswered_bytes = 0
        self._unread_bytes = 0
        client: Any = transport.get_extra_info("socket")
        if client.family == socket.AF_UNIX:
            raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            pid, uid, _ = _PEER.unpack(raw)
            # 0: of another namespace, in which no module of ours is.
            number = next(_NUMBERS)
            self.of_socket = Credentials(uid=uid, pid=pid or None, connection=number)
            self.source = f"user {uid}"
            """The address or user of the client: all its connections count for it."""
        else:
            self.source = f"address {transport.get_extra_info('peername')[0]}"
        super().__init__(self.source)
        CLIENTS[self.source] += 1

    # Its login.

    def use(self, login: Login, daemon: Daemon) -> None:
        """Take the login of a request for the connection's."""
        if login is not self.login:
            self._leave_login()
            self.login, self._daemon = login, daemon
            daemon.use(login, self)
            self.belong_to(login.name)

    def login_over(self, login: Login) -> None:
        """Part from a client whose token is over (`Login`)."""
        if login is self.login:
            self.login = None
            if login.has_ended:
                self.is_parting = True
                self.answered()

    def answered(self) -> None:
        """Let its login go, or close the connection, if that is due and no request is open."""
        if self.is_gone and self.exchange is None:
            self._leave_login()
        elif self.is_parting and self.exchange is None:
            self.close()

    def close(self) -> None:
        """Close the connection once what was written is read."""
        self._transport.close()

    def gone(self) -> None:
        """End the open request, and let its login go after that; idempotent."""
        if not self.is_gone:
            CLIENTS[self.source] -= 1
            if not CLIENTS[self.source]:
                del CLIENTS[self.source]
            if self.exchange is not None:
                self.exchange.hung_up()
        self.is_gone = True
        self.hold_nothing()
        self.answered()

    def _leave_login(self) -> None:
        if self.login is not None and self._daemon is not None:
            self._daemon.leave(self.login, self)
            self.login = None

    # The bytes that the gateway holds for it.

    def received(self, size: int) -> None:
        """Count bytes of requests or messages."""
        self.unanswered_bytes += size
        self.hold(size)

    def passed_on(self, size: int) -> None:
        """Count so many bytes of those no more: they are passed on, or answered."""
        self.unanswered_bytes -= size
        self.hold(-size)

    def unread(self, size: int) -> None:
        """Count the bytes of answers that the client has not read."""
        self.hold(size - self._unread_bytes)
        self._unread_bytes = size

    def lose(self) -> None:
        """Refuse the open request, or hang up if its answer has begun."""
        if self.exchange is not None and not self.exchange.is_begun:
            self.is_parting = True
            self.exchange.lose()
        else:
            self._transport.abort()


class Door(msgspec.Struct, frozen=True):
    """The hosts, origins and tokens that requests to one address need."""

    served: str | None = None
    """The host that requests may name beside those of loopback; None for any."""
    scheme: str = "http"
    origins: frozenset[str] = frozenset()
    """Origins whose pages may use it, too."""
    cookie: str | None = None
    """The name of the cookie of a logged in browser; None where no token is needed."""

    @classmethod
    def of(cls, exposure: Exposure) -> Door:
        """`exposure` has the port that is listened on."""
        served = exposure.host if exposure.is_loopback else None
        if exposure.cert is None:
            return cls(served, "http", exposure.origins, f"stdiod-{exposure.port}")
        return cls(served, "https", exposure.origins, f"__Host-stdiod-{exposure.port}")

    def check_host(self, exchange: Exchange) -> str:
        """Return the host that a request is meant for; raises `Refusal`."""
        host = exchange.headers.get("host", "")
        found = _AUTHORITY.fullmatch(host)
        if found is None:
            words = "the request names no host that could be one"
            raise Refusal(ErrorCode.BAD_REQUEST, words, headers=[CLOSE])
        name = found[1].strip("[]").lower()
        if self.served is not None and name != self.served.lower() and not is_loopback(name):
            words = "this daemon is not served under the host that the request names; use localhost"
            raise Refusal(ErrorCode.FORBIDDEN, words, status=421)
        return name

    def check_origin(self, exchange: Exchange) -> None:
        """Refuse requests of pages of other origins, except the allowed ones."""
        if exchange.headers.get("origin") not in self.origins and not self.is_own_page(exchange):
            raise Refusal(ErrorCode.FORBIDDEN, "pages of other origins may not use this daemon")

    def is_own_page(self, exchange: Exchange) -> bool:
        """Whether the gateway's own page asks, or no page at all."""
        headers = exchange.headers
        site = headers.get("sec-fetch-site")
        if site is not None:  # no page can write that, and it holds behind a proxy with TLS, too
            return site in ("same-origin", "none")
        origin, host = headers.get("origin"), headers.get("host", "")
        return origin is None or origin.lower() == f"{self.scheme}://{host}".lower()

    def cookie_of(self, exchange: Exchange) -> str | None:
        """Return the login cookie of a request, unless the request is another page's.

        Of several it is the last one: cookies for a longer path come first, and ours is for all
        paths (RFC 6265 5.4).
        """
        if self.cookie is None or not self.is_own_page(exchange):
            return None
        found = None
        for one in exchange.headers.get("cookie", "").split(";"):
            key, _, value = one.strip().partition("=")
            found = value if key == self.cookie else found
        return found

    async def log_in(self, exchange: Exchange) -> Login:
        """Return the login of a request; raises as `Daemon.log_in`, and `Refusal`."""
        said = token_of(exchange)
        if said is None:
            said = self.cookie_of(exchange)
        credentials = exchange.peer.of_socket
        if said is not None:
            credentials = Credentials(token=said)
        elif credentials is None:
            raise unauthorized("this needs a token (`stdiod token new`): Authorization: Bearer")
        login = exchange.peer.login
        if login is None or login.credentials != credentials:
            login = await exchange.daemon.log_in(credentials)
            exchange.peer.use(login, exchange.daemon)
        return login


def unauthorized(words: str = "the token is unknown, or no longer valid") -> Refusal:
    """Refuse a request without a token, or with an invalid one."""
    challenge = [("WWW-Authenticate", 'Bearer realm="stdiod"')]
    return Refusal(ErrorCode.UNAUTHORIZED, words, headers=challenge)


def token_of(exchange: Exchange) -> str | None:
    """Return the token of a request, None if it has none; raises `Refusal`."""
    said = exchange.headers.get("authorization")
    if said is None:
        return None
    scheme, _, value = said.partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                whole = base64.b64decode(value.strip(), validate=True).decode()
            except (binascii.Error, ValueError):
                whole = ""
            return whole.partition(":")[2]
    raise unauthorized("Authorization takes Bearer, or Basic with the token as the password")


# Pages.


def is_visit(exchange: Exchange) -> bool:
    """Whether a browser navigates: no page of another origin sees the answer."""
    headers = exchange.headers
    return (
        exchange.method == "GET"
        and "origin" not in headers
        and (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        == ("navigate", "document")
    )


def is_preflight(exchange: Exchange) -> bool:
    """Whether this is a CORS preflight, which carries no token."""
    return exchange.method == "OPTIONS" and "access-control-request-method" in exchange.headers


def cors(exchange: Exchange, origins: Container[str]) -> Headers:
    """Return the CORS headers for a page of one of these origins."""
    origin = exchange.headers.get("origin")
    if origin is None or origin not in origins:
        return []
    said = [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
    if is_preflight(exchange):
        return [*said, *_PAGES_MAY]
    return [*said, ("Access-Control-Expose-Headers", "ETag, Retry-After, Content-Range")]


_PAGES_MAY = [
    ("Access-Control-Allow-Methods", "GET, HEAD, POST, PATCH, DELETE"),
    (
        "Access-Control-Allow-Headers",
        "Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, Range",
    ),
    ("Access-Control-Max-Age", "600"),
]
