"""Invoke a module without a daemon: in this process, from its descriptor, nothing left behind.

The module is started, invoked once and stopped by the same code that serves in a daemon. The first
SIGINT, SIGTERM or SIGHUP cancels the invocation, whose answer then says so; another one hurries the
module's stop.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import structlog
import trio

from protocol.descriptor import Descriptor, Start
from protocol.descriptor_loading import DescriptorError
from protocol.errors import Reason
from protocol.events import Progress
from protocol.response import Response
from supervisor.cli.exit_status import NoError
from supervisor.faces.conversation import event_line
from supervisor.kernel.daemon import Daemon, running
from supervisor.policy.findings import Found
from supervisor.policy.verdict import Stopped
from supervisor.runtime.directory import read_descriptor, unsupported
from supervisor.runtime.module_log import LogLine

OnLine = Callable[[bytes], None]
OnLog = Callable[[LogLine], None]

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def load(path: Path, module: str) -> Descriptor:
    """Read a descriptor that is to be invoked as `module`; raises `EndError` or `UsageError`."""
    try:
        descriptor = read_descriptor(path)
    except DescriptorError as error:
        raise NoError("\n".join(f"{path}: {one}" for one in error.problems)) from None
    if descriptor.name != module:
        words = f"{path} describes {descriptor.name!r}, not {module!r}; invoke it by its own name"
        raise click.UsageError(words)
    refusal = unsupported(descriptor)
    if refusal is not None:
        raise NoError(f"{path}: {refusal}")
    return descriptor


def invoke(
    descriptor: Descriptor, content: dict[str, Any], on_line: OnLine, on_log: OnLog
) -> tuple[dict[str, Any], bool]:
    """Run one invocation; returns the response (DESIGN 5.4) and whether a signal ended it.

    `on_line` takes each event as the line a daemon would send, `on_log` each line of the log.
    """
    structlog.configure(
        # The answer says what went wrong; only what it cannot say is worth a line here.
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    # Alone it depends on nobody, and it starts because it is invoked.
    supervision = msgspec.structs.replace(descriptor.supervision, depends_on=(), start=Start.EAGER)
    alone = msgspec.structs.replace(descriptor, supervision=supervision)
    with tempfile.TemporaryDirectory(prefix="stdiod-", ignore_cleanup_errors=True) as folder:
        asker = _Asker(on_line)
        trio.run(_run, alone, content, asker, on_log, Path(folder))
    assert asker.response is not None  # noqa: S101 - every invocation ends with one
    return asker.response, asker.interrupted


class _Asker:
    """Who asked (kernel.invocations.Client)."""

    def __init__(self, on_line: OnLine) -> None:
        self.response: dict[str, Any] | None = None
        self.interrupted = False
        self.answered = trio.Event()
        self._on_line = on_line

    def event(self, event: Progress) -> None:
        """Pass an event on."""
        self._on_line(event_line(event, "c1").rstrip(b"\n"))

    def finished(self, response: Response) -> None:
        """Keep the response."""
        self.response = response.document()
        self.answered.set()

    def congested(self) -> bool:
        """Return False: writing to stdout blocks until there is room."""
        return False


async def _run(
    descriptor: Descriptor, content: dict[str, Any], asker: _Asker, on_log: OnLog, folder: Path
) -> None:
    found = Found((descriptor,))
    with trio.open_signal_receiver(*ENDING_SIGNALS) as received:
        async with running(found, data_dir=folder) as daemon, trio.open_nursery() as nursery:
            log = daemon.fleet.modules[descriptor.name].log
            unfollow = log.follow(on_log)
            invocation = daemon.invocations.submit(descriptor.name, content, asker)

            async def end_on_signals() -> None:
                async for number in received:
                    if asker.interrupted:
                        daemon.shut_down("another signal")
                    asker.interrupted = True
                    if invocation is not None:
                        words = f"{signal.Signals(number).name} ended it"
                        invocation.give_up(Stopped(Reason.CLIENT, words))

            nursery.start_soon(end_on_signals)
            await asker.answered.wait()
            unfollow()
            await _stop(daemon)
            nursery.cancel_scope.cancel()


async def _stop(daemon: Daemon) -> None:
    daemon.shut_down("it has answered")
    await daemon.stop_fleet()
