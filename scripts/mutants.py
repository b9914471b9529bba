"""Change the product at random, one place at a time, and ask whether the seam tests notice.

    python -m scripts.mutants --seed 7 --number 60

A mutant is one changed comparison, bound, `await`, cleanup, order or `if`. It is run against the
seam tests alone, those that reach its line first. They know the product from outside, so they stay
when what is inside is rebuilt: who wants to know what they hold asks here.

- Which test file reaches which line is measured once (coverage, the daemons included) and kept in
  `.mutants/reached.json`; a test file that has changed is measured anew, a changed product whole.
- Each mutant runs in one of two copies of the tree with a Python of its own, below `.mutants`, in
  namespaces of its own for processes and mounts, with its own /tmp: a daemon that has forgotten
  whom to kill kills nobody else, and what it leaves behind ends with the run.
- A mutant that no test notices, since nothing that anybody could see has changed, stands with its
  reason in `mutants_equivalent.toml`, and another one is drawn in its place.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import trio
from coverage import CoverageData, CoverageException

from scripts.mutant_places import Mutant, compiles, draw, places
from scripts.seam_tests import seam_tests

CHECKOUT = Path(__file__).resolve().parent.parent
EQUIVALENT = CHECKOUT / "scripts" / "mutants_equivalent.toml"
KEPT = CHECKOUT / ".mutants"

MUTATED = (
    "supervisor/kernel",
    "supervisor/runtime",
    "protocol",
    "supervisor/policy",
    "supervisor/faces",
)

BARE = {
    "supervisor/runtime/checking/": ("supervisor/runtime/checking/contract.py",),
    "supervisor/runtime/containment/": (
        "supervisor/runtime/containment/guardian.py",
        "supervisor/runtime/containment/spawner.py",
    ),
}
"""Programs there run in a Python that coverage does not see; what starts them is seen."""

STARTS_BARE = b'"-I", "-S", "-c", program'

SLOTS = 2
TESTS_S = 150.0
"""Of tests for one mutant, by the time that they took when they were measured."""

FIRST_S = 12.0
"""So many of those seconds are in the first run, which notices most mutants."""

SLOWER, START_S = 4.0, 30.0
"""A run may take so many times what it took when it was measured, and so much to start."""

OWN_ENVIRONMENT = {"HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108 - each run has its own /tmp
NO_SANDBOX = 97
PASSED = (0, 5)
"""What pytest ends with if nothing failed, or nothing was there to be run."""


# Copies of the tree, and runs in them.


@dataclass
class Ended:
    """How a run of pytest ended; without a status it passed its bound."""

    status: int | None
    output: str
    seconds: float


class Copy:
    """A copy of what git knows of the tree, with a Python that imports the product from it."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self._venv = folder / "venv"
        self.python = self._venv / "bin" / "python"
        self._folder = folder
        self._stamp = int(time.time()) - 10**6

    def make(self) -> None:
        """Make the copy anew."""
        shutil.rmtree(self._folder, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, text=True, check=True)
        for name in filter(None, names.stdout.split("\0")):
            if (CHECKOUT / name).exists():
                target = self.tree / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(CHECKOUT / name, target, follow_symlinks=False)
        venv.create(self._venv, with_pip=False)
        (packages,) = self._venv.glob("lib/python*/site-packages")
        installed = [path for path in sys.path if path.endswith("site-packages")]
        later = "; ".join(f"site.addsitedir({path!r})" for path in installed)
        (packages / "copy.pth").write_text(f"{self.tree}\nimport site; {later}\n")
        script = self._venv / "bin" / "stdiod"
        script.write_text(
            f"#!{self.python}\nimport sys\nfrom supervisor.cli.main import main\nsys.exit(main())\n"
        )
        script.chmod(0o755)

    @contextlib.contextmanager
    def changed(self, file: str, text: bytes) -> Iterator[None]:
        """Have a file of the copy say something else for a while."""
        path = self.tree / file
        before = path.read_bytes()
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: bytes) -> None:
        # What was compiled is taken for current if size and second are the same.
        path.write_bytes(text)
        self._stamp += 1
        os.utime(path, (self._stamp, self._stamp))

    async def run(self, bound_s: float, *words: str, **variables: str) -> Ended:
        """Run pytest in the copy, in namespaces of its own."""
        pytest = [str(self.python), "-m", "pytest", "-q", "-n", "0", "--tb=no", "--no-header"]
        steady = ["-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        inside = f'mount -t tmpfs -o size=4g tmpfs /tmp || exit {NO_SANDBOX}; "$@"; exit $?'
        unshared = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
        began = time.monotonic()
        output = bytearray()
        status: int | None = None
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                functools.partial(
                    trio.run_process,
                    [*unshared, "sh", "-c", inside, "sh", *pytest, *steady, *words],
                    cwd=self.tree,
                    env={**os.environ, **OWN_ENVIRONMENT, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                    deliver_cancel=_kill,
                )
            )
            assert process.stdout is not None
            with trio.move_on_after(bound_s):
                async for some in process.stdout:
                    output += some
                status = await process.wait()
            nursery.cancel_scope.cancel()
        text = output.decode(errors="replace")
        if status == NO_SANDBOX or "unshare failed" in text:
            raise SystemExit(
                f"No namespaces for processes and mounts, without which a mutant "
                f"might kill the processes of others: {text.strip()}"
            )
        return Ended(status, text, time.monotonic() - began)


async def _kill(process: trio.Process) -> None:
    process.kill()


def failed_tests(output: str) -> list[str]:
    """Return the tests that a run of pytest says have failed."""
    named = r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?= - |$)"
    return re.findall(named, output, re.MULTILINE)


