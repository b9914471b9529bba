"""Soak the daemon: `make soak MINUTES=5`.

A real daemon with well-behaved and misbehaving modules is killed, stopped, flooded, reloaded and
asked at random, by many clients, some of them slow or gone in the middle; now and then the daemon
itself is killed and started again. At the end every request must have had exactly one outcome,
unless its client hung up or the daemon was killed, and no process or descriptor may be left. The
daemon is sent what takes long to be looked at, and is suspended; nothing of that may hold up its
event loop for more than 50 ms of its own doing, and what was in flight must not be late by it. In
the end its event loop is blocked on purpose, which it has to tell.

It ends by itself; Ctrl-C ends it early and just as cleanly. The same seed makes the same choices,
but what they meet depends on the machine. Exit status 0 only if nothing was amiss.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import trio

from scripts.checkout import with_tmpdir
from scripts.soak.daemon import Daemon
from scripts.soak.havoc import Havoc
from scripts.soak.modules import Modules
from scripts.soak.report import Report


def main() -> int:
    """Run the soak; returns the exit status."""
    options = _options()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed  # noqa: S311
    report = Report(seed, patient=options.patient)
    with tempfile.TemporaryDirectory(prefix="stdiod-soak-", ignore_cleanup_errors=True) as name:
        trio.run(_soak, Path(name).resolve(), report, options)
    print(json.dumps(report.document()) if options.json else report.text())
    return 1 if report.faults() else 0


async def _soak(folder: Path, report: Report, options: argparse.Namespace) -> None:
    daemon = Daemon(folder, report)
    modules = Modules(daemon.modules, random.Random(report.seed))  # noqa: S311 - no keys
    began_at = time.monotonic()
    interrupted = trio.Event()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_signals, interrupted)
            havoc = Havoc(daemon, modules, report, nursery)
            await havoc.begin()
            while (
                report.seconds < options.minutes * 60
                and report.actions.total() < options.actions
                and not interrupted.is_set()
            ):
                await havoc.act()
                report.seconds = time.monotonic() - began_at
                _show(report, options.minutes)
            await havoc.end()
            nursery.cancel_scope.cancel()
    finally:
        _show_line("")
        report.seconds = round(time.monotonic() - began_at, 3)
        for process in with_tmpdir(daemon.scratch):
            process.kill()


async def _end_on_signals(interrupted: trio.Event) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            interrupted.set()


def _show(report: Report, minutes: float) -> None:
    of = "" if math.isinf(minutes) else f" of {minutes * 60:.0f}"
    _show_line(
        f"{report.seconds:.0f}{of} s, {report.actions.total()} actions, {report.asked} requests, "
        f"{report.outcomes.total()} answered, {len(report.lost)} lost, {report.daemons} daemons"
    )


def _show_line(line: str) -> None:
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\x1b[K{line[: columns - 1]}")
        sys.stderr.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=_above_0, default=math.inf, help="when to end")
    parser.add_argument(
        "--actions", type=_above_0, default=math.inf, help="or after how many things were done"
    )
    parser.add_argument("--seed", type=int, help="make the same choices again")
    parser.add_argument(
        "--patient",
        action="store_true",
        help="hold nothing against it that took long: the machine has other work",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one object")
    options = parser.parse_args()
    if math.isinf(options.minutes) and math.isinf(options.actions):
        parser.error("say --minutes or --actions: a soak is bounded")
    return options


def _above_0(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
