"""Change the product at random, one place at a time, and ask whether the seam tests notice.

    python -m scripts.mutants --seed 7 --number 60

A mutant is one changed comparison, bound, `await`, cleanup, order or `if`. It is run against the
seam tests alone, those that reach its line first. They know the product from outside, so they stay
when what is inside is rebuilt, and have to hold what it does.

- Which test file reaches which line is measured once (coverage, the daemons included) and kept in
  `.mutants/reached.json`. A test file that has changed is measured anew; in a file of the product
  that has changed, new lines count as reached by what reached the old ones, or those around them.
- Each mutant runs in one of four copies of the tree with a Python of its own, below `.mutants`, in
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
import itertools
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
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path

import trio
from coverage import CoverageData, CoverageException

from scripts.checkout import ROOT, copy_known_files
from scripts.mutant_places import Mutant, draw, places
from scripts.seam_tests import seam_tests

EQUIVALENT = ROOT / "scripts" / "mutants_equivalent.toml"
KEPT = ROOT / ".mutants"

MUTATED = (
    "supervisor/kernel",
    "supervisor/runtime",
    "protocol",
    "supervisor/policy",
    "supervisor/faces",
)
BARE = "supervisor/runtime/containment/"
GUARDIAN, STARTS_BARE = f"{BARE}guardian.py", b'"-I", "-S", "-c", program'
"""Programs there run in a Python that coverage does not see; what starts them is seen."""

SLOTS = 4
"""On two processors: most of the time, a test waits for a process."""
RUNS_S = (12.0, 48.0, 150.0)
"""The tests for one mutant, by the time that they took when they were measured: those of the first
run, which notices most mutants, of that and the second, and of all."""
SLOWER, START_S = 10.0, 30.0
"""A run may take so many times what it took when it was measured, and so much to start."""
TEST_S = 30
"""Of one test: most mutants that are noticed late have it wait for ever. It is asked again with
twice as much, since machines are busy."""
MEASURED_S, CHECKED_S = 600.0, 300.0
"""For the tests of one file with an unchanged product, and for one that is known to be short."""

NO_SANDBOX = 97
SANDBOX = (
    *("unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c"),
    f'mount -t tmpfs -o size=4g tmpfs /tmp || exit {NO_SANDBOX}; "$@"; exit $?',
    "sh",
)
OWN_ENVIRONMENT = {"HOME": "/tmp", "TMPDIR": "/tmp"}  # noqa: S108 - each run has its own /tmp
PYTEST = (
    *("-m", "pytest", "-q", "-n", "0", "--tb=no", "--no-header"),
    *("-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
)
PASSED = (0, 5)
"""What pytest ends with if nothing failed, or nothing was there to be run."""

BROKEN, NOTICED_BY = "supervisor/faces/control_socket.py", "tests/system/test_commands_at_once.py"
BREAKS = b"raise AssertionError('this copy runs')\n"


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


# Copies of the tree, and runs in them.


@dataclass
class Ended:
    """How a run of pytest ended; without a status it passed its bound."""

    status: int | None
    output: str
    seconds: float

    @property
    def failed(self) -> list[str]:
        return [] if self.status in PASSED else failed_tests(self.output)


def failed_tests(output: str) -> list[str]:
    named = r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?= - |$)"
    return re.findall(named, output, re.MULTILINE)


class Copy:
    """A copy of what git knows of the tree, with a Python that imports the product from it."""

    def __init__(self, folder: Path) -> None:
        """Make the copy, in place of what was in the folder."""
        self.folder, self.tree = folder, folder / "tree"
        self._python = folder / "venv" / "bin" / "python"
        self._stamp = int(time.time()) - 10**6
        shutil.rmtree(folder, ignore_errors=True)
        copy_known_files(self.tree)
        venv.create(folder / "venv", with_pip=False)
        (packages,) = folder.glob("venv/lib/python*/site-packages")
        installed = [path for path in sys.path if path.endswith("site-packages")]
        later = "; ".join(f"site.addsitedir({path!r})" for path in installed)
        (packages / "copy.pth").write_text(f"{self.tree}\nimport site; {later}\n")
        script = self._python.with_name("stdiod")
        runs = "import sys\nfrom supervisor.cli.main import main\nsys.exit(main())\n"
        script.write_text(f"#!{self._python}\n{runs}")
        script.chmod(0o755)

    @contextlib.contextmanager
    def changed(self, file: str, text: bytes) -> Iterator[None]:
        before = (self.tree / file).read_bytes()
        self._write(file, text)
        try:
            yield
        finally:
            self._write(file, before)

    def _write(self, file: str, text: bytes) -> None:
        # What was compiled is taken for current if size and second are the same.
        (self.tree / file).write_bytes(text)
        self._stamp += 1
        os.utime(self.tree / file, (self._stamp, self._stamp))

    async def run(self, bound_s: float, *words: str, **variables: str) -> Ended:
        """Run pytest in the copy, in namespaces of its own."""
        began = time.monotonic()
        status, text = None, ""

        async def kill(process: trio.Process) -> None:
            process.kill()

        with trio.move_on_after(bound_s):
            done = await trio.run_process(
                [*SANDBOX, str(self._python), *PYTEST, *words],
                cwd=self.tree,
                env={**os.environ, **OWN_ENVIRONMENT, **variables},
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
                deliver_cancel=kill,
            )
            status, text = done.returncode, done.stdout.decode(errors="replace")
        if status == NO_SANDBOX or "unshare failed" in text:
            raise SystemExit(
                f"No namespaces for processes and mounts, without which a mutant "
                f"might kill the processes of others: {text.strip()}"
            )
        return Ended(status, text, time.monotonic() - began)

    async def check(self) -> None:
        """Be sure that daemons run what is in the copy: with a broken one, a test of them fails."""
        whole = await self.run(CHECKED_S, "-x", NOTICED_BY)
        assert whole.status in PASSED, f"{NOTICED_BY} fails in a copy:\n{whole.output}"
        with self.changed(BROKEN, BREAKS):
            ended = await self.run(CHECKED_S, "-x", NOTICED_BY)
        assert ended.status == 1, f"{NOTICED_BY} passes with a broken {BROKEN}:\n{ended.output}"


async def with_each(copies: Sequence[Copy], work: Callable[[Copy], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        for copy in copies:
            nursery.start_soon(work, copy)


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


def digest_of(test: str) -> str:
    """Return what changes with the content of a file."""
    return hashlib.sha256((ROOT / test).read_bytes()).hexdigest()[:16]


async def measure(copy: Copy, test: str) -> Reached:
    """Run one test file with coverage; what fails then is asked again without."""
    folder = copy.folder / "lines"
    folder.mkdir()
    (folder / "rc").write_text(COVERAGE)
    variables = {"COVERAGE_PROCESS_START": str(folder / "rc"), "MUTANTS_DATA": str(folder / "data")}
    ended = await copy.run(MEASURED_S, test, **variables)
    lines = covered(folder, copy.tree)
    shutil.rmtree(folder)
    if ended.status not in PASSED:
        ended = await copy.run(MEASURED_S, test)
    return Reached(digest_of(test), round(ended.seconds, 2), ended.failed, lines)


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


class Map:
    """Which test file reaches which line, as far as it is known."""

    def __init__(self, path: Path, product: Mapping[str, bytes]) -> None:
        self.tests: dict[str, Reached] = {}
        self._path = path
        self._product = {file: text.decode() for file, text in product.items()}
        with contextlib.suppress(FileNotFoundError):
            kept = json.loads(path.read_text())
            self.tests = {test: Reached(**known) for test, known in kept["tests"].items()}
            for file, was in kept["product"].items():
                if was != (now := self._product.get(file, "")):
                    self._move(file, was.splitlines(), now.splitlines())

    def _move(self, file: str, was: list[str], now: list[str]) -> None:
        """Move what reaches lines of a file to where those are now, and to what replaced them."""
        blocks = SequenceMatcher(None, was, now, autojunk=False).get_opcodes()
        for known in self.tests.values():
            before, after = set(known.lines.pop(file, ())), set[int]()
            for kind, begin, end, now_begin, now_end in blocks:
                if kind == "equal":
                    moved = before.intersection(range(begin + 1, end + 1))
                    after |= {line + now_begin - begin for line in moved}
                elif not before.isdisjoint(range(begin + 1, end + 1) or (begin, begin + 1)):
                    after |= {*range(now_begin + 1, now_end + 1)}
            if after:
                known.lines[file] = sorted(after)

    def keep(self) -> None:
        tests = {test: asdict(known) for test, known in self.tests.items()}
        self._path.write_text(json.dumps({"product": self._product, "tests": tests}))

    async def measure(self, tests: Sequence[str], copies: Sequence[Copy]) -> None:
        """Measure what is not known yet, and keep it."""
        self.tests = {
            test: known
            for test, known in self.tests.items()
            if test in tests and known.digest == digest_of(test)
        }
        missing = [test for test in tests if test not in self.tests]
        left = enumerate(missing, 1)

        async def measure_with(copy: Copy) -> None:
            for number, test in left:
                known = self.tests[test] = await measure(copy, test)
                fails = f"; fails: {', '.join(known.failed)}" if known.failed else ""
                say(f"{number}/{len(missing)} {test} {known.seconds:.1f} s{fails}")
                if number % 10 == 0:
                    self.keep()

        await with_each(copies, measure_with)
        self.keep()

    def reaching(self, mutant: Mutant) -> list[str]:
        """Return the test files that reach a line; those that see much of its file, soonest."""

        def order(test: str) -> tuple[float, str]:
            known = self.tests[test]
            seen = len(known.lines.get(mutant.file, ()))
            return (known.seconds + 0.5) / math.sqrt(1 + seen), test

        lines = uses_of(mutant) or {mutant.file: {mutant.line, *mutant.lines}}
        reaching = self._reaching(lines)
        if not reaching and mutant.file.startswith(BARE):
            before = (ROOT / GUARDIAN).read_bytes().partition(STARTS_BARE)[0]
            reaching = self._reaching({GUARDIAN: {before.count(b"\n") + 1}})
        return sorted(reaching, key=order)

    def _reaching(self, lines: dict[str, set[int]]) -> set[str]:
        return {
            test
            for test, known in self.tests.items()
            if any(not some.isdisjoint(known.lines.get(file, ())) for file, some in lines.items())
        }

    def deselected(self, tests: Sequence[str]) -> list[str]:
        """Return the options that leave out what fails in an unchanged tree."""
        failed = (one for test in tests for one in self.tests[test].failed)
        return [word for one in failed for word in ("--deselect", one)]

    def batches(self, reaching: Iterable[str]) -> Iterator[list[str]]:
        """Yield the tests of one run after the other, as long as there is time for them."""
        total_s, run, batch = 0.0, 0, list[str]()
        for test in reaching:
            seconds = self.tests[test].seconds
            if batch and total_s + seconds > RUNS_S[run]:
                yield batch
                batch, run = [], run + 1
            if run == len(RUNS_S) or total_s > RUNS_S[-1]:
                return
            batch.append(test)
            total_s += seconds
        if batch:
            yield batch


CONSTANT = re.compile(rb"_?[A-Z][A-Z0-9_]+(?=(: [^=]+)? = )")
AROUND = 3
"""Coverage counts a statement of several lines at some of them."""


def uses_of(mutant: Mutant) -> dict[str, set[int]]:
    """Return the lines that name the constant whose value a mutant changes, by file, if it does.

    Whoever imports its file reaches the constant itself, and few of them what it is for.
    """
    if mutant.function:
        return {}
    rows = (ROOT / mutant.file).read_bytes().splitlines()
    found = CONSTANT.match(rows[mutant.lines.start - 1])
    if found is None:
        return {}
    home = Path(mutant.file).stem.encode()
    named = re.compile(rb"(?:(?<![\w.])|\b%b\.)%b\b" % (home, found[0]))
    uses: dict[str, set[int]] = {}
    for path in product_files():
        text = path.read_bytes()
        if path != ROOT / mutant.file and not re.search(rb"\b%b\b" % home, text):
            continue  # a constant of the same name
        for number, row in enumerate(text.splitlines(), 1):
            if named.search(row) and row[:1] == b" " and not row.rstrip().endswith(b","):
                lines = uses.setdefault(str(path.relative_to(ROOT)), set())
                lines |= {*range(number - AROUND, number + AROUND + 1)}
    return uses


@functools.cache
def product_files() -> list[Path]:
    """Return the files that mutants are made of."""
    return sorted(path for folder in MUTATED for path in (ROOT / folder).glob("**/*.py"))


# What becomes of a mutant.


async def judge(mutant: Mutant, source: bytes, reached: Map, copy: Copy) -> tuple[bool, str]:
    """Run the tests that reach a mutant, until one of them notices it.

    Returns whether one does, and what became of the mutant; of a survivor the change.
    """
    where = f"{mutant.file}:{mutant.line} {mutant.function} [{mutant.kind}]"
    reaching = reached.reaching(mutant)
    tried = 0
    began = time.monotonic()
    with copy.changed(mutant.file, mutant.apply(source)):
        for tests in reached.batches(reaching):
            tried += len(tests)
            if noticed_by := await _notice(tests, reached, copy):
                took_s = time.monotonic() - began
                return True, f"noticed {took_s:.0f} s {where}: {noticed_by}"
    was, now = mutant.diff(source)
    tested = f"{tried} of {len(reaching)} test files" if reaching else "not reached"
    return False, f"SURVIVES {where}: {tested}\n      - {was}\n      + {now}"


async def _notice(tests: list[str], reached: Map, copy: Copy) -> str:
    """Return the test that notices what is in the copy, or the bound that a run passed."""
    bound_s = START_S + SLOWER * sum(reached.tests[test].seconds for test in tests)
    passed_over = reached.deselected(tests)
    while True:
        ended = await copy.run(bound_s, "-x", *tests, *passed_over, TEST_BOUND_S=str(TEST_S))
        if ended.status is None:
            return f"passed its bound of {bound_s:.0f} s: {tests[0]}, ..."
        if ended.status in PASSED:
            return ""
        if not ended.failed:
            return f"pytest ended with {ended.status}: {' '.join(ended.output.split())[-300:]}"
        failed = ended.failed[0]
        again = await copy.run(bound_s + 2 * TEST_S, "-x", failed, TEST_BOUND_S=str(2 * TEST_S))
        if again.status not in PASSED:
            return failed
        say(f"{failed} failed once, and passed when it was asked again")
        passed_over += ["--deselect", failed]


def equivalents(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Return why some mutants change nothing, by file, function and line before and after."""
    with path.open("rb") as file:
        rows = tomllib.load(file).get("mutant", [])
    return {(row["file"], row["function"], row["was"], row["now"]): row["why"] for row in rows}


