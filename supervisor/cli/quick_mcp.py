"""`stdiod mcp` where a daemon runs, with few imports.

An MCP client waits for it at each start, and imports take most of a verb's time: click, msgspec and
platformdirs are not imported here. All else is left to the verb itself (`verbs.mcp`), which begins
anew and reports errors: another option, a project, no daemon, another version, a refusal. A case
that is not understood here only takes longer.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import sys
import threading
from contextlib import closing

from protocol.version import VERSION
from supervisor.cli.lock_file import version_beside

JOIN_S = 5.0
"""How long the daemon may take to accept the request; the verb waits longer."""

ANSWER_BYTES = 1 << 16

_REQUEST = (
    '{"requestId":"c1","tool":"supervisor","operation":"invoke","input":{"op":"mcp","args":{%s}}}\n'
)
_ACCEPTED = b'{"version":"0","type":"done","requestId":"c1","ok":true,'
"""The beginning of the answer; to parse it as JSON would take longer than all the rest."""


def serve(words: list[str]) -> bool:
    """Serve, for the words after `mcp`; False if the verb has to."""
    if None in (sys.stdin, sys.stdout, sys.stderr) or sys.stdin.isatty():
        return False
    asked = _read(words)
    connection = None if asked is None else _join(*asked)
    if connection is None:
        return False
    with closing(connection):
        ours = relay(connection)
    if not ours:
        from supervisor.cli.exit_status import NoDaemonError  # import time no longer matters

        ended = NoDaemonError(DAEMON_ENDED)
        ended.show()
        raise SystemExit(ended.exit_code)
    return True


def not_served(folders: list[str], answer: str) -> str:
    """Say which folders a daemon that was joined does not serve, by its answer as JSON."""
    if not folders or '"directories":' not in answer:
        return ""
    import json

    document = json.loads(answer)
    served = {os.path.realpath(one) for one in document.get("result", document)["directories"]}
    paths = [os.path.realpath(one) for one in folders]
    other = [one for one in paths if not {one, os.path.dirname(one)} & served]  # noqa: PTH120
    if not other:
        return ""
    pid = answer.partition('"pid":')[2].partition(",")[0]
    words = f"stdiod: joined the daemon pid {pid}, which does not serve {', '.join(other)};"
    words += " `stdiod down` ends it, and then it can be started for that directory too; `stdiod up"
    words += " DIR --socket PATH --data-dir PATH` starts another one"
    return words if words.isprintable() else repr(words)


def _read(words: list[str]) -> tuple[str, str, list[str]] | None:
    """Return the path of the socket, the view, and folders; None for any other option."""
    path = view = ""
    folders: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in ("--socket", "--view"):
            value = value if equals else next(rest, "")
            if not value:
                return None
            path, view = (value, view) if option == "--socket" else (path, value)
        elif word.startswith("-"):
            return None
        else:
            folders.append(word)
    if view and not (view.isascii() and view.replace("-", "_").isidentifier()):
        return None  # an error, or it would have to be encoded
    path = path or os.environ.get("STDIOD_SOCKET") or _users_own()
    return (path, view, folders) if path else None


def _users_own() -> str:
    """Return the socket in the user's runtime directory; "" if it may be another one."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    try:
        found, here = os.lstat(folder), os.getcwd()  # noqa: PTH109 - without pathlib
    except OSError:
        return ""
    while not os.path.lexists(f"{here}/stdiod.toml"):
        above = os.path.dirname(here)  # noqa: PTH120
        if above == here:
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            # Otherwise platformdirs takes another folder.
            is_private = stat.S_IMODE(found.st_mode) == stat.S_IRWXU
            return f"{folder}/stdiod/stdiod.sock" if is_ours and is_private else ""
        here = above
    return ""  # a project: the verb decides


def _join(path: str, view: str, folders: list[str]) -> socket.socket | None:
    """Return a connection on which the daemon speaks MCP, or None."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(JOIN_S)
        connection.connect(path)
        if version_beside(path) in (None, VERSION):
            args = f'"view":"{view}"' if view else ""
            connection.sendall((_REQUEST % args).encode())
            answer = data = connection.recv(ANSWER_BYTES)
            while data and not answer.endswith(b"\n") and len(answer) < ANSWER_BYTES:
                data = connection.recv(ANSWER_BYTES)
                answer += data
            if answer.startswith(_ACCEPTED) and answer.endswith(b"\n"):
                connection.settimeout(None)
                if words := not_served(folders, answer.decode()):
                    print(words, file=sys.stderr, flush=True)  # noqa: T201 - without click
                return connection
    except OSError:
        pass
    connection.close()
    return None


READ_BYTES = 1 << 16

DAEMON_ENDED = "the daemon has ended, and this MCP server with it"


def relay(connection: socket.socket) -> bool:
    """Carry bytes both ways between stdin, stdout and a connection, until either side ends.

    The end of stdin is passed on, and the remaining answers are carried out; the end of the
    connection ends all. Returns whether our side ended.
    """
    ended = threading.Event()
    # A daemon thread: it may wait for a stdin that never ends.
    threading.Thread(target=_carry_in, args=(connection, ended), daemon=True).start()
    out = sys.stdout.fileno()
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(READ_BYTES):
            try:
                _write_all(out, data)
            except OSError:
                return True  # the reader of stdout is gone
    return ended.is_set()


def _carry_in(connection: socket.socket, ended: threading.Event) -> None:
    reading = sys.stdin.fileno()
    with contextlib.suppress(OSError):
        while data := _read_some(reading):
            connection.sendall(data)
        ended.set()
        connection.shutdown(socket.SHUT_WR)


def _read_some(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # the parent process shares it, and made it non-blocking
            select.select([descriptor], [], [])


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
