"""`stdiod mcp` where a daemon runs, with few imports.

An MCP client waits for it at each start, and imports take most of a verb's time and memory: click
and platformdirs are not imported here. All else is left to the verb itself (`verbs.mcp`), which
begins anew and reports errors: another option, a project, no daemon, another version, a refusal. A
case that is not understood here only takes longer.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import closing

from protocol.version import VERSION
from supervisor.cli.lock_file import version_beside


def serve(words: list[str]) -> bool:
    """Serve, for the words after `mcp`; False if the verb has to."""
    if None in (sys.stdin, sys.stdout, sys.stderr) or sys.stdin.isatty():
        return False
    asked = _read(words)
    connection = None if asked is None else _connect(asked[0])
    if asked is None or connection is None:
        return False
    # Where it is installed, msgspec imports it, and with it `inspect`: a tenth of this program's
    # memory, of which each client has its own. None is Python's "not there".
    sys.modules.setdefault("typing_extensions", None)  # type: ignore[arg-type]
    from supervisor.edge.mcp_stdio import StdioBridge

    path, view, folders = asked
    bridge = StdioBridge(path, view or None)
    with closing(bridge):
        if bridge.join(connection) is not None or bridge.end is not None:
            return False
        if said := not_served(folders, bridge.directories, bridge.daemon_pid):
            print(said, file=sys.stderr, flush=True)  # noqa: T201 - without click
        bridge.serve()
    return True


def not_served(folders: Iterable[str], directories: list[str] | None, pid: int | None) -> str:
    """Say which folders a daemon that was joined does not serve; "" if it has not answered."""
    if directories is None:
        return ""
    served = {os.path.realpath(one) for one in directories}
    paths = [os.path.realpath(one) for one in folders]
    other = [one for one in paths if not {one, os.path.dirname(one)} & served]  # noqa: PTH120
    if not other:
        return ""
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


def _connect(path: str) -> socket.socket | None:
    """Return a connection to a daemon of this version, or None."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    if version_beside(path) in (None, VERSION):
        return connection
    connection.close()
    return None
