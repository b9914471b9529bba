"""Be the daemon: read the descriptors, listen, run the fleet, end in order.

    directories -> scan -> Found -> kernel.daemon.running -> faces -> signal or command -> stop

Signals: the first SIGTERM, SIGINT or SIGHUP begins an orderly end, another one hurries it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import structlog
import trio

from supervisor.cli.daemon_log import set_up_logging
from supervisor.faces import control_socket, stdio
from supervisor.faces.control_socket import SocketPathError, SocketTakenError
from supervisor.kernel.daemon import Daemon, running
from supervisor.policy.findings import Found, usable
from supervisor.runtime.containment.ladder import ContainmentError
from supervisor.runtime.directory import DescriptorFiles, MissingDirectoryError
from supervisor.runtime.survivors import DataInUseError

log = structlog.get_logger()

END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

NO = 1
USAGE = 2


@dataclass(frozen=True)
class ServeOptions:
    """What `stdiod run` was asked for."""

    directories: tuple[Path, ...]
    socket: Path
    data_dir: Path
    log_format: str = "auto"
    """`console`, `json`, or `auto`: console on a terminal, JSON otherwise."""
    stdio: bool = False
    """Speak with whoever started it on stdin and stdout, beside the socket."""
    name: str = "supervisor"
    """The name the daemon answers to on stdio, where it is somebody's module."""
    containment: str | None = None
    """The rung of containment without which it does not start; the highest there is if None."""
    watch: bool = True
    """Reload by itself when descriptors change."""
    log_file: Path | None = None
    """Where the daemon's own log goes, rotated; stderr if None."""
    ready_fd: int | None = None
    """Where to write `ready` once clients can connect."""


def serve(options: ServeOptions) -> int:
    """Run until told to end; returns the exit status."""
    set_up_logging(options.log_format, options.log_file)
    try:
        files = DescriptorFiles(options.directories)
        found = usable({}, files.read_first())
        _make_data_dir(options.data_dir)
    except (MissingDirectoryError, OSError) as error:
        sys.stderr.write(f"stdiod: {error}\n")
        return USAGE
    if not found.descriptors and not found.quarantined:
        log.warning(
            "no descriptors found: looked for *.json and */module.json",
            directories=[str(directory) for directory in options.directories],
        )
    # Ours to reap: inherited as ignored, the kernel would take our children's exit statuses.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with control_socket.listening(options.socket) as listener:
            trio.run(_main, options, found, files, listener)
    except (SocketTakenError, SocketPathError, ContainmentError, DataInUseError) as error:
        sys.stderr.write(f"stdiod: {error}\n")
        return NO
    return 0


async def _main(
    options: ServeOptions, found: Found, files: DescriptorFiles, listener: socket.socket
) -> None:
    async with running(
        found,
        data_dir=options.data_dir,
        directories=options.directories,
        files=files,
        containment=options.containment,
        whole_process=True,
    ) as daemon:
        daemon.facts.socket = str(options.socket)
        async with trio.open_nursery() as nursery:
            await nursery.start(_end_on_signals, daemon)
            nursery.start_soon(control_socket.serve, daemon, listener)
            if options.watch:
                await nursery.start(daemon.watch)
            if options.stdio:
                nursery.start_soon(stdio.serve, daemon, options.name)
            log.info(
                "listening",
                socket=str(options.socket),
                pid=os.getpid(),
                modules=len(found.descriptors),
                quarantined=len(found.quarantined),
                containment=daemon.facts.custody.containment,
            )
            _say_ready(options.ready_fd)
            await daemon.wait_ending()
            await daemon.stop_fleet()
            nursery.cancel_scope.cancel()
    log.info("stopped", pid=os.getpid())


async def _end_on_signals(daemon: Daemon, task_status: trio.TaskStatus[None]) -> None:
    for number in END_SIGNALS:
        # What is in force again once the receiver is closed: another one then comes too late to
        # hurry anything, and must not cut the rest of an orderly end short.
        signal.signal(number, signal.SIG_IGN)
    with trio.open_signal_receiver(*END_SIGNALS) as received:
        task_status.started()  # nobody is told that the daemon is ready before it can be ended
        async for came in received:
            daemon.shut_down(signal.Signals(came).name)


def _say_ready(descriptor: int | None) -> None:
    if descriptor is not None:
        # Whoever waited may be gone by now; the daemon stays.
        with contextlib.suppress(OSError):
            os.write(descriptor, b"ready\n")
        os.close(descriptor)


def _make_data_dir(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the data directory {path} cannot be made: {error.strerror}"
        raise OSError(message) from None
