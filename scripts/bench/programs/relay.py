"""relay.py SOCKET PROGRAM...: carry lines between clients of a socket and a module, on bare trio.

The same two hops as a daemon's, and nothing else: no line is looked at, so it serves one client at
a time. It ends with its stdin.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import trio

READ_BYTES = 65536


async def carry(reading: trio.abc.ReceiveStream, writing: trio.abc.SendStream) -> None:
    """Carry bytes as they come, until the end of them."""
    while data := await reading.receive_some(READ_BYTES):
        await writing.send_all(data)


async def main(listener: socket.socket, stdin: int, stdout: int) -> None:
    """Serve one client after the other, until nobody holds the other end of our stdin."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, listener, stdin, stdout)
        await trio.lowlevel.FdStream(os.dup(0)).receive_some(1)
        nursery.cancel_scope.cancel()


async def serve(listener: socket.socket, stdin: int, stdout: int) -> None:
    """Serve one client after the other."""
    to_module, from_module = trio.lowlevel.FdStream(stdin), trio.lowlevel.FdStream(stdout)
    accepting = trio.socket.from_stdlib_socket(listener)
    while True:
        accepted, _ = await accepting.accept()
        client = trio.SocketStream(accepted)
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(carry, from_module, client)
            await carry(client, to_module)
            nursery.cancel_scope.cancel()


pipe = subprocess.PIPE
with subprocess.Popen(sys.argv[2:], stdin=pipe, stdout=pipe) as child:
    assert child.stdin is not None
    assert child.stdout is not None
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(sys.argv[1])
    listening.listen()
    print("ready", flush=True)
    trio.run(main, listening, os.dup(child.stdin.fileno()), os.dup(child.stdout.fileno()))
    child.stdin.close()
