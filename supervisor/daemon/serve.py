"""The daemon: read the descriptors, listen, run the fleet, end in order.

    directories -> scan -> Found -> Kernel -> faces -> signal or command -> stop

Signals are handled in `daemon_signals`; messages to the service manager, in `sd_notify`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog
import trio

from supervisor.daemon import collector
from supervisor.daemon.daemon_log import set_up_logging
from supervisor.daemon.daemon_signals import (
    SIGNALS,
    Continued,
    Edges,
    Kept,
    Reloading,
    obey,
    receiving,
)
from supervisor.daemon.inherited import mend_signals, mend_umask
from supervisor.daemon.log_stream import LogStream
from supervisor.daemon.project_trust import objection
from supervisor.daemon.sd_notify import Notifier, tell_status
from supervisor.daemon.span_export import exporting
from supervisor.faces import control_socket, stdio
from supervisor.faces.admission import Admission
from supervisor.faces.control_socket import SocketPathError, SocketTakenError
from supervisor.kernel.assets.store import AssetOptions
from supervisor.kernel.grants.operator_policy import OperatorPolicy
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.findings import Found, usable
from supervisor.policy.http_exposure import Exposure
from supervisor.policy.mcp_views import McpOptions
from supervisor.policy.policy_file import PolicyError
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.data_dir import DataInUseError
from supervisor.runtime.containment.file_limit import FileLimit
from supervisor.runtime.containment.ladder import ContainmentError
from supervisor.runtime.files.directory import MissingDirectoryError, shown
from supervisor.runtime.files.sources import Sources
from supervisor.runtime.held_bytes import Account
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.process.environment import HostVariables
from supervisor.runtime.stalls import RunDelay, Stalls
from supervisor.runtime.threads import Threads
from supervisor.runtime.turns import LOOP

if TYPE_CHECKING:
    from supervisor.daemon.gateway import Gateway, Listeners


log = structlog.get_logger()

NO = 1
USAGE = 2


@dataclass(frozen=True)
class ServeOptions:
    """The options of `stdiod run`."""

    directories: tuple[Path, ...]
    socket: Path
    data_dir: Path
    modules_are_users: bool = False
    """Whether a process of a module may do on the socket what its user may."""
    log_format: str = "auto"
    """`console`, `json`, or `auto`: console on a terminal, JSON otherwise."""
    stdio: bool = False
    """Speak with the parent process on stdin and stdout, beside the socket."""
    name: str = "supervisor"
    """The name the daemon answers to on stdio, as a module of another host."""
    watch: bool = True
    log_file: Path | None = None
    """The daemon's own log, rotated; stderr if None."""
    ready_fd: int | None = None
    """Where to write `ready` once clients can connect."""
    containment: str = "auto"
    """`auto` for the highest rung there is, else the one without which it does not start."""
    memory_ceiling_bytes: int | None = None
    """The memory that all modules together may have."""
    memory: JournalOptions = field(default_factory=JournalOptions)
    copy_assets: bool = False
    asset_store_bytes: int | None = None
    """The copies together; None for the default."""
    http: Exposure | None = None
    """Where the gateway listens."""
    policy: Path | None = None
    """The policy of host calls; without a file, modules may call nothing."""
    mcp: McpOptions = field(default_factory=McpOptions)
    keep_s: float | None = None
    """How long the daemon stays without a client; None for ever."""
    env_files: tuple[Path, ...] = ()
    """Read at each start of each module."""
    project: Path | None = None


FIRST_CLIENT_S = 60.0
"""The time for the first client to come, for a daemon that stays as long as it has clients."""

MAPPED_BYTES = 4 << 20
"""malloc(3) gives a longer piece back to the kernel when it is freed. Without this bound, it raises
its own to the longest piece that was freed, and keeps holes of as many bytes as are held."""

