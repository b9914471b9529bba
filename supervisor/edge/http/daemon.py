"""The gateway's connections to the daemon, and the logins that its clients have there.

    shared         requests of up to SHARED_BYTES, each asked as its caller's login; `unordered`
    of their own   longer requests and streams: a client that does not read slows down nobody else

A handle is used over the connection that opened it alone: the next daemon counts its logins from
one again, and an old handle would be somebody else's. So a connection of its own has a login of its
own, with the same credentials. The logins of the shared connection are kept by token as long as a
client's connection or an MCP server uses them, and UNUSED more; `login.follow` tells of their ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from protocol.client import FIRST_S, Answer, ConnectionEndedError, Redial, RequestEvent
from protocol.errors import Failure, Reason
from supervisor.edge.bindings.asynchronous import AsyncClient, RequestStream

DAEMON = "supervisor"
FACE = "http"

SHARED_BYTES = 1 << 16
"""A longer request would hold up those behind it."""

UNUSED = 64
"""Logins of tokens that nobody uses: a client that connects anew for each request would else cause
twice the work with each."""

GREETING_S = 10.0
"""From a connection to the answers that it begins with."""

TOKEN_CHARS = 8192
"""The daemon takes no longer one in an op."""

log = logging.getLogger("stdiod.gateway")


class DaemonAwayError(Exception):
    """The daemon cannot be asked now. `was_asked`: it went while it had the request."""

    def __init__(self, *, was_asked: bool = False) -> None:
        went = "the daemon went before it answered: it may have done what was asked"
        super().__init__(went if was_asked else "the daemon is away; try again")
        self.was_asked = was_asked


class OpFailedError(Exception):
    """The daemon refused an op that the gateway itself asked."""

    def __init__(self, answer: Answer) -> None:
        self.failure = msgspec.convert(answer.error, Failure)
        super().__init__(self.failure.message)

    @property
    def reason(self) -> str | None:
        reason = self.failure.details.get("reason")
        return reason if isinstance(reason, str) else None

    @property
    def is_wrong_login(self) -> bool:
        """Whether a token or code lets nobody in; many wrong ones are `rate_limited`."""
        return self.reason in (Reason.WRONG_LOGIN, Reason.RATE_LIMITED)


class Credentials(msgspec.Struct, frozen=True):
    """A client's token, or the user and process behind its Unix socket."""

    token: str | None = None
    uid: int | None = None
    pid: int | None = None
    connection: int = 0
    """The number of that connection: a process id may be another process's by the next one."""
    view: str | None = None
    """The view of an MCP client."""

    def args(self) -> dict[str, Any]:
        """Return the args of `login.open`; a text that is too long for it is wrong all the same."""
        token = self.token
        if token is not None and not 0 < len(token) <= TOKEN_CHARS:
            token = "-"  # noqa: S105 - which is none
        fields = {"token": token, "uid": self.uid, "pid": self.pid, "view": self.view}
        return {"face": FACE, **{key: one for key, one in fields.items() if one is not None}}


class LoginUser(Protocol):
    """A client's connection, or an MCP server."""

    def login_over(self, login: Login) -> None:
        """Note that a login that it uses is over."""


class Login:
    """A login over one connection to the daemon, and no other; see `Daemon.log_in`, `connect`."""

    def __init__(
        self, client: AsyncClient, credentials: Credentials, opened: dict[str, Any]
    ) -> None:
        self.credentials = credentials
        self.client = client
        self.handle: str = opened["handle"]
        self.name: str = opened["name"]
        """That of the principal: `token:NAME`, or a user's."""
        self.who = repr([opened[key] for key in ("name", "face", "scopes", "modules")])
        """The principal, for whom two logins may be the same."""
        self.over = asyncio.Event()
        """Set at its end, of a login over the shared connection."""
        self.why = ""
        """How it ended: `revoked`, `expired`, `closed`, or `lost` with the connection."""
        self.users: set[LoginUser] = set()

    @property
    def is_token(self) -> bool:
        """Whether its holder is a program: a browser's login has the name of its user."""
        return self.name.startswith("token:")

    @property
    def has_ended(self) -> bool:
        """Whether nobody may log in with its credentials any more."""
        return self.why in ("revoked", "expired")

    async def request(self, tool: str, operation: str, given: dict[str, Any]) -> RequestStream:
        """As `AsyncClient.request`, of which `given` is empty then: it may be long."""
        stream = await self.client.request(tool, operation, given, login=self.handle)
        given.clear()
        return stream


