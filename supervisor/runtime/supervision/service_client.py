"""Ask a service over HTTP/1.1, by connections that are kept for the next request.

It is httpcore that speaks, whose connections are those of httpx: what httpx has beside them would
all have to be turned off here (redirects, proxies from the environment, cookies, unpacking). This
file is imported when the first service of a daemon starts, and not before.

Whatever a service, or the way to it, does wrong is an `UnreachableError` with its reason. None of
them has a value of a header in it.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpcore
import msgspec
import trio

from protocol.descriptor.model import Descriptor
from protocol.errors import Reason
from protocol.json_line import excerpt
from protocol.problem import printable
from protocol.service_answer import HIDDEN, JSON, MEDIA, NDJSON, SSE
from protocol.version import VERSION
from supervisor.runtime.process.environment import header_secrets, known_variables, service_headers

KEPT_S = 4.0
"""How long an idle connection is used again. Servers part from theirs after 5 s and more, and a
request that crosses with that is lost."""

LOOKED_AT_BYTES = 1024
LOOK_S = 1.0
"""As much of a wrong answer is read, within such a time, to quote it."""

HEAD_BYTES = 100 << 10
"""The most that may come before an answer begins, with all 1xx: as httpcore's bound on a head."""

HEAD_PIECE_BYTES = 8 << 10
"""As much of it is looked at, before others have their turn: some 300 answers 1xx."""

GREETING_S = 10.0
"""The bound on connecting, and on the greeting of TLS; `health_s`, if that is less."""

PART_S = 1.0
"""How long the closing of all connections may take."""

_OK = 200
_IS_FINAL = re.compile(rb"HTTP/1\.[01] +[2-5]")
_SHOWN_CHARS = 200


class UnreachableError(Exception):
    """A service cannot be asked, or does not answer; `message` is a clause about it."""

    def __init__(self, reason: Reason, message: str, shown: str | None = None) -> None:
        """`shown` quotes the beginning of what came instead."""
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.shown = shown


class Reply(msgspec.Struct, frozen=True):
    """A response, and its body as it comes, of one of `protocol.service_answer.MEDIA`."""

    media: str
    chunks: AsyncIterator[bytes]