# Which test file reaches which line.


@dataclass
class Reached:
    """What one test file did in an unchanged tree."""

    digest: str
    seconds: float
    failed: list[str]
    lines: dict[str, list[int]]


COVERAGE = """\
[run]
source_pkgs = protocol, supervisor
parallel = true
data_file = ${MUTANTS_DATA}
patch = fork, _exit
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""


def digest_of(*paths: Path) -> str:
    """Return what changes with the content of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Map:
    """Which test file reaches which line, as far as it is known."""

    def __init__(self, path: Path, product: str) -> None:
        self.tests: dict[str, Reached] = {}
        self.asked: set[str] = set()
        """Those of them that mutants are run against."""
        self._path = path
        self._product = product
        with contextlib.suppress(FileNotFoundError):
            kept = json.loads(path.read_text())
            if kept["product"] == product:
                self.tests = {test: Reached(**known) for test, known in kept["tests"].items()}

    def keep(self) -> None:
        """Write down what is known."""
        tests = {test: asdict(known) for test, known in self.tests.items()}
        self._path.write_text(json.dumps({"product": self._product, "tests": tests}))

    def missing(self, tests: Sequence[str]) -> list[str]:
        """Return those that have to be measured."""
        return [
            test
            for test in tests
            if test not in self.tests or self.tests[test].digest != digest_of(CHECKOUT / test)
        ]

    def reaching(self, mutant: Mutant) -> list[str]:
        """Return the test files that reach a line; those that see much of its file, soonest."""

        def order(test: str) -> float:
            known = self.tests[test]
            return (known.seconds + 0.5) / math.sqrt(1 + len(known.lines.get(mutant.file, ())))

        reaching = self._reaching(mutant.file, mutant.own_lines())
        if uses := uses_of(mutant):
            reaching = set().union(*(self._reaching(file, lines) for file, lines in uses.items()))
        for folder, starters in BARE.items():
            if not reaching and mutant.file.startswith(folder):
                for starter in starters:
                    before, _, _ = (CHECKOUT / starter).read_bytes().partition(STARTS_BARE)
                    reaching |= self._reaching(starter, {before.count(b"\n") + 1})
        return sorted(sorted(reaching), key=order)

    def _reaching(self, file: str, lines: set[int]) -> set[str]:
        return {
            test
            for test, known in self.tests.items()
            if test in self.asked and not lines.isdisjoint(known.lines.get(file, ()))
        }

    def deselected(self, tests: Sequence[str]) -> list[str]:
        """Return the options that leave out what fails in an unchanged tree."""
        failed = (one for test in tests for one in self.tests[test].failed)
        return [word for one in failed for word in ("--deselect", one)]


