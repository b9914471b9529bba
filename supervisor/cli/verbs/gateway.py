"""`stdiod gateway`: HTTP for a daemon, by a program of its own, in the foreground."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import click

from supervisor.cli.daemon_options import HttpOptions, with_gateway_options
from supervisor.cli.exit_status import NoError, remark
from supervisor.cli.options import example, with_socket
from supervisor.policy.http_exposure import SOCK


@click.command(epilog=example("gateway", "gateway --http 127.0.0.1:8700"))
@with_gateway_options
@with_socket
@click.pass_context
def gateway(ctx: click.Context, *, config: Path | None, http: HttpOptions, socket: Path) -> None:
    """Serve HTTP for the daemon on the socket, until Ctrl-C.

    A daemon with --http runs one itself, so this is for one without. It may come and go: while it
    is away, requests are answered with 503 and Retry-After.
    """
    from supervisor.daemon.gateway import SOCKET_NAME, command, listening
    from supervisor.faces.control_socket import SocketPathError, SocketTakenError

    del config  # `configured` has read it
    exposure = http.exposure(ctx, SOCK)
    if exposure is None:
        raise click.UsageError("--http: off serves nothing: say sock or HOST:PORT", ctx)
    with contextlib.ExitStack() as kept:
        try:
            listeners = kept.enter_context(listening(exposure, socket))
        except (SocketPathError, SocketTakenError) as error:
            raise NoError(str(error)) from None
        remark(f"HTTP is at {listeners.address}, for the daemon on {socket}; Ctrl-C ends it")
        for one in listeners.sockets:
            one.set_inheritable(True)
        _keep_lock(socket.with_name(SOCKET_NAME))
        os.execv(sys.executable, command(listeners, socket))  # noqa: S606 - it becomes that


def _keep_lock(path: Path) -> None:
    """Own the path of a Unix socket beyond `exec`: its lock is held by an open file."""
    lock = path.with_name(f"{path.name}.lock").resolve()
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the folder itself
            if one.readlink() == lock:
                os.set_inheritable(int(one.name), True)
