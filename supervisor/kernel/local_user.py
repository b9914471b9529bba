"""The users of this machine, who may do everything.

The control socket's file is for its owner alone, so whoever can open it has the daemon's rights
already; a client that wants fewer calls the op `narrow`.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct

import trio

from supervisor.policy.principals import Principal
from supervisor.runtime.blocking import BlockingWork

_CREDENTIALS = struct.Struct("iII")
"""pid, uid, gid: `struct ucred` of unix(7)."""

NAME_S = 2.0
"""How long the search for a name may take: a connecting client waits for it."""

_names: dict[int, str] = {}


def user_name(uid: int) -> str:
    """Return a user's name, or else the number; may ask a directory over the network."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def this_user(face: str) -> Principal:
    """Return the user of this process; may block."""
    return Principal(user_name(os.geteuid()), face)


async def named_user(uid: int, face: str, blocking: BlockingWork) -> Principal:
    """Return a user; after `NAME_S` without a name, the number is the name."""
    name = _names.get(uid)
    if name is None:
        with trio.move_on_after(NAME_S):
            # It may ask a directory over the network.
            doing = f"looking for the name of user {uid}"
            name = await blocking.run(
                doing, lambda: _names.get(uid) or user_name(uid), abandon_after_s=0
            )
            _names[uid] = name
    return Principal(str(uid) if name is None else name, face)


def peer_uid(client: trio.socket.SocketType) -> int:
    """Return the user at the other side of a Unix socket, from the kernel."""
    data = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return int(uid)