CONSTANT = re.compile(rb"_?[A-Z][A-Z0-9_]+(?=(: [^=]+)? = )")
AROUND = 3
"""Coverage counts a statement of several lines at some of them."""


def uses_of(mutant: Mutant) -> dict[str, set[int]]:
    """Return the lines that name the constant whose value a mutant changes, by file, if it does.

    Whoever imports its file reaches the constant itself, and few of them what it is for.
    """
    if mutant.function:
        return {}
    rows = (CHECKOUT / mutant.file).read_bytes().splitlines()
    found = CONSTANT.match(rows[mutant.lines.start - 1])
    if found is None:
        return {}
    named = re.compile(rb"\b%b\b" % found[0])
    uses: dict[str, set[int]] = {}
    for path in product_files():
        for number, row in enumerate(path.read_bytes().splitlines(), 1):
            if named.search(row) and row[:1] == b" " and not row.rstrip().endswith(b","):
                lines = uses.setdefault(str(path.relative_to(CHECKOUT)), set())
                lines |= {*range(number - AROUND, number + AROUND + 1)}
    return uses


@functools.cache
def product_files() -> list[Path]:
    """Return the files that mutants are made of."""
    return sorted(path for folder in MUTATED for path in (CHECKOUT / folder).glob("**/*.py"))


async def measure(copy: Copy, folder: Path, test: str) -> Reached:
    """Run one test file with coverage; what fails then is asked again without."""
    shutil.rmtree(folder, ignore_errors=True)
    await trio.Path(folder).mkdir(parents=True)
    await trio.Path(folder / "rc").write_text(COVERAGE)
    variables = {"COVERAGE_PROCESS_START": str(folder / "rc"), "MUTANTS_DATA": str(folder / "data")}
    ended = await copy.run(600, test, **variables)
    lines = covered(folder, copy.tree)
    shutil.rmtree(folder)
    if ended.status not in PASSED:
        ended = await copy.run(600, test)
    failed = failed_tests(ended.output) if ended.status not in PASSED else []
    return Reached(digest_of(CHECKOUT / test), round(ended.seconds, 2), failed, lines)


def covered(folder: Path, tree: Path) -> dict[str, list[int]]:
    """Return the lines that all processes of a run have reached, by file of the product."""
    lines: dict[str, set[int]] = {}
    for path in folder.glob("data.*"):
        data = CoverageData(str(path))
        with contextlib.suppress(CoverageException):  # a process was killed while it wrote
            data.read()
            for measured in data.measured_files():
                name = os.path.relpath(measured, tree)
                if name.startswith(MUTATED):
                    lines.setdefault(name, set()).update(data.lines(measured) or ())
    return {name: sorted(numbers) for name, numbers in sorted(lines.items())}


# What becomes of a mutant.


@dataclass
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    was: str
    now: str
    noticed_by: str = ""
    """A test, or that a run passed its bound; empty if nothing noticed it."""
    reached_by: int = 0
    tried: int = 0
    seconds: float = 0.0
    unsteady: list[str] = field(default_factory=list)
    """Tests that failed once, and passed when they were asked again."""

    def document(self) -> dict[str, Any]:
        """Return it for `--json`."""
        where = f"{self.mutant.file}:{self.mutant.line}"
        told = {"at": where, "function": self.mutant.function, "kind": self.mutant.kind}
        rest = asdict(self)
        del rest["mutant"]
        return {**told, **rest}


async def judge(mutant: Mutant, source: bytes, reached: Map, copy: Copy) -> Verdict:
    """Run the tests that reach a mutant, until one of them notices it."""
    verdict = Verdict(mutant, *mutant.diff(source))
    reaching = reached.reaching(mutant)
    verdict.reached_by = len(reaching)
    began = time.monotonic()
    with copy.changed(mutant.file, mutant.apply(source)):
        for tests in batches(reaching, reached):
            verdict.noticed_by = await _notice(tests, reached, copy, verdict)
            verdict.tried += len(tests)
            if verdict.noticed_by:
                break
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict


