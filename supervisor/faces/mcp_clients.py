"""MCP on the control socket: a client that asks for it (the op `mcp`) gets a server of its own.

    client --its connection, as stdin and stdout--> python -m supervisor.edge.mcp_relay
           --one end of a socket pair, by number--> daemon, as the party that the client was

To the daemon that server is the client: it has the rights that the client had left, and the place.
What the daemon had read of the client by then comes first over the pair.
It ends with its connection to the daemon, whatever the daemon dies of, and when the client is gone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from functools import partial

import structlog
import trio

from supervisor.faces.admission import Admission, Place
from supervisor.faces.byte_stream import carry, disconnect
from supervisor.faces.conversation import Conversation
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Party

PATIENCE_S = 6.0
"""How long the process may take to end by itself: it first gives the client time to read its last
answers (`edge.mcp_stdio.LAST_S`)."""

log = structlog.get_logger()


async def serve_mcp(
    daemon: Kernel,
    party: Party,
    client: trio.socket.SocketType,
    unserved: bytes,
    *,
    admission: Admission,
    place: Place,
) -> None:
    """Serve a client that has asked for MCP until it is gone; `unserved` was read of it already.

    The client's connection is closed here.
    """
    assert party.view is not None  # noqa: S101 - it has asked for MCP
    view, party.view, party.may_speak_mcp = party.view.name, None, False
    spawner = daemon.facts.registry.spawner
    with contextlib.ExitStack() as owned:
        try:
            async with admission.starting_mcp:
                with client:
                    ours, theirs = map(owned.enter_context, socket.socketpair())
                    words = str(theirs.fileno()), str(len(unserved)), view
                    start = partial(_start, client.fileno(), theirs.fileno(), words)
                    popen, process = await spawner.start_own("starting an MCP server", start)
                theirs.close()
        except OSError as error:
            log.warning("an MCP client cannot be served", words=error.strerror)
            return
        ours.setblocking(False)  # noqa: FBT003 - the standard library's
        conversation = Conversation(daemon, party)
        conversation.outbox.put(unserved)
        place.descriptor, place.idle = ours.fileno(), conversation.is_idle
        try:
            await carry(conversation, ours.fileno(), ours.fileno(), admission.turn)
        finally:
            await disconnect(conversation)
            trio.lowlevel.notify_closing(ours)
            ours.close()
            await spawner.end_own(popen, process, PATIENCE_S)


def _start(client: int, daemon: int, words: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "supervisor.edge.mcp_relay", *words],
        stdin=client,
        stdout=client,
        pass_fds=[daemon],
        start_new_session=True,
        # Nothing else of the daemon's: it is not to be taken for a module's process.
        env={name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ},
    )
