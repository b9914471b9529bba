"""The loop of `stdiod mcp`: an MCP server on stdin and stdout, in front of a daemon.

`protocol.mcp_server` knows what a message means, and `protocol.client` what the daemon says; here
are the bytes: one thread, and one poll(2) over the client's two streams, the control socket, and
the process that starts a daemon, while there is one.

    away -> dial -> connected -> the daemon ends, or never answers -> away, and dial after a pause

- The session lasts until the client's stdout is closed, or until its stdin has ended and all is
  answered, whatever becomes of the daemon: an MCP client takes the end of its server for final.
- Where this program had started the daemon, it starts another one once a request waits for that,
  and not before: after `stdiod down` a person may want to start one with other options.
- While the client does not read, neither the daemon nor stdin is read; while the daemon does not
  read, stdin is not.
- stdin and stdout may be shared with other processes, so that their flags stay as they are: only
  what poll(2) has announced is read or written.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import stat
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocol.client import ClientEvent, ConnectionEnd, EndCause, Redial
from protocol.framing import Line, LineSplitter, Overlong
from protocol.mcp_server.server import McpServer
from supervisor.edge.bindings.blocking import LONGEST_S, READ_BYTES, BlockingClient

if TYPE_CHECKING:
    import subprocess

    from protocol.errors import Failure

LINE_BYTES = 16 << 20
"""The longest message of a client."""

UNREAD_BYTES = 1 << 20
"""What the client may leave unread before nothing more is read for it."""

JOIN_S = 2.0
"""How long the client waits for a daemon that was dialled, before it is served without that."""

SILENT_S = 30.0
"""How long a daemon that was dialled may say nothing; one that is stopped for less comes back."""

LAST_S = 5.0
"""How long the client may take to read its last answers, where this ends with the daemon."""


class StdioBridge:
    """An MCP client on the descriptors `reading` and `writing`, and the daemon of one socket."""

    def __init__(
        self,
        path: str,
        view: str | None = None,
        *,
        reading: int = 0,
        writing: int = 1,
    ) -> None:
        self._server = McpServer(key=os.urandom(32), view=view)
        self.starter: Sequence[str] = ()
        """A command that starts a daemon on `path`; empty if none is to be started."""
        self.silent_s = SILENT_S
        """How long a daemon that was dialled may say nothing."""
        self._path = path
        self._starting: subprocess.Popen[bytes] | None = None
        self._reading: int | None = reading  # None once stdin has ended
        self._lines = LineSplitter(LINE_BYTES)
        self._output = ClientOutput(writing)
        self._client: BlockingClient | None = None
        """The connection to the daemon; None while that is away."""
        self.end: ConnectionEnd | None = None
        """How the last connection ended; None if none has."""
        self._silent_until = math.inf
        """By when a daemon that was dialled has to say something; infinity once it has."""
        self._redial = Redial()
        self._dial_at = 0.0

    def join(self, connected: socket.socket) -> Failure | None:
        """Take a connection, and wait for its answer; returns why the daemon refuses the view.

        Nothing of the client is read meanwhile. A daemon that says nothing, or ends, is no refusal.
        """
        now = time.monotonic()
        self._connect(connected, now)
        ends_at = now + JOIN_S
        daemon = self._server.daemon
        while self._client is not None and not daemon.is_ready and daemon.refusal is None:
            if self._output.closed or (now := time.monotonic()) >= ends_at:
                break
            self._advance(now)
            self._wait(ends_at - now, reads_client=False)
        return daemon.refusal

    @property
    def directories(self) -> list[str] | None:
        """Those that the joined daemon serves; None if it has not answered."""
        caller = self._server.daemon.caller
        return None if caller is None else caller.directories

    @property
    def daemon_pid(self) -> int | None:
        caller = self._server.daemon.caller
        return None if caller is None else caller.pid

    def serve(self) -> None:
        """Serve until the client is gone, or has its answers after the end of stdin."""
        while self._goes_on():
            self._wait()

    def serve_connection(self, connected: socket.socket, data: bytes) -> None:
        """Serve as `serve` does, after `data` of the client, and end with this connection."""
        self._connect(connected, time.monotonic())
        self._receive_lines(self._lines.feed(data))
        while self._goes_on() and self._client is not None:
            self._wait()
        self._put_messages()
        self._output.write_all(LAST_S)

    def _goes_on(self) -> bool:
        """Do what is due; returns whether the client is there, and may ask or waits for answers."""
        if self._output.closed:
            return False
        self._advance(time.monotonic())
        has_answers = self._server.all_answered and not self._output.unwritten
        return self._reading is not None or not has_answers

    def _put_messages(self) -> None:
        for message in self._server.messages_to_send():
            self._output.put(message.data + b"\n")

    def close(self) -> None:
        """Close the connection to the daemon, which cancels what is open; a start is given up."""
        self._close_client()
        if self._starting is not None:
            self._starting.kill()
            self._starting.wait()
            self._starting = None
        self._output.close()

    def _advance(self, now: float) -> None:
        """Do what the time has come for, and write what there is to say on either side."""
        daemon = self._server.daemon
        if self._starting is not None and self._starting.poll() is not None:
            self._starting = None
            if self._client is None:
                self._dial(now)
        if self._client is None and now >= self._dial_at:
            # After a start that did not help, this is a pause after the dial above.
            is_away = not self._dial(now)
            if is_away and self._starting is None and self.starter and daemon.is_awaited:
                self._start()
        if self._client is not None and now >= self._silent_until:
            self._receive_daemon(self._client.connection.end(EndCause.UNREAD))
        deadline = self._server.deadline
        if deadline is not None and now >= deadline:
            self._server.time_passed(now)
        self._put_messages()
        self._output.write()
        for remark in self._server.take_remarks():
            with contextlib.suppress(OSError):  # a client may have closed it
                print(f"stdiod: {remark}", file=sys.stderr, flush=True)  # noqa: T201 - without click
        if self._client is not None:
            self._client.write()

    def _wait(self, most_s: float = LONGEST_S, *, reads_client: bool = True) -> None:
        """Wait for the next thing to do, and read what has come."""
        daemon = client = starting = -1
        poll = select.poll()
        poll.register(self._output.descriptor, select.POLLOUT if self._output.unwritten else 0)
        has_room = self._output.unwritten < UNREAD_BYTES
        writes = self._client is not None and self._client.connection.wants_to_send
        if self._client is not None:
            daemon = self._client.fileno()
            mask = (select.POLLIN if has_room else 0) | (select.POLLOUT if writes else 0)
            poll.register(daemon, mask)
        if self._reading is not None and reads_client and has_room and not writes:
            client = self._reading
            poll.register(client, select.POLLIN)
        if self._starting is not None:
            starting = os.pidfd_open(self._starting.pid)
            poll.register(starting, select.POLLIN)
        try:
            ready = dict(poll.poll(min(most_s, self._until_due(time.monotonic())) * 1000))
        finally:
            if starting != -1:
                os.close(starting)
        # A pipe that nobody reads has POLLERR, a socket whose other end is closed only POLLHUP.
        gone = select.POLLERR | select.POLLHUP | select.POLLNVAL
        if ready.get(self._output.descriptor, 0) & gone:
            self._output.closed = True
        if self._client is not None and ready.get(daemon, 0) & ~select.POLLOUT:
            self._receive_daemon(self._client.read())  # without room: it has gone
        if client in ready:
            self._read_client(client)

    def _until_due(self, now: float) -> float:
        """Return the seconds until `_advance` has something to do by the time alone."""
        due = [LONGEST_S + now]
        if self._server.deadline is not None:
            due.append(self._server.deadline)
        due.append(self._dial_at if self._client is None else self._silent_until)
        return max(min(due) - now, 0.0)

    # The client.

    def _read_client(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # another process shares it, and was faster
            return
        except OSError:
            data = b""
        if data:
            self._receive_lines(self._lines.feed(data))
        else:
            self._reading = None
            last = self._lines.finish()
            self._receive_lines([] if last is None else [last])

    def _receive_lines(self, lines: list[Line]) -> None:
        for line in lines:
            if isinstance(line, Overlong):
                self._server.receive_overlong(line)
            else:
                self._server.receive_message(line)

    # The daemon.

    def _dial(self, now: float) -> bool:
        """Connect to the daemon, if there is one; returns whether there is."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)  # noqa: FBT003 - the standard library's
            connection.connect(self._path)
        except OSError:
            connection.close()
            self._dial_at = self._redial.failed(now, _draw())
            return False
        self._connect(connection, now)
        return True

    def _connect(self, connected: socket.socket, now: float) -> None:
        self._client, self.end = BlockingClient(connected), None
        self._silent_until = now + self.silent_s
        self._redial.connected(now)
        self._server.connect(self._client.connection)

    def _start(self) -> None:
        """Start a daemon as the verb does, by the verb itself: without stdin it ends when it has.

        It says on stderr why it can't.
        """
        import subprocess  # noqa: PLC0415 - most bridges never need it

        with contextlib.suppress(OSError):
            self._starting = subprocess.Popen(
                self.starter, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )

    def _receive_daemon(self, events: list[ClientEvent]) -> None:
        if events:
            self._silent_until = math.inf
        for event in events:
            if isinstance(event, ConnectionEnd):
                self._dial_at = self._redial.failed(time.monotonic(), _draw())
                self._close_client()
                self.end = event
            self._server.receive_event(event)

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class ClientOutput:
    """What is to be written on a descriptor that may block, and that others may write on."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.closed = False
        """Whether nobody reads it any more."""
        self._data = bytearray()
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        self._socket = socket.socket(fileno=os.dup(descriptor)) if is_socket else None

    @property
    def unwritten(self) -> int:
        """Bytes that wait."""
        return len(self._data)

    def put(self, data: bytes) -> None:
        self._data += data

    def write(self) -> None:
        """Write as much as can be without waiting."""
        written = 0
        try:
            while written < len(self._data) and not self.closed and self._has_room():
                written += self._write(written)
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        del self._data[:written]

    def write_all(self, within_s: float) -> None:
        """Write what there is, as far as the client reads it in time."""
        until = time.monotonic() + within_s
        self.write()
        while self._data and not self.closed and (left_s := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self.descriptor, select.POLLOUT)
            poll.poll(left_s * 1000)
            self.write()

    def close(self) -> None:
        """Close what this has opened; the descriptor stays open."""
        self.closed = True
        if self._socket is not None:
            self._socket.close()

    def _has_room(self) -> bool:
        if self._socket is not None:
            return True
        poll = select.poll()
        poll.register(self.descriptor, select.POLLOUT)
        return any(mask & select.POLLOUT for _, mask in poll.poll(0))

    def _write(self, begin: int) -> int:
        with memoryview(self._data) as data:
            if self._socket is not None:
                return self._socket.send(data[begin : begin + READ_BYTES], socket.MSG_DONTWAIT)
            # pipe(7): what poll(2) calls writable has room for so much.
            return os.write(self.descriptor, data[begin : begin + select.PIPE_BUF])


def _draw() -> float:
    """Return a number in [0, 1); the module `random` would be a tenth of this program's memory."""
    return int.from_bytes(os.urandom(4)) / (1 << 32)
