"""trio_relay.py SOCKET PROGRAM...: carry lines between a client and a module, on bare trio.

The same two hops as a daemon's, and nothing else: no line is looked at, so it serves one client at
a time. It ends with its stdin.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from subprocess import PIPE

import trio

READ_BYTES = 65536


async def carry(reading: trio.abc.ReceiveStream, writing: trio.abc.SendStream) -> None:
    while data := await reading.receive_some(READ_BYTES):
        await writing.send_all(data)


async def relay(stdin: int, stdout: int, listener: trio.SocketListener) -> None:
    to_module, from_module = trio.lowlevel.FdStream(stdin), trio.lowlevel.FdStream(stdout)
    while True:
        client = await listener.accept()
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(carry, from_module, client)
            await carry(client, to_module)
            nursery.cancel_scope.cancel()


async def main(path: str, command: list[str]) -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(256)
    print("ready", flush=True)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
    child = subprocess.Popen(command, stdin=PIPE, stdout=PIPE)  # noqa: ASYNC220
    stdin, stdout = (os.dup(end.fileno()) for end in (child.stdin, child.stdout) if end)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay, stdin, stdout, listener)
        await trio.lowlevel.FdStream(os.dup(0)).receive_some(1)
        nursery.cancel_scope.cancel()


trio.run(main, sys.argv[1], sys.argv[2:])
