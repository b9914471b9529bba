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
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import structlog

from scripts.bench import in_process, outside, page, shares, supervised
from scripts.bench.findings import Findings, Point, from_json, to_json
from scripts.bench.machine import machine, parties
from scripts.bench.rows import Sample, Share
from scripts.bench.sizes import QUICK, Sizes
from scripts.bench.workshop import PEERS, NoCompilerError, Workshop
from supervisor.daemon.daemon_signals import Continued
from supervisor.runtime.loop_clock import run_timed
from supervisor.runtime.stalls import Stalls, Threads
from supervisor.runtime.turns import SERVING

Scene = Callable[[Workshop, Sizes], Awaitable[Sequence[Sample | Point | Share]]]

SCENES: dict[str, Scene] = {
    "stream": in_process.stream,
    "invoke": in_process.invoke,
    "relayed": outside.stream,
    "socket": outside.invoke,
    "hosted": in_process.hosted,
    "http": outside.http,
    "tool": in_process.tool,
    "warm": in_process.warm,
    "crash": supervised.crash,
    "fleet": supervised.fleet,
    "command": supervised.command,
    "patch": in_process.patch,
    "journal": in_process.journal,
    "scale": supervised.scale,
    "shares": shares.shares,
}
ONCE = ("journal", "scale", "shares")
"""Of these one round is enough: they take long, and have nobody beside them."""

BEGAN_S = time.monotonic()

OPEN_FILES = 65_536
"""A thousand modules need more than the usual 1,024 of their daemon, which inherits this."""


def main() -> None:
    """Measure what was asked for, and print or write it."""
    options = _options()
    findings = _read(options.read) if options.read else _measured(options)
    print(to_json(findings) if options.json else page.page(findings))
    for path in page.write(findings) if options.write else ():
        _say(f"wrote {path}")


def _say(words: str) -> None:
    """Tell those who wait what is going on, beside the results."""
    print(f"bench: {time.monotonic() - BEGAN_S:4.0f} s: {words}", file=sys.stderr, flush=True)


def _read(path: Path) -> Findings:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        sys.exit(f"bench: {path} is not what --json prints: {error}")


def _measured(options: argparse.Namespace) -> Findings:
    sizes = QUICK if options.quick else Sizes()
    if options.rounds is not None:
        sizes = dataclasses.replace(sizes, rounds=options.rounds)
    # A daemon in this process would log its modules' lives among the results.
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    _allow_open_files()
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder:
        workshop = Workshop(Path(folder), options.peers)
        here, present = machine(), tuple(parties(workshop))
        for party in present:
            if party.version is None:
                _say(f"{party.name} is left out: {party.why}")
        names = options.scenes or list(SCENES)
        with contextlib.closing(Threads.begun()) as threads:
            # As `serve` runs the event loop of a daemon of its own.
            gc.callbacks.append(SERVING.collecting)
            stalls = Stalls(threads=threads, continued=Continued())
            rounds, others = run_timed(_rounds, workshop, sizes, names, stalls=stalls)
    if options.quick:
        _say("quick: this shows that it works; measure without it")
    return Findings(
        f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}",
        here,
        present,
        options.quick,
        tuple(map(tuple, rounds)),
        tuple(one for one in others if isinstance(one, Point)),
        tuple(one for one in others if isinstance(one, Share)),
        pinned=True,
    )


async def _rounds(
    workshop: Workshop, sizes: Sizes, names: Sequence[str]
) -> tuple[list[list[Sample]], list[Point | Share]]:
    rounds: list[list[Sample]] = []
    others: list[Point | Share] = []
    for number in range(sizes.rounds):
        rounds.append([])
        for name in names:
            if number and name in ONCE:
                continue
            _say(f"round {number + 1} of {sizes.rounds}: {name}")
            try:
                for one in await SCENES[name](workshop, sizes):
                    rounds[-1].append(one) if isinstance(one, Sample) else others.append(one)
            except NoCompilerError as error:
                _say(f"{name} is left out: {error}")
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
        default=PEERS,
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
