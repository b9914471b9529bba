"""Measure stdiod beside its peers: `make bench`, or `python -m scripts.bench --help`.

Each round runs every scene of rows.toml once, and within a scene each peer right beside ours, so
that whatever else the machine does meets all of them alike. Ratios travel from machine to machine;
the absolute figures are this one's.

What fails is named and left out, the others are measured, and the exit status is 1. After each
scene all figures so far are kept in `.bench.json`, which `--read` takes; an interrupted run ends
with what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import itertools
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from scripts.bench import contenders, page, peers, supervisors
from scripts.bench.contenders import Bench, Cost, Figure, NotInstalledError, on_one_cpu
from scripts.bench.page import Findings, Sample
from scripts.bench.table import OURS, SCENES, Row, Scene
from scripts.checkout import ROOT

CONTENDERS: Final[dict[str, Callable[..., list[Figure]]]] = vars(contenders) | vars(supervisors)
NAMES: Final = tuple(dict.fromkeys(scene.name for scene in SCENES))
ROUNDS: Final = 7
OPEN_FILES: Final = 65_536
"""A thousand modules need more than the usual 1,024 of their daemon, which inherits this."""
KEPT: Final = ROOT / ".bench.json"
BEGAN_S: Final = time.monotonic()


def say(words: str) -> None:
    """Tell those who wait what is going on, beside the results."""
    print(f"bench: {time.monotonic() - BEGAN_S:4.0f} s: {words}", file=sys.stderr, flush=True)


def sample(row: Row, who: str, figure: Figure) -> Sample:
    match figure:
        case Cost(wall_s, cpu_s):
            value = 1 / wall_s if row.unit.endswith("/s") else wall_s * 1000
            return Sample(row.title, who, value, cpu_us=cpu_s * 1e6)
        case str():
            return Sample(row.title, who, None, figure)
        case _:
            return Sample(row.title, who, figure)


def measured(scene: Scene, bench: Bench) -> list[Sample]:
    """Measure all parties that are installed; of one that fails, return the reason.

    Raises `NotInstalledError` if ours is not installed.
    """
    samples: list[Sample] = []
    with on_one_cpu() if scene.one_cpu else contextlib.nullcontext():
        for who, party in scene.who().items():
            words = {name: value for name, value in party.items() if name != "by"}
            try:
                figures = CONTENDERS[party["by"]](bench, scene, **words)
                assert len(figures) == len(scene.rows), figures
            except NotInstalledError:
                if who == OURS:
                    raise
                continue
            except Exception as error:  # noqa: BLE001 - all the others are still measured
                figures = [str(error) or repr(error)] * len(scene.rows)
            samples += map(sample, scene.rows, itertools.repeat(who), figures)
    return samples


class Run:
    """What has been measured so far, and what could not be."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.failed: dict[str, None] = {}
        """The titles of rows of ours that have no figure in some round, each once."""
        self.findings = Findings(
            date=f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}",
            machine=peers.machine(),
            cores=os.cpu_count() or 1,
            load=round(os.getloadavg()[0], 2),
            parties=peers.parties(),
            quick=options.quick,
        )
        for name, version in self.findings.parties.items():
            if version.startswith(peers.MISSING):
                say(f"{name} is left out: {version.removeprefix(peers.MISSING)}")

    def measure(self, bench: Bench) -> None:
        names, rounds = self.options.scenes or NAMES, self.options.rounds
        rounds = rounds or (1 if bench.quick else ROUNDS)
        for number in range(rounds):
            done, samples = self.findings.rounds, list[Sample]()
            self._keep((*done, ()))
            for scene in SCENES:
                if scene.name not in names or (number and scene.once):
                    continue
                say(f"round {number + 1}: {scene.rows[0].title}")
                try:
                    samples += map(self._noted, measured(scene, bench))
                except NotInstalledError as error:
                    say(f"{scene.name} is left out: {error}")
                self._keep((*done, tuple(samples)))
            if self.options.write and number + 1 < rounds:
                write(self.findings)

    def _keep(self, rounds: tuple[tuple[Sample, ...], ...]) -> None:
        self.findings = msgspec.structs.replace(self.findings, rounds=rounds)
        if not self.options.quick:
            KEPT.write_text(page.to_json(self.findings), encoding="utf-8")

    def _noted(self, sample: Sample) -> Sample:
        if sample.value is None:
            say(f"FAILED: {sample.row}, {sample.contender}: {sample.why}")
            if sample.contender.startswith(OURS):
                self.failed[sample.row] = None
        return sample


def write(findings: Findings) -> None:
    for name, text in page.files(findings).items():
        (page.DOCS / name).write_text(text, encoding="utf-8")
        say(f"wrote {page.DOCS / name}")


def run(options: argparse.Namespace) -> Run:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Run(options)
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder:
        try:
            run.measure(Bench(Path(folder), quick=options.quick))
        except KeyboardInterrupt:
            say("interrupted: this is what there is so far")
            run.failed["interrupted"] = None
    if options.quick:
        say("quick: this shows that it works; measure without it")
    return run


def read(path: Path) -> Findings:
    try:
        return page.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        sys.exit(f"bench: {path} is not what --json prints: {error}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=f"{__doc__}".partition("\n")[0])
    add = parser.add_argument
    add("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(NAMES)}")
    add("--quick", action="store_true", help="only see whether it works")
    add("--rounds", type=int, metavar="N", help=f"how often to measure; {ROUNDS} times if not said")
    add("--json", action="store_true", help="print JSON")
    add("--read", type=Path, metavar="FILE", help="measure nothing; take what --json printed")
    add("--write", action="store_true", help="write docs/benchmarks.md after each round")
    options = parser.parse_args()
    if unknown := sorted(set(options.scenes) - set(NAMES)):
        parser.error(f"there is no scene {unknown[0]!r}; there are {', '.join(NAMES)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds is at least 1")
    if options.read and (options.scenes or options.quick or options.rounds):
        parser.error("--read measures nothing: it goes with --json and --write only")
    return options


def main() -> int:
    options = parsed()
    failed: dict[str, None] = {}
    if options.read:
        findings = read(options.read)
    else:
        done = run(options)
        findings, failed = done.findings, done.failed
    print(page.to_json(findings) if options.json else page.page(findings))
    if options.write:
        write(findings)
    if failed:
        say(f"failed: {'; '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