KEPT_FREE_BYTES = 8 << 20
"""malloc(3) keeps so much free at the end of the heap: to map it anew takes long."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def serve(options: ServeOptions) -> int:
    """Run until told to end; returns the exit status."""
    with contextlib.suppress(AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)
    collector.put_off()
    edges = Edges()
    # SIGCHLD among them: ignored, the kernel would take our children's exit statuses.
    mend_signals()
    mend_umask()
    file_limit = FileLimit.raised()
    threads = Threads()
    with contextlib.closing(
        set_up_logging(options.log_format, options.log_file, threads)
    ) as own_log:
        return _serve(options, edges, file_limit, threads, own_log)


def _serve(
    options: ServeOptions,
    edges: Edges,
    file_limit: FileLimit,
    threads: Threads,
    own_log: LogStream,
) -> int:
    notifier = Notifier.from_environment(os.environ)
    try:
        try_threads(threads)
        sources = Sources.of_directories(options.directories, threads)
        found = usable({}, sources.read_first())
        operator = _policy(options, threads)
        threads.look_at(options.data_dir, partial(_make_data_dir, options.data_dir))
        threads.look_at(options.socket, partial(os.path.lexists, options.socket))
    except (MissingDirectoryError, PolicyError, OSError) as error:
        sys.stderr.write(f"stdiod: {error}\n")
        return USAGE
    if not found.descriptors and not found.quarantined:
        log.warning(
            "no descriptors found: looked for *.json and */module.json, and no deeper",
            directories=[shown(directory) for directory in options.directories],
        )
    refusals: list[BaseException] = []
    try:
        with (
            control_socket.listening(options.socket) as listener,
            _listeners(options) as listeners,
            contextlib.closing(RunDelay()) as run_delay,
            exporting(os.environ) as spans,
        ):
            stalls = Stalls(run_delay=run_delay, continued=Continued())
            kernel = Kernel(
                found,
                data_dir=options.data_dir,
                directories=options.directories,
                environment=HostVariables(os.environ, options.env_files),
                sources=sources,
                containment=None if options.containment == "auto" else options.containment,
                whole_process=True,
                file_limit=file_limit,
                memory_ceiling_bytes=options.memory_ceiling_bytes,
                memory=options.memory,
                asset_options=asset_options(options),
                operator=operator,
                stalls=stalls,
                threads=threads,
                mcp=options.mcp,
                modules_are_users=options.modules_are_users,
            )

            async def main(kept: Kept) -> None:
                # Handlers first, children after: PID 1 has no default actions, and a signal that
                # comes while the modules are being started must find somebody.
                with receiving(SIGNALS, kept) as signals:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(notifier.run)
                        async with kernel as daemon:
                            daemon.facts.own_log = own_log.status
                            own_log.hold_in(Account(daemon.facts.ledger, "the daemon's log"))
                            daemon.facts.spans = spans
                            if spans is not None:
                                daemon.requests.tell_spans(spans)
                            await _serve_fleet(
                                daemon,
                                options,
                                found,
                                signals,
                                notifier,
                                stalls=stalls,
                                listener=listener,
                                listeners=listeners,
                            )
                        nursery.cancel_scope.cancel()
                log.info("stopped", pid=os.getpid())

            run_timed(main, edges.keep(), stalls=stalls)
    except* (SocketTakenError, SocketPathError, ContainmentError, DataInUseError) as group:
        # What is raised within a nursery comes in a group; what is raised before it does not.
        refusals = _leaves(group)
    finally:
        edges.over()
    for refusal in refusals:
        sys.stderr.write(f"stdiod: {refusal}\n")
    return NO if refusals else 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for one in group.exceptions
        for leaf in (_leaves(one) if isinstance(one, BaseExceptionGroup) else [one])
    ]


async def _serve_fleet(
    daemon: Kernel,
    options: ServeOptions,
    found: Found,
    signals: AsyncIterator[int],
    notifier: Notifier,
    *,
    stalls: Stalls,
    listener: socket.socket,
    listeners: Listeners | None,
) -> None:
    daemon.facts.socket = shown(options.socket)
    daemon.facts.project = None if options.project is None else shown(options.project)
    gateway: Gateway | None = None
    if listeners is not None:
        from supervisor.daemon.gateway import Gateway  # noqa: PLC0415 - as in `_listeners`

        daemon.facts.http = shown(listeners.address)
        gateway = Gateway(daemon, listeners, options.socket)
    admission = Admission.of(daemon.facts)
    async with trio.open_nursery() as nursery:
        reloading = Reloading(daemon.reload, notifier)
        nursery.start_soon(reloading.run)
        nursery.start_soon(obey, signals, daemon.shut_down, reloading)
        async with trio.open_nursery() as faces:
            faces.start_soon(control_socket.serve, daemon, listener, admission)
            if gateway is not None:
                faces.start_soon(gateway.run)
            if options.watch:
                await nursery.start(daemon.watch)
            if options.stdio:
                faces.start_soon(stdio.serve, daemon, options.name)
            collector.begin()
            gc.callbacks.append(LOOP.collecting)
            memory_bytes = partial(procfs.rss_bytes, os.getpid())
            nursery.start_soon(collector.collect_all, daemon.is_calm, memory_bytes)
            stalls.begin()
            log.info(
                "listening",
                socket=daemon.facts.socket,
                http=daemon.facts.http,
                pid=os.getpid(),
                modules=len(found.descriptors),
                quarantined=len(found.quarantined),
                containment=daemon.facts.registry.rung.name,
            )
            if gateway is not None:
                await gateway.decided.wait()
            _say_ready(options.ready_fd)
            notifier.ready()
            nursery.start_soon(tell_status, daemon, notifier)
            if options.keep_s is not None:
                nursery.start_soon(end_unused, daemon, admission, options.keep_s)
            await daemon.wait_ending()
            notifier.stopping()
            await daemon.stop_fleet()
            # The faces part from their clients and end by themselves.
        nursery.cancel_scope.cancel()


async def end_unused(daemon: Kernel, admission: Admission, keep_s: float) -> None:
    """End the daemon after `keep_s` without a client.

    However short that is: the first client has a while to come, and until one has been there.
    """
    first_at = trio.current_time() + FIRST_CLIENT_S
    while True:
        parted = admission.parted
        due_at = trio.current_time() + keep_s
        due_at = due_at if parted else max(first_at, due_at)
        with trio.move_on_at(due_at):
            await admission.wait_parted()
        # One may have parted as the time was over.
        if admission.parted == parted and not daemon.facts.connections.open:
            break
    daemon.shut_down(f"no client has been connected for {keep_s:g} s")


def _listeners(options: ServeOptions) -> AbstractContextManager[Listeners | None]:
    if options.http is None:
        return contextlib.nullcontext()
    # Only here: a daemon without HTTP does not wait for what HTTP takes.
    from supervisor.daemon import gateway  # noqa: PLC0415

    return gateway.listening(options.http, options.socket)


def asset_options(options: ServeOptions) -> AssetOptions:
    """Copies are synced if the journal is."""
    chosen = AssetOptions(copy=options.copy_assets, fsync=options.memory.power)
    if options.asset_store_bytes is not None:
        chosen = msgspec.structs.replace(chosen, store_bytes=options.asset_store_bytes)
    return chosen


def _say_ready(descriptor: int | None) -> None:
    if descriptor is not None:
        # Whoever waited may be gone by now; the daemon stays.
        with contextlib.suppress(OSError):
            os.write(descriptor, b"ready\n")
        os.close(descriptor)


def _policy(options: ServeOptions, threads: Threads) -> OperatorPolicy:
    path, project = options.policy, options.project
    if path is None:
        return OperatorPolicy()
    if project is None:
        return threads.look_at(path, partial(OperatorPolicy, path))
    return threads.look_at(path, partial(OperatorPolicy, path, partial(objection, project, path)))


def _make_data_dir(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the data directory {path} cannot be made: {error.strerror}"
        raise OSError(message) from None


THREADS_NEEDED = 8
"""For journal, logs, spawns and looks at files. The limits count processes too, its guardian's."""


def try_threads(threads: Threads) -> None:
    """Begin this many threads at once; raises `OSError` if there are too few."""
    try:
        threads.begin_at_once(THREADS_NEEDED)
    except OSError:
        message = (
            f"the system gives fewer than {THREADS_NEEDED} further threads and processes to this"
            " user (ulimit -u) or control group, and a daemon needs them"
        )
        raise OSError(message) from None
