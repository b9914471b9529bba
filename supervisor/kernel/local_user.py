"""The clients on this machine: its users, who may do everything, and processes of modules.

The control socket's file is for its owner alone, so whoever can open it has the daemon's rights
already; a client that wants fewer calls the op `narrow`. A module is the exception: it may run as
the same user, and what it may do is what its descriptor and the policy grant it (`host_calls.
over_socket`), whichever of its processes connects.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct

import trio

from protocol.errors import Failure, Reason
from supervisor.kernel.parties import Party, RefusedError
from supervisor.policy.principals import Principal, Scope, module_name
from supervisor.runtime.containment.orphans import SOMEBODY
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.threads import Threads

_CREDENTIALS = struct.Struct("iII")
"""pid, uid, gid: `struct ucred` of unix(7)."""

NAME_S = 2.0
"""How long the search for a name may take: a connecting client waits for it."""

UNKNOWN = Failure.because(
    Reason.QUEUE_FULL,
    "the daemon did not find out in time whether the client is a module's process; nothing was"
    " begun, so try again",
)

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


async def named_user(uid: int, face: str, threads: Threads) -> Principal:
    """Return a user; after `NAME_S` without a name, the number is the name."""
    name = _names.get(uid)
    if name is None:
        with trio.move_on_after(NAME_S):
            # It may ask a directory over the network.
            doing = f"looking for the name of user {uid}"
            name = await threads.run(
                doing, lambda: _names.get(uid) or user_name(uid), abandon_after_s=0
            )
            _names[uid] = name
    return Principal(str(uid) if name is None else name, face)


class LocalClients:
    def __init__(self, registry: ProcessRegistry, *, modules_are_users: bool) -> None:
        """With `modules_are_users`, a module's process may do what its user may."""
        self._registry = registry
        self._modules_are_users = modules_are_users

    async def party(
        self, uid: int, pid: int | None, face: str, *, label: str | None = None
    ) -> Party:
        """Return the party of a process, or of a user of whom no process is known.

        Raises `RefusedError` if it is not found out in time whether the process is a module's: a
        party keeps its rights, and these may be too few or too many.
        """
        instance = None
        if pid is not None and not self._modules_are_users:
            try:
                instance = await self._registry.whose(pid)
            except trio.TooSlowError:
                raise RefusedError(UNKNOWN) from None
        if instance is None:
            return Party(await named_user(uid, face, self._registry.threads), label=label)
        name = "" if instance == SOMEBODY else instance.rpartition("#")[0]
        principal = Principal(module_name(name or SOMEBODY), "module", frozenset({Scope.INVOKE}))
        party = Party(principal, label=label)
        party.module = name
        return party


def peer_of(client: trio.socket.SocketType) -> tuple[int, int]:
    """Return user and process at the other side of a Unix socket when it connected."""
    data = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return int(uid), int(pid)
