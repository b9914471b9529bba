"""The daemon as somebody's module: the wire on its own stdin and stdout (docs/protocol.md).

The end of stdin is the end of the daemon, as it is of any module.
"""

from __future__ import annotations

import os
import sys

from supervisor.faces.byte_stream import carry, disconnect
from supervisor.faces.conversation import Conversation
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.local_user import named_user
from supervisor.kernel.parties import Party


async def serve(daemon: Kernel, name: str) -> None:
    """Serve the parent process, until it closes the daemon's stdin or the daemon ends otherwise."""
    reading, writing = sys.stdin.fileno(), sys.stdout.fileno()
    # Nonblocking is a property of the pipe that others may share, so it is given back.
    blocking = {descriptor: os.get_blocking(descriptor) for descriptor in (reading, writing)}
    try:
        for descriptor in blocking:
            os.set_blocking(descriptor, False)
        user = await named_user(os.geteuid(), "stdio", daemon.facts.registry.threads)
        conversation = Conversation(daemon, Party(user, name))
        try:
            await carry(conversation, reading, writing)
        finally:
            await disconnect(conversation)
        if not daemon.fleet_stopped:
            daemon.shut_down("the end of stdin")
    finally:
        for descriptor, was_blocking in blocking.items():
            os.set_blocking(descriptor, was_blocking)