class ServiceClient:
    def __init__(self, descriptor: Descriptor, host: Mapping[str, str]) -> None:
        """Make it, unconnected; raises `UnsetVariableError`. It may block, to read certificates.

        `host` is the daemon's environment.
        """
        transport = descriptor.transport
        host = known_variables(descriptor, host)
        self.url = transport.url.rstrip("/")
        self._headers = {
            "User-Agent": f"stdiod/{VERSION}",
            **service_headers(transport, host),
            "Content-Type": JSON,
            "Accept": f"{NDJSON}, {SSE};q=0.9, {JSON};q=0.8",
            "Accept-Encoding": "identity",
        }
        spelled = [msgspec.json.encode(one)[1:-1] for one in header_secrets(transport, host)]
        plain = [one.encode() for one in header_secrets(transport, host)]
        self.secrets = tuple(dict.fromkeys([*plain, *spelled]))
        """Header values that are hidden in what it says."""
        self._origin = httpcore.URL(self.url).origin
        self._tls = ssl.create_default_context() if self.url.startswith("https:") else None
        self._greeting_s = min(GREETING_S, descriptor.supervision.timeouts.health_s)
        self._idle: list[_Connection] = []
        """The one that was used last comes last. (The pool of httpcore looks at each connection for
        each request: at 64 at a time, a call took more than twice the CPU.)"""

    async def close(self) -> None:
        with trio.move_on_after(PART_S, shield=True):
            while self._idle:
                await self._idle.pop().aclose()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[_Connection]:
        """Give a connection to one request; it is kept if its answer was read to the end."""
        while self._idle and self._idle[0].has_expired():
            await self._idle.pop(0).aclose()
        connection = _Connection(self._origin, self._tls)
        while self._idle:
            last = self._idle.pop()
            if not last.has_expired():
                connection = last
                break
            await last.aclose()
        connection.request_begins()
        try:
            yield connection
        finally:
            if connection.is_available():
                self._idle.append(connection)
            else:
                with trio.move_on_after(PART_S, shield=True):
                    await connection.aclose()

    @asynccontextmanager
    async def post(
        self, operation: str, body: bytes, traceparent: str | None = None
    ) -> AsyncIterator[Reply]:
        """Post a request, and give its reply; raises `UnreachableError`, in the block too."""
        connection: _Connection | None = None
        response: httpcore.Response | None = None
        try:
            url = f"{self.url}/{operation}"
            headers = [*self._headers.items(), ("Content-Length", str(len(body)))]
            if traceparent is not None:
                headers.append(("traceparent", traceparent))
            bounds = {"timeout": {"connect": self._greeting_s}}
            async with (
                self._connection() as connection,
                connection.stream(
                    "POST", url, headers=headers, content=_Body(body), extensions=bounds
                ) as response,
                _unwound(response.aiter_stream()) as chunks,
            ):
                connection.answer_begins()
                yield Reply(await self._media(response, chunks), chunks)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            connected, begun = (
                connection is not None and connection.is_connected,
                response is not None,
            )
            raise self._unreachable(error, has_begun=begun, connected=connected) from None

    async def _media(self, response: httpcore.Response, chunks: AsyncIterator[bytes]) -> str:
        """Return the type of a body that may be an answer."""
        status, headers = response.status, _headers(response)
        if 300 <= status < 400:  # noqa: PLR2004
            to = self._words(headers["location"].partition("?")[0])
            words = f"redirects to {to or 'nowhere'} (status {status}), and that is not followed"
            raise UnreachableError(Reason.REDIRECTED, words)
        media, _, parameters = headers["content-type"].lower().partition(";")
        packed = headers["content-encoding"].lower()
        if status != _OK:
            reason, words = Reason.BAD_STATUS, f"answers with status {status}"
        elif media.strip() not in MEDIA:
            wanted = f"{', '.join(MEDIA[:-1])} or {MEDIA[-1]}"
            said = self._words(media.strip()) or "no content type"
            reason, words = Reason.WRONG_TYPE, f"answers with {said}, where it has to be {wanted}"
        elif packed not in ("", "identity"):
            words = f"packs its answer ({self._words(packed)}), which was not asked for"
            raise UnreachableError(Reason.WRONG_TYPE, words)
        elif "charset" in parameters and "utf-8" not in parameters and "utf8" not in parameters:
            words = f"answers in another charset than UTF-8 ({self._words(parameters.strip())})"
            raise UnreachableError(Reason.WRONG_TYPE, words)
        else:
            return media.strip()
        shown = await self._beginning(chunks)
        raise UnreachableError(reason, f"{words}: {shown}" if shown else words, shown or None)

    async def _beginning(self, chunks: AsyncIterator[bytes]) -> str:
        said = b""
        with trio.move_on_after(LOOK_S):
            async for chunk in chunks:
                said += chunk[:LOOKED_AT_BYTES]
                if len(said) >= LOOKED_AT_BYTES:
                    break
        return excerpt(self._veiled(b" ".join(said.split())))

    def _unreachable(
        self, error: Exception, *, has_begun: bool, connected: bool
    ) -> UnreachableError:
        causes = list(_causes(error))
        for cause in causes:
            match cause:
                case ssl.SSLError():
                    why = getattr(cause, "verify_message", "") or cause.reason or "it broke off"
                    words = f"cannot be spoken with over TLS: {self._words(str(why))}"
                    return UnreachableError(Reason.TLS, words)
                case socket.gaierror():
                    words = f"has a name that cannot be resolved: {cause.strerror}"
                    return UnreachableError(Reason.NO_CONNECTION, words)
                case ConnectionRefusedError():
                    return UnreachableError(Reason.REFUSED, "refuses the connection")
                # Without a cause, it is the end of a connection that said nothing.
                case httpcore.RemoteProtocolError() if cause.__cause__ and not has_begun:
                    words = f"does not speak HTTP/1.1: {self._words(str(cause))}"
                    return UnreachableError(Reason.BAD_HTTP, words)
        if isinstance(error, _EndlessHeadError):
            words = f"does not begin its answer within {HEAD_BYTES} bytes"
            return UnreachableError(Reason.BAD_HTTP, words)
        if isinstance(error, httpcore.ConnectTimeout):
            if connected:
                words = f"cannot be spoken with over TLS: no greeting in {self._greeting_s:g} s"
                return UnreachableError(Reason.TLS, words)
            words = f"cannot be connected to within {self._greeting_s:g} s"
            return UnreachableError(Reason.NO_CONNECTION, words)
        if isinstance(error, httpcore.ConnectError):
            said = next((one.strerror for one in causes if isinstance(one, OSError)), None)
            words = f"cannot be connected to: {said or 'the connection broke'}"
            return UnreachableError(Reason.NO_CONNECTION, words)
        if has_begun:
            words = f"broke off in the middle of its answer: {self._words(str(error))}"
            return UnreachableError(Reason.CUT_STREAM, words)
        return UnreachableError(Reason.RESET, "closed the connection without an answer")

    def _veiled(self, said: bytes) -> bytes:
        for secret in self.secrets:
            said = said.replace(secret, HIDDEN)
        return said

    def _words(self, said: str) -> str:
        return printable(self._veiled(said.encode()).decode(errors="replace"), _SHOWN_CHARS)


