"""How a browser logs in and out: a code becomes a cookie, which is then as good as a token.

    GET /login?code=...    303 to the page with a cookie; or a 403 that says what to type
    POST /login            {"token":...}: 200 with the token itself as the cookie
    POST /logout           the login is over, and so is whatever was open with it

The cookie is for this daemon by its name, as browsers give cookies to every port of a host. It is
`HttpOnly`, so no script reads it, and `SameSite=Strict`, so no page of another site has it sent;
`connection` takes it from our own page alone.
"""

from __future__ import annotations

import trio

from protocol.amcp_errors import ErrorCode
from protocol.frames import encode
from supervisor.faces.http.connection import JSON, HttpConnection
from supervisor.faces.http.head import Head, Headers, Refusal, check_host, unauthorized
from supervisor.faces.http.identity import Peer
from supervisor.faces.http.page_files import PageFiles
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.tokens import PAGE_S
from supervisor.policy.http_exposure import is_loopback
from supervisor.policy.rate import Bucket

REFUSED = "refused.html"

WRONG_PER_S = 5.0
"""The rate of wrong codes and tokens that are answered as such; a code has 256 random bits. A valid
one is taken at any rate."""


class PageLogin:
    def __init__(self, daemon: Kernel, files: PageFiles) -> None:
        self._daemon = daemon
        self._files = files
        self._wrong = Bucket(WRONG_PER_S, trio.current_time())

    def log_in(self, connection: HttpConnection, head: Head, code: str) -> None:
        """Answer a client with a code; raises `Refusal`."""
        peer, now_s = connection.identity.peer, trio.current_time()
        leads_on: Headers = [("Location", "./"), ("Referrer-Policy", "no-referrer")]
        if head.method == "HEAD" or peer.cookie is None:  # nothing to use a code up for
            connection.respond(303, leads_on, b"")
            return
        user = self._daemon.page_codes.take(code, now_s)
        if user is not None:
            said = self._daemon.tokens.new_page(user)
            connection.respond(303, [*leads_on, _cookie(peer, said, int(PAGE_S))], b"")
            return
        self._count_wrong("too many codes were wrong; run `stdiod page` again", now_s)
        page = self._files.file(REFUSED)
        connection.respond(403, page.headers, page.body)

    def take_token(self, connection: HttpConnection, head: Head, said: str) -> None:
        """Make a browser's token its cookie, which ends with the token; raises `Refusal`."""
        peer, headers = connection.identity.peer, [JSON]
        if peer.cookie is not None:
            if peer.scheme != "https" and not is_loopback(check_host(head, None)):
                words = "others could read the token here: use TLS or localhost, or `stdiod page`"
                raise Refusal(ErrorCode.FORBIDDEN, words)
            if self._daemon.tokens.find(said) is None:
                self._count_wrong("too many tokens were wrong; try again", trio.current_time())
                raise unauthorized("the token is unknown, or no longer valid")
            headers.append(_cookie(peer, said, int(PAGE_S)))
        connection.respond(200, headers, encode({"logged_in": peer.cookie is not None}))

    def _count_wrong(self, words: str, now_s: float) -> None:
        if self._wrong.take(now_s):
            raise Refusal(ErrorCode.RATE_LIMITED, words, headers=[("Retry-After", "1")])

    def log_out(self, connection: HttpConnection, head: Head) -> None:
        """End the login of the request, by token or cookie.

        A request may have both: the token names the principal, and the cookie is taken back.
        """
        login, peer, tokens = (
            connection.identity.login,
            connection.identity.peer,
            self._daemon.tokens,
        )
        own, said = None if login is None else login.token, connection.identity.cookie(head)
        of_cookie = None if said is None else tokens.find(said)
        both = (own, of_cookie)
        ended = {one.name for one in both if one is not None and one.page_of is not None}
        headers = [JSON]
        if peer.cookie is not None:
            headers.append(_cookie(peer, "", 0))
        if own is not None and own.name in ended:
            connection.closing = True  # as all connections of that login are
        connection.respond(
            200, headers, encode({"logged_out": bool(ended) or of_cookie is not None})
        )
        for name in ended:
            tokens.revoke(name)


def _cookie(peer: Peer, value: str, age_s: int) -> tuple[str, str]:
    secure = "; Secure" if peer.scheme == "https" else ""
    kept = f"Max-Age={age_s}; Path=/; HttpOnly; SameSite=Strict{secure}"
    return "Set-Cookie", f"{peer.cookie}={value}; {kept}"
