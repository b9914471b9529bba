"""Measure stdiod beside its peers: `make bench`, or `python -m scripts.bench --help`.

Each round runs every scene once, and within a scene each peer right beside ours, so that whatever
else the machine does meets all of them alike. Ratios travel from machine to machine; the absolute
figures are this one's.

What fails is named and left out, the others are measured, and the exit status is 1. After each
scene all figures so far are kept in `.bench.json`, which `--read` takes; an interrupted run ends
with what it has.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from scripts.bench import page, peers
from scripts.bench.scene import OURS, NotInstalledError, Sample, Workshop
from scripts.bench.table import SCENES
from scripts.checkout import ROOT

NAMES: Final = tuple(dict.fromkeys(scene.name for scene in SCENES))
ROUNDS: Final = 7
OPEN_FILES: Final = 65_536
"""A thousand modules need more than the usual 1,024 of their daemon, which inherits this."""
KEPT: Final = ROOT / ".bench.json"
BEGAN_S: Final = time.monotonic()


def say(words: str) -> None:
    """Tell those who wait what is going on, beside the results."""
    print(f"bench: {time.monotonic() - BEGAN_S:4.0f} s: {words}", file=sys.stderr, flush=True)


class Run:
    """What has been measured so far, and what could not be."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.names, self.write = options.scenes or NAMES, options.write
        self.quick, self.rounds = options.quick, options.rounds or (1 if options.quick else ROUNDS)
        self.failed: dict[str, None] = {}
        """The titles of rows of ours that have no figure in some round, each once."""
        self.findings = page.Findings(
            date=f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}",
            machine=peers.machine(),
            cores=os.cpu_count() or 1,
            load=round(os.getloadavg()[0], 2),
            parties=peers.parties(),
            quick=self.quick,
        )

    def measure(self, workshop: Workshop) -> None:
        for number in range(self.rounds):
            done, samples = self.findings.rounds, list[Sample]()
            self._keep((*done, ()))
            for scene in SCENES:
                if scene.name not in self.names or (number and scene.once):
                    continue
                say(f"round {number + 1}: {scene.rows[0].title}")
                try:
                    samples += self._noted(scene.measure(workshop))
                except NotInstalledError as error:
                    say(f"{scene.name} is left out: {error}")
                self._keep((*done, tuple(samples)))
            if self.write and number + 1 < self.rounds:
                write(self.findings)

    def _noted(self, samples: list[Sample]) -> list[Sample]:
        for sample in samples:
            if sample.value is None:
                say(f"FAILED: {sample.row}, {sample.contender}: {sample.why}")
                if sample.contender.startswith(OURS):
                    self.failed[sample.row] = None
        return samples

    def _keep(self, rounds: tuple[tuple[Sample, ...], ...]) -> None:
        self.findings = msgspec.structs.replace(self.findings, rounds=rounds)
        if not self.quick:
            KEPT.write_text(page.to_json(self.findings), encoding="utf-8")


def write(findings: page.Findings) -> None:
    for name, text in page.files(findings).items():
        (page.DOCS / name).write_text(text, encoding="utf-8")
        say(f"wrote {page.DOCS / name}")


def measured(options: argparse.Namespace) -> Run:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Run(options)
    for name, version in run.findings.parties.items():
        if version.startswith(peers.MISSING):
            say(f"{name} is left out: {version.removeprefix(peers.MISSING)}")
    with tempfile.TemporaryDirectory(prefix="stdiod-bench-") as folder:
        try:
            run.measure(Workshop(Path(folder), quick=options.quick))
        except KeyboardInterrupt:
            say("interrupted: this is what there is so far")
            run.failed["interrupted"] = None
    if options.quick:
        say("quick: this shows that it works; measure without it")
    return run


def read(path: Path) -> page.Findings:
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
        run = measured(options)
        findings, failed = run.findings, run.failed
    print(page.to_json(findings) if options.json else page.page(findings))
    if options.write:
        write(findings)
    if failed:
        say(f"failed: {'; '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