def at(place: str, sources: dict[str, bytes]) -> list[Mutant]:
    """Return all mutants of `FILE:LINE`."""
    file, _, line = place.rpartition(":")
    found = [mutant for mutant in places(file, sources[file]) if str(mutant.line) == line]
    return [mutant for mutant in found if mutant.compiles(sources[file])]


@contextlib.asynccontextmanager
async def copied() -> AsyncIterator[list[Copy]]:
    """Make the copies, have them checked, and remove them after the block."""
    slots = [KEPT / str(slot) for slot in range(SLOTS)]
    try:
        copies = [Copy(slot) for slot in slots]
        await with_each(copies, Copy.check)
        yield copies
    finally:
        for slot in slots:
            shutil.rmtree(slot, ignore_errors=True)


async def run(options: argparse.Namespace) -> None:
    KEPT.mkdir(exist_ok=True)
    sources = {str(path.relative_to(ROOT)): path.read_bytes() for path in product_files()}
    inside = {file: text for file, text in sources.items() if file.startswith(options.within)}
    drawn = draw(inside, options.seed)
    if options.at:
        mutants = at(options.at, sources)
        drawn, options.number = iter(mutants), len(mutants)
    tests, total = seam_tests(ROOT)
    say(f"{len(tests)} of {total} test files are seam tests")
    reached = Map(KEPT / "reached.json", sources)
    same, same_drawn = equivalents(EQUIVALENT), 0
    judged: list[tuple[bool, str]] = []

    def changing() -> Iterator[Mutant]:
        nonlocal same_drawn
        for mutant in drawn:
            if (mutant.file, mutant.function, *mutant.diff(sources[mutant.file])) in same:
                same_drawn += 1
            else:
                yield mutant

    left = itertools.islice(changing(), options.number)

    async def judge_with(copy: Copy) -> None:
        for mutant in left:
            judged.append(await judge(mutant, sources[mutant.file], reached, copy))
            say(f"{len(judged)}/{options.number} {judged[-1][1]}")

    async with copied() as copies:
        await reached.measure(tests, copies)
        try:
            await with_each(copies, judge_with)
        except* KeyboardInterrupt:
            say("interrupted: this is what there is so far")
    survivors = [words for is_noticed, words in judged if not is_noticed]
    for survivor in survivors:
        print(survivor)
    number, noticed = len(judged), len(judged) - len(survivors)
    share = f"{100 * noticed / number:.1f} %" if number else "none"
    print(f"seed {options.seed}: {noticed} of {number} noticed, {share};", end=" ")
    print(f"{same_drawn} more change nothing")


def main() -> None:
    parser = argparse.ArgumentParser(prog="mutants", description=f"{__doc__}".splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--number", type=int, default=60, help="how many mutants")
    parser.add_argument("--at", metavar="FILE:LINE", help="all mutants of a line instead")
    parser.add_argument("--within", default="", help="draw in files whose path begins with this")
    trio.run(run, parser.parse_args())


if __name__ == "__main__":
    main()
