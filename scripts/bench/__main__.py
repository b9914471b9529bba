"""Measure stdiod beside its peers: `make bench`, or `python -m scripts.bench --help`.

Each round runs every scene once, and within a scene each peer right beside ours, so that whatever
else the machine does meets all of them alike. Ratios travel from machine to machine; the absolute
figures are this one's.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime as dt
import gc
import logging
import resource
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from scripts.bench import (
    command_line,
    in_process,
    memory,
    over_http,
    over_socket,
    page,
    patches,
    scale,
    shares,
    supervised,
    warm,
)
from scripts.bench.findings import Findings, from_json, to_json
from scripts.bench.growth import Point
from scripts.bench.parties import machine, parties
from scripts.bench.progress import Progress
from scripts.bench.report import print_report
from scripts.bench.rows import Sample, Share
from scripts.bench.sizes import FULL, QUICK, Sizes
from scripts.bench.workshop import NoCompilerError, Workshop
from scripts.peers import environments
from scripts.peers.supervisors import Packaged
from supervisor.daemon.daemon_signals import Continued
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.stalls import Stalls, Threads
from supervisor.runtime.turns import SERVING

Scene = Callable[[Workshop, Sizes], Awaitable[Sequence[Sample | Point | Share]]]

SCENES: dict[str, Scene] = {
    "stream": in_process.stream,
    "invoke": in_process.invoke,
    "relayed": over_socket.stream,
    "socket": over_socket.invoke,
    "hosted": in_process.hosted,
    "http": over_http.http,
    "tool": in_process.tool,
    "warm": warm.warm,
    "crash": supervised.crash,
    "fleet": supervised.fleet,
    "command": command_line.command,
    "patch": patches.patch,
    "journal": memory.journal,
    "scale": scale.scale,
    "shares": shares.shares,
}
ONCE = ("journal", "scale", "shares")
"""Of these one round is enough: they take long, and have nobody beside them."""

OPEN_FILES = 65_536
"""A thousand modules need more than the usual 1,024 of their daemon, which inherits this."""


def main() -> None:
    """Measure what was asked for, and print or write it."""
    options = _options()
    findings = _read(options.read) if options.read else _measured(options)
    if options.json:
        print(to_json(findings))
    else:
        print_report(findings)
    if options.write:
        for path in page.write(findings):
            print(f"bench: wrote {path}", file=sys.stderr)


def _read(path: Path) -> Findings:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        sys.exit(f"bench: {path} is not what --json prints: {error}")


def _measured(options: argparse.Namespace) -> Findings:
    sizes = QUICK if options.quick else FULL
    if options.rounds is not None:
        sizes = dataclasses.replace(sizes, rounds=options.rounds)
    # A daemon in this process would log its modules' lives among the results.
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    _allow_open_files()
    Packaged.environments = options.peers
    progress = Progress()
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder:
        workshop = Workshop(Path(folder), options.peers)
        here, present = machine(), parties(workshop)
        for party in present:
            if party.version is None:
                progress.note(f"{party.name} is left out: {party.why}")
        names = options.scenes or list(SCENES)
        with contextlib.closing(Threads.begun()) as threads:
            # As `serve` runs the event loop of a daemon of its own.
            gc.callbacks.append(SERVING.collecting)
            stalls = Stalls(threads=threads, continued=Continued())
            rounds, others = run_timed(_rounds, workshop, sizes, names, progress, stalls=stalls)
    progress.end()
    if options.quick:
        progress.note("quick: this shows that it works; measure without it")
    today = f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}"
    return Findings(
        today,
        here,
        present,
        options.quick,
        tuple(map(tuple, rounds)),
        tuple(one for one in others if isinstance(one, Point)),
        tuple(one for one in others if isinstance(one, Share)),
        pinned=True,
    )


async def _rounds(
    workshop: Workshop, sizes: Sizes, names: Sequence[str], progress: Progress
) -> tuple[list[list[Sample]], list[Point | Share]]:
    rounds: list[list[Sample]] = []
    others: list[Point | Share] = []
    for number in range(sizes.rounds):
        samples: list[Sample] = []
        for name in names:
            if number and name in ONCE:
                continue
            progress.step(f"round {number + 1} of {sizes.rounds}: {name}")
            try:
                found = await SCENES[name](workshop, sizes)
            except NoCompilerError as error:
                progress.note(f"{name} is left out: {error}")
                continue
            for one in found:
                if isinstance(one, Sample):
                    samples.append(one)
                else:
                    others.append(one)
        rounds.append(samples)
    return rounds, others


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)}")
    parser.add_argument("--quick", action="store_true", help="only see whether it works")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="how often to measure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--read", type=Path, metavar="FILE", help="measure nothing; take what --json printed"
    )
    parser.add_argument(
        "--peers",
        type=Path,
        default=environments.FOLDER,
        metavar="DIR",
        help="where the peers from PyPI are installed",
    )
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    unknown = sorted(set(options.scenes) - set(SCENES))
    if unknown:
        parser.error(f"there is no scene {unknown[0]!r}; there are {', '.join(SCENES)}")
    if options.read and (options.scenes or options.quick or options.rounds):
        parser.error("--read measures nothing: it goes with --json and --write only")
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        message = "at least 1"
        raise argparse.ArgumentTypeError(message)
    return number


if __name__ == "__main__":
    main()