async def _notice(tests: list[str], reached: Map, copy: Copy, verdict: Verdict) -> str:
    bound_s = START_S + SLOWER * sum(reached.tests[test].seconds for test in tests)
    passed_over = reached.deselected(tests)
    while True:
        ended = await copy.run(bound_s, "-x", *tests, *passed_over)
        if ended.status is None:  # a hang, or a machine that is busy
            ended = await copy.run(2 * bound_s, "-x", *tests, *passed_over)
        if ended.status is None:
            return f"passed its bound of {2 * bound_s:.0f} s: {tests[0]}, ..."
        if ended.status in PASSED:
            return ""
        failed = failed_tests(ended.output)
        if not failed:
            return f"pytest ended with {ended.status}: {ended.output[-300:].strip()}"
        again = await copy.run(bound_s, "-x", failed[0])
        if again.status not in PASSED:
            return failed[0]
        verdict.unsteady.append(failed[0])
        passed_over += ["--deselect", failed[0]]


def batches(reaching: Sequence[str], reached: Map) -> Iterator[list[str]]:
    """Yield the tests of one run after the other, as long as there is time for them."""
    total_s = 0.0
    bounds_s = [FIRST_S, 4 * FIRST_S, TESTS_S]
    batch: list[str] = []
    for test in reaching:
        seconds = reached.tests[test].seconds
        if batch and total_s + seconds > bounds_s[0]:
            yield batch
            batch = []
            bounds_s = bounds_s[1:]
            if not bounds_s:
                return
        batch.append(test)
        total_s += seconds
        if total_s > TESTS_S:
            break
    if batch:
        yield batch