@asynccontextmanager
async def _unwound(chunks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Let go of a body that is not read to its end, at the end of the block.

    It is a generator around others, and `aclose` ends the outermost only: the inner ones would be
    left to the garbage collector. A cancel in the next wait for bytes ends them all.
    """
    try:
        yield chunks
    finally:
        with trio.CancelScope() as scope, suppress(httpcore.NetworkError, httpcore.ProtocolError):
            scope.cancel()
            async for _ in chunks:
                pass


class _EndlessHeadError(httpcore.ProtocolError):
    """More came than `HEAD_BYTES`, and no answer began: httpcore passes over 1xx without end."""


class _AnswerStream(httpcore.AsyncNetworkStream):
    """A stream of which no more than `HEAD_BYTES` are read before an answer begins.

    httpcore looks at all answers 1xx that have come in one step: so they come in pieces.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._rest = b""
        self.request_begins()

    def request_begins(self) -> None:
        self.head_left: int | None = HEAD_BYTES
        """None once the answer has begun."""
        self._has_come = self._in_pieces = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's
        if self._rest:
            await trio.lowlevel.checkpoint()
        elif self.head_left is None:
            return await self._stream.read(max_bytes, timeout)
        else:
            if self.head_left <= 0:
                raise _EndlessHeadError
            self._rest = await self._stream.read(max_bytes, timeout)
            self.head_left -= len(self._rest)
            if not self._has_come:
                self._has_come, self._in_pieces = True, _IS_FINAL.match(self._rest) is None
        size = HEAD_PIECE_BYTES if self._in_pieces else max_bytes
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        self._stream = await self._stream.start_tls(*args, **options)
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and self._rest:
            return True
        return self._stream.get_extra_info(info)


class _Backend(httpcore.TrioBackend):
    """Knows the stream of its one connection."""

    stream: _AnswerStream | None = None

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        self.stream = _AnswerStream(await super().connect_tcp(*args, **options))
        return self.stream


class _Connection(httpcore.AsyncHTTPConnection):
    """A connection that is closed though it was given up in the midst of a TLS handshake."""

    def __init__(self, origin: httpcore.Origin, tls: ssl.SSLContext | None) -> None:
        self._backend = _Backend()
        super().__init__(origin, tls, KEPT_S, network_backend=self._backend)

    @property
    def is_connected(self) -> bool:
        return self._backend.stream is not None

    def request_begins(self) -> None:
        if self._backend.stream is not None:
            self._backend.stream.request_begins()

    def answer_begins(self) -> None:
        if self._backend.stream is not None:
            self._backend.stream.head_left = None

    async def aclose(self) -> None:
        await super().aclose()
        if self._backend.stream is not None:
            await self._backend.stream.aclose()


class _Body:
    """A body in one piece: of bytes httpcore would make a generator, and leave it unread."""

    def __init__(self, content: bytes) -> None:
        self._left = [content]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


def _headers(response: httpcore.Response) -> dict[str, str]:
    """Return headers by their names in lower case; empty where there is none."""
    found = defaultdict[str, str](str)
    for name, value in response.headers:
        found[name.decode("latin-1").lower()] = value.decode("latin-1").strip()
    return found


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all that led to it; of several tries to connect, those of each."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _causes(one)
        error = error.__cause__ or error.__context__
