"""Measure stdiod beside its peers: `make bench`, or `python -m scripts.bench --help`.

Each round runs every scene once, and within a scene each peer right beside ours, so that whatever
else the machine does meets all of them alike. Ratios travel from machine to machine; the absolute
figures are this one's.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import logging
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from scripts.bench import calls, fleets, journal, page
from scripts.bench.findings import Curve, Findings, from_json, to_json
from scripts.bench.machine import machine, parties
from scripts.bench.rows import Sample
from scripts.bench.sizes import QUICK, Sizes
from scripts.bench.workshop import NoCompilerError, Workshop

Scene = Callable[[Workshop], Sequence[Sample | Curve]]

SCENES: Final[dict[str, Scene]] = {
    **{name: partial(calls.side_by_side, works=works) for name, works in calls.WORKS.items()},
    "invoke": calls.invoke,
    "tool": calls.tools,
    "warm": calls.warm,
    "crash": fleets.crash,
    "fleet": fleets.fleet,
    "command": fleets.command,
    "patch": journal.patches,
    "journal": journal.entries,
    "scale": fleets.scale,
}
ONCE: Final = ("journal", "scale")
"""Of these one round is enough: they take long, and have nobody beside them."""
OPEN_FILES: Final = 65_536
"""A thousand modules need more than the usual 1,024 of their daemon, which inherits this."""
BEGAN_S: Final = time.monotonic()


def main() -> None:
    """Measure what was asked for, and print or write it."""
    options = _options()
    findings = _read(options.read) if options.read else _measured(options)
    print(to_json(findings) if options.json else page.page(findings))
    for name, text in page.files(findings).items() if options.write else ():
        (page.DOCS / name).write_text(text, encoding="utf-8")
        _say(f"wrote {page.DOCS / name}")


def _say(words: str) -> None:
    """Tell those who wait what is going on, beside the results."""
    print(f"bench: {time.monotonic() - BEGAN_S:4.0f} s: {words}", file=sys.stderr, flush=True)


def _read(path: Path) -> Findings:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        sys.exit(f"bench: {path} is not what --json prints: {error}")


def _measured(options: argparse.Namespace) -> Findings:
    # A daemon in this process would log its modules' lives among the results.
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    _allow_open_files()
    sizes = QUICK if options.quick else Sizes()
    if options.rounds is not None:
        sizes = dataclasses.replace(sizes, rounds=options.rounds)
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder:
        workshop = Workshop(Path(folder), sizes)
        here, present = machine(), tuple(parties(workshop))
        for party in present:
            if party.version is None:
                _say(f"{party.name} is left out: {party.why}")
        rounds, curves = _rounds(workshop, options.scenes or list(SCENES))
    if options.quick:
        _say("quick: this shows that it works; measure without it")
    return Findings(
        f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}",
        here,
        present,
        options.quick,
        tuple(map(tuple, rounds)),
        tuple(curves),
    )


def _rounds(workshop: Workshop, names: Sequence[str]) -> tuple[list[list[Sample]], list[Curve]]:
    rounds: list[list[Sample]] = []
    curves: list[Curve] = []
    for number in range(workshop.sizes.rounds):
        rounds.append([])
        for name in names:
            if number and name in ONCE:
                continue
            _say(f"round {number + 1} of {workshop.sizes.rounds}: {name}")
            try:
                for one in SCENES[name](workshop):
                    rounds[-1].append(one) if isinstance(one, Sample) else curves.append(one)
            except NoCompilerError as error:
                _say(f"{name} is left out: {error}")
    return rounds, curves


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    add = parser.add_argument
    add("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)}")
    add("--quick", action="store_true", help="only see whether it works")
    add("--rounds", type=int, metavar="N", help="how often to measure")
    add("--json", action="store_true", help="print JSON")
    add("--read", type=Path, metavar="FILE", help="measure nothing; take what --json printed")
    add("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    unknown = sorted(set(options.scenes) - set(SCENES))
    if unknown:
        parser.error(f"there is no scene {unknown[0]!r}; there are {', '.join(SCENES)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds is at least 1")
    if options.read and (options.scenes or options.quick or options.rounds):
        parser.error("--read measures nothing: it goes with --json and --write only")
    return options


if __name__ == "__main__":
    main()