class Daemon:
    """All of the gateway's connections to the daemon; `run` holds the shared one."""

    def __init__(self, path: Path) -> None:
        """`path` is that of the control socket."""
        self.inputs: dict[str, Any] = {}
        """The schemas of the args of each op, as the daemon told them last; {} before."""
        self.has_tried = asyncio.Event()
        """Set once there was a first connection, or there was none to be had."""
        self._path = path
        self._wanted = asyncio.Event()
        """Set when somebody asks while there is no connection."""
        self._shared: AsyncClient | None = None
        self._logins: dict[Credentials, asyncio.Task[Login]] = {}
        self._waiting: Counter[Credentials] = Counter()
        """How many requests wait for a login that is being opened."""
        self._by_handle: dict[str, Login] = {}
        self._idle: dict[Login, None] = {}
        """Logins of tokens that nobody uses, the oldest first."""
        self._background: set[asyncio.Task[Any]] = set()

    # The shared connection.

    async def run(self) -> None:
        """Hold the shared connection, and dial again when it ends; until cancelled.

        A request that finds no daemon has it dialled at once.
        """
        redial, said = Redial(), ""
        while True:
            try:
                async with await AsyncClient.connect(self._path) as client:
                    redial.connected(time.monotonic())
                    await self._follow(client)
                words = "the daemon ended the connection"
            except (OSError, OpFailedError, ConnectionEndedError) as error:
                words = str(error)
            if words != said or self._shared is not None:
                log.warning("the daemon is away: %s", words)
            said = words
            self._lose()
            self.has_tried.set()
            now = time.monotonic()
            pause_s = redial.failed(now, random.random()) - now  # noqa: S311
            await asyncio.sleep(min(pause_s, FIRST_S))
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s - FIRST_S):
                    await self._wanted.wait()

    async def _follow(self, client: AsyncClient) -> None:
        async with asyncio.timeout(GREETING_S):
            await _own(client, "unordered")
            self.inputs = (await _own(client, "describe"))["inputs"]
            ends = await client.request(DAEMON, "login.follow", {})
            await anext(ends)  # from here on nothing is missed
        self._shared = client
        self.has_tried.set()
        async with ends:
            async for event in ends:
                if isinstance(event, RequestEvent):
                    end = event.document["fields"]
                    self._end(self._by_handle.get(end["handle"]), end["why"])

    def _lose(self) -> None:
        self._shared = None
        for task in self._logins.values():
            task.cancel()
        self._logins.clear()
        for login in list(self._by_handle.values()):
            self._end(login, "lost")

    def _end(self, login: Login | None, why: str) -> None:
        if login is None or self._by_handle.pop(login.handle, None) is None:
            return
        self._logins.pop(login.credentials, None)
        self._idle.pop(login, None)
        login.why = why
        login.over.set()
        for one in tuple(login.users):
            one.login_over(login)

    # Logins.

    async def log_in(self, credentials: Credentials) -> Login:
        """Return the login of these credentials, an open one if there is one.

        Raises `OpFailedError` (`wrong_login`, `rate_limited`, `queue_full`), `DaemonAwayError`.
        """
        task = self._logins.get(credentials)
        if task is None:
            task = self._logins[credentials] = asyncio.create_task(self._open(credentials))
            task.add_done_callback(_look_at)
        self._waiting[credentials] += 1
        try:  # the task goes on after a timeout, too: the handle to close is in the answer
            done, _ = await asyncio.wait([task], timeout=GREETING_S)
        finally:
            self._waiting[credentials] -= 1
            if not self._waiting[credentials]:
                del self._waiting[credentials]
        if not done or task.cancelled():
            raise DaemonAwayError
        return task.result()

    async def log_in_by_code(self, code: str) -> str:
        """Use a code of `page.login` up, and return the text of the cookie; raises as `log_in`."""
        opened = await self._ask_own("login.open", code=code, face=FACE)
        self._close_soon(opened["handle"])
        cookie: str = opened["cookie"]
        return cookie

    async def log_out(self, login: Login) -> bool:
        """Revoke the token of a browser's login; returns whether there was one."""
        try:
            closed = await self._ask_own("login.close", handle=login.handle, forget=True)
        except OpFailedError:
            return False
        return bool(closed["forgotten"])

    def use(self, login: Login, user: LoginUser) -> None:
        """Keep a login until `leave`."""
        login.users.add(user)
        self._idle.pop(login, None)

    def leave(self, login: Login, user: LoginUser) -> None:
        """Undo `use`. A login without users is closed, or kept if a token opened it: UNUSED are."""
        login.users.discard(user)
        if not login.users and not login.over.is_set():
            self._put_by(login)

    def _put_by(self, login: Login) -> None:
        """Close a login that nobody uses, or the one of a token that is unused the longest."""
        self._idle[login] = None
        if login.credentials.token is None:
            self._close(login)
        elif len(self._idle) > UNUSED:
            self._close(next(iter(self._idle)))

    async def _open(self, credentials: Credentials) -> Login:
        try:
            client = self._connected()
            opened = await _own(client, "login.open", **credentials.args())
        except BaseException as error:  # cancelled, too: the next request opens another
            if self._logins.get(credentials) is asyncio.current_task():
                del self._logins[credentials]
            if isinstance(error, ConnectionEndedError):
                raise DaemonAwayError from None
            raise
        login = self._by_handle[opened["handle"]] = Login(client, credentials, opened)
        if credentials in self._waiting:
            self._idle[login] = None
        else:
            self._put_by(login)
        return login

    def _close(self, login: Login) -> None:
        self._end(login, "closed")
        self._close_soon(login.handle)

    def _close_soon(self, handle: str) -> None:
        async def close() -> None:
            with contextlib.suppress(OpFailedError, DaemonAwayError):  # it is over already
                await self._ask_own("login.close", handle=handle)

        task = asyncio.create_task(close())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _connected(self) -> AsyncClient:
        """Return the shared connection; raises `DaemonAwayError`, and has the daemon dialled."""
        if self._shared is None:
            self._wanted.set()
            raise DaemonAwayError
        return self._shared

    async def _ask_own(self, op: str, **args: Any) -> Any:
        try:
            return await _own(self._connected(), op, **args)
        except ConnectionEndedError as error:
            raise DaemonAwayError(was_asked=error.was_written) from None

    # Asking.

    async def ask(
        self,
        login: Login,
        tool: str,
        operation: str,
        given: dict[str, Any],
        passed_on: Callable[[], None],
    ) -> Answer:
        """Ask over the shared connection, and pass over the events; as `Login.request`.

        Calls `passed_on` when nothing of `given` is held any more. Raises `DaemonAwayError`, and
        `OpFailedError` if a login that was lost cannot be had again.
        """
        if login.over.is_set():
            login = await self.log_in(login.credentials)
        try:
            async with await login.request(tool, operation, given) as stream:
                passed_on()
                answer = await stream.answer()
        except ConnectionEndedError as error:
            raise DaemonAwayError(was_asked=error.was_written) from None
        if not answer.ok and OpFailedError(answer).reason == Reason.LOGIN_OVER:
            # `login.follow` tells it later, or has told it before the login was known here. The
            # daemon ends logins by itself only of tokens that are over.
            self._end(login, "revoked")
        return answer

    @asynccontextmanager
    async def connect(self, login: Login, count: Callable[[int], None]) -> AsyncIterator[Login]:
        """Yield a login with the same credentials over a connection of its own.

        `count` takes what is held there (`AsyncClient.count`). Raises as `ask`, also in the block.
        """
        try:
            client = await AsyncClient.connect(self._path)
        except OSError:
            raise DaemonAwayError from None
        client.count = count
        try:
            async with client:
                try:
                    async with asyncio.timeout(GREETING_S):
                        opened = await _own(client, "login.open", **login.credentials.args())
                except (TimeoutError, ConnectionEndedError):
                    raise DaemonAwayError from None  # nothing else was asked yet
                yield Login(client, login.credentials, opened)
        except ConnectionEndedError as error:
            raise DaemonAwayError(was_asked=error.was_written) from None


def _look_at(task: asyncio.Task[Login]) -> None:
    """Look at a failure, which is the waiters': asyncio warns of one that nobody looked at."""
    if not task.cancelled():
        task.exception()


async def _own(client: AsyncClient, op: str, **args: Any) -> Any:
    """Run one of the daemon's ops as the gateway itself; raises `OpFailedError`."""
    async with await client.request(DAEMON, op, args) as stream:
        answer = await stream.answer()
    if not answer.ok:
        raise OpFailedError(answer)
    return answer.result