def equivalents(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Return why some mutants change nothing, by file, function and line before and after."""
    with path.open("rb") as file:
        rows = tomllib.load(file).get("mutant", [])
    return {(row["file"], row["function"], row["was"], row["now"]): row["why"] for row in rows}


BROKEN = ("supervisor/faces/control_socket.py", "tests/field/test_disabled.py")
BREAKS = b"raise AssertionError('this copy runs')\n"


async def check_copy(copy: Copy, test: str) -> None:
    """Be sure that daemons run what is in the copy: with a broken one, a test of them fails."""
    broken, _ = BROKEN
    whole = await copy.run(300, "-x", test)
    assert whole.status in PASSED, f"{test} fails in a copy of the tree:\n{whole.output}"
    with copy.changed(broken, BREAKS):
        ended = await copy.run(300, "-x", test)
    assert ended.status == 1, f"{test} passes with a broken {broken}:\n{ended.output}"


@asynccontextmanager
async def copies(number: int) -> AsyncIterator[list[Copy]]:
    """Make copies of the tree, and remove them in the end."""
    made = [Copy(KEPT / str(slot)) for slot in range(number)]
    try:
        for copy in made:
            copy.make()
        yield made
    finally:
        for slot in range(number):
            shutil.rmtree(KEPT / str(slot), ignore_errors=True)


def say(words: str) -> None:
    """Tell how far it is."""
    print(words, file=sys.stderr, flush=True)


async def measure_all(reached: Map, tests: list[str], made: list[Copy]) -> None:
    """Measure what is not known yet, and keep it."""
    reached.asked = set(tests)
    missing = reached.missing(tests)
    left = list(missing)

    async def measure_with(copy: Copy, folder: Path) -> None:
        while left:
            test = left.pop(0)
            known = reached.tests[test] = await measure(copy, folder, test)
            words = f"{len(missing) - len(left)}/{len(missing)} {test} {known.seconds:.1f} s"
            say(f"{words}; fails: {', '.join(known.failed)}" if known.failed else words)
            if len(left) % 10 == 0:
                reached.keep()

    async with trio.open_nursery() as nursery:
        for slot, copy in enumerate(made):
            nursery.start_soon(measure_with, copy, KEPT / f"lines-{slot}")
    reached.keep()


async def judge_all(
    drawn: Iterator[Mutant], number: int, sources: dict[str, bytes], reached: Map, made: list[Copy]
) -> tuple[list[Verdict], int]:
    """Judge so many mutants, and count those passed over since they change nothing."""
    same = equivalents(EQUIVALENT)
    verdicts: list[Verdict] = []
    begun = passed_over = 0

    async def judge_with(copy: Copy) -> None:
        nonlocal begun, passed_over
        while begun < number:
            mutant = next(drawn, None)
            if mutant is None:
                return
            source = sources[mutant.file]
            if (mutant.file, mutant.function, *mutant.diff(source)) in same:
                passed_over += 1
                continue
            begun += 1
            verdict = await judge(mutant, source, reached, copy)
            verdicts.append(verdict)
            say(f"{len(verdicts)}/{number} {line_of(verdict)}")

    try:
        async with trio.open_nursery() as nursery:
            for copy in made:
                nursery.start_soon(judge_with, copy)
    except* KeyboardInterrupt:
        say("interrupted: this is what there is so far")
    return verdicts, passed_over


def line_of(verdict: Verdict) -> str:
    """Return what became of a mutant, and of a survivor the change."""
    mutant = verdict.mutant
    where = f"{mutant.file}:{mutant.line} {mutant.function} [{mutant.kind}]"
    changed = f"\n      - {verdict.was}\n      + {verdict.now}"
    if verdict.noticed_by:
        return f"noticed {verdict.seconds:.0f} s {where}: {verdict.noticed_by.splitlines()[0]}"
    if not verdict.reached_by:
        return f"SURVIVES {where}: not reached{changed}"
    return f"SURVIVES {where}: {verdict.tried} of {verdict.reached_by} test files{changed}"


async def run(options: argparse.Namespace) -> int:
    """Draw mutants, judge them and report."""
    KEPT.mkdir(exist_ok=True)
    files = product_files()
    sources = {str(path.relative_to(CHECKOUT)): path.read_bytes() for path in files}
    tests, total = seam_tests(CHECKOUT)
    seams = len(tests)
    say(f"{seams} of {total} test files are seam tests")
    others = (path for folder in options.also for path in CHECKOUT.glob(f"{folder}/**/test_*.py"))
    tests = sorted({*tests, *(str(path.relative_to(CHECKOUT)) for path in others)})
    reached = Map(KEPT / "reached.json", digest_of(*files))
    async with copies(SLOTS) as made:
        for copy in made:
            await check_copy(copy, BROKEN[1])
        await measure_all(reached, tests, made)
        if options.at:
            drawn = iter(at(options.at, sources))
            options.number = len(at(options.at, sources))
        else:
            within = {
                file: text for file, text in sources.items() if file.startswith(options.within)
            }
            drawn = draw(within, options.seed)
        verdicts, passed_over = await judge_all(drawn, options.number, sources, reached, made)
    survivors = [verdict for verdict in verdicts if not verdict.noticed_by]
    noticed = len(verdicts) - len(survivors)
    if options.json:
        report = {
            "seed": options.seed,
            "test_files": total,
            "seam_test_files": seams,
            "also": options.also,
            "number": len(verdicts),
            "noticed": noticed,
            "by_bound": sum("passed its bound" in one.noticed_by for one in verdicts),
            "changing_nothing": passed_over,
            "mutants": [verdict.document() for verdict in verdicts],
        }
        print(json.dumps(report, indent=1))
    else:
        for verdict in survivors:
            print(line_of(verdict))
        share = f"{100 * noticed / len(verdicts):.1f} %" if verdicts else "none"
        print(f"seed {options.seed}: {noticed} of {len(verdicts)} noticed, {share};", end=" ")
        print(f"{passed_over} more change nothing")
    return 0


def at(place: str, sources: dict[str, bytes]) -> list[Mutant]:
    """Return all mutants of `FILE:LINE`."""
    file, _, line = place.rpartition(":")
    source = sources[file]
    found = [mutant for mutant in places(file, source) if str(mutant.line) == line]
    return [mutant for mutant in found if compiles(mutant.apply(source))]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--number", type=int, default=60, help="how many mutants")
    parser.add_argument("--at", metavar="FILE:LINE", help="all mutants of a line instead")
    parser.add_argument(
        "--also", metavar="FOLDER", nargs="*", default=[], help="tests that are not at a seam yet"
    )
    parser.add_argument("--within", default="", help="draw in files whose path begins with this")
    parser.add_argument("--json", action="store_true", help="print a document with each mutant")
    return trio.run(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
