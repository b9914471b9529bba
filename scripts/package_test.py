"""Prove that what we ship works outside of the checkout, and beside PyPI's `supervisor`.

From a clean copy of the files that git knows or would add, build the sdist and the wheel, then see
that

- the sdist builds the very wheel that the checkout builds,
- the installed wheel has its command and its schemas, that each of its modules can be imported with
  nothing but the dependencies it declares, and that a daemon of it lives and ends as it should,
- it and PyPI's `supervisor` both work, whichever was installed first, and that either still works
  when the other has been removed.

Both distributions install `supervisor/__init__.py`. pip lets the later one overwrite it, and
removes it with whichever is removed first. Neither does harm as long as neither file holds code:
theirs is a comment, ours a docstring, and without the file `supervisor` is a namespace package.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from scripts.checkout import copy_known_files

PACKAGES: Final = ("supervisor", "protocol", "schemas")
TESTED: Final = ("tests/schemas", "tests/system/test_daemon_life.py")
"""What of the sdist's tests needs all of the wheel; the rest says nothing about packaging."""
NEEDED_IN_SDIST: Final = ("Makefile", "docs", "modules", "scripts", "tests")
# Pinned, so that their next release cannot turn our build red.
THEIR_VERSION: Final = "4.3.0"
SHARED: Final = "supervisor/__init__.py"
WITHIN_S: Final = 600.0
"""For each command; the longest is an installation from PyPI."""

PROBE_ALL: Final = """
import importlib, pkgutil, protocol, schemas, supervisor, sys
for package in (protocol, schemas, supervisor):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):  # it would run
            importlib.import_module(found.name)
"""
PROBE_OURS: Final = """
import protocol, schemas, supervisor.cli.command_line, sys
for module in (protocol, schemas, supervisor.cli.command_line):
    assert module.__file__.startswith(sys.prefix), f"not the installed one: {module.__file__}"
assert schemas.NAMES, "no schemas"
for name in schemas.NAMES:
    assert isinstance(schemas.load(name), dict), name
assert schemas.typescript(), "no types"
"""
PROBE_THEIRS: Final = "import supervisor.supervisord, supervisor.supervisorctl"
OWNED_FILES: Final = """
import importlib.metadata, sys
for file in importlib.metadata.files(sys.argv[1]):
    if "__pycache__" not in file.parts:
        print(file)
"""

# What a user's shell might set, and what would let the checkout back in.
ENVIRONMENT: Final = {
    name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
} | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return its stdout; when it fails, show all it said and exit."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"{words}\nfailed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def say(what: str) -> None:
    print(f"package test: {what}", flush=True)


# --- Building ----------------------------------------------------------------


def build_and_compare(scratch: Path) -> tuple[Path, Path]:
    """Return the wheel and the unpacked sdist, having checked what is in them."""
    say("building sdist and wheel from a clean copy")
    tree = scratch / "tree"
    copy_known_files(tree)
    wheel = build(tree, "wheel", scratch / "from-tree")
    sdist = build(tree, "sdist", scratch / "from-tree")
    shutil.unpack_archive(sdist, scratch / "unpacked", filter="data")
    (unpacked,) = (scratch / "unpacked").iterdir()

    for needed in NEEDED_IN_SDIST:
        assert (unpacked / needed).exists(), f"the sdist lacks {needed}"
    contents = wheel_contents(wheel)
    for package in PACKAGES:
        for file in (tree / package).rglob("*"):
            path = file.relative_to(tree).as_posix()
            assert file.is_dir() or path in contents, f"the wheel lacks {path}"
    again = wheel_contents(build(unpacked, "wheel", scratch / "from-sdist"))
    differing = sorted(dict(contents.items() ^ again.items()))
    assert not differing, f"the sdist builds another wheel; these differ: {differing}"
    return wheel, unpacked


def build(tree: Path, kind: str, into: Path) -> Path:
    """Build a "wheel" or an "sdist" with the hatchling that is installed here, and return it."""
    options = (f"--{kind}", "--no-isolation", "--outdir", into)
    run(sys.executable, "-m", "build", *options, tree, cwd=tree.parent)
    (built,) = into.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def wheel_contents(wheel: Path) -> dict[str, int]:
    """Return the checksum of each file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


# --- Using -------------------------------------------------------------------


class Venv:
    """A fresh virtual environment, used from a folder in which there is nothing to import."""

    def __init__(self, scratch: Path, version: str) -> None:
        """Take ours to have that version."""
        self._version, self._cwd, self._bin = version, scratch / "elsewhere", scratch / "venv/bin"
        self._cwd.mkdir()
        run(sys.executable, "-m", "venv", self._bin.parent, cwd=self._cwd)

    def run(self, program: str, *arguments: str) -> str:
        return run(self._bin / program, *arguments, cwd=self._cwd)

    def pip(self, *arguments: str) -> None:
        """Run pip, silent unless it fails."""
        self.run("python", "-Im", "pip", *arguments)

    def files_of(self, distribution: str) -> set[str]:
        """Return the paths a distribution's RECORD claims, compiled ones left out."""
        return set(self.run("python", "-Ic", OWNED_FILES, distribution).splitlines())

    def check(self, distribution: str) -> None:
        """Check that one is imported from here, and its command starts; ours has its schemas."""
        ours = distribution == "stdiod"
        self.run("python", "-Ic", PROBE_OURS if ours else PROBE_THEIRS)
        program, version = ("stdiod", self._version) if ours else ("supervisord", THEIR_VERSION)
        printed = self.run(program, "--version")
        assert version in printed.split(), f"{program} --version printed {printed!r}"

    def try_beside_theirs(self, wheel: Path) -> None:
        """Install ours and PyPI's `supervisor` in both orders, then remove each of the two."""
        sources = {"stdiod": str(wheel), "supervisor": f"supervisor=={THEIR_VERSION}"}
        for order, removed in itertools.product(itertools.permutations(sources), sources):
            say(f"{order[0]}, then {order[1]}; then without {removed}")
            for name in order:
                self.pip("install", "--no-deps", sources[name])
            for name in sources:
                self.check(name)
            shared = self.files_of("stdiod") & self.files_of("supervisor")
            assert shared == {SHARED}, f"both distributions own {sorted(shared)}"
            self.pip("uninstall", "--yes", removed)
            (left,) = sources.keys() - {removed}
            self.check(left)
            self.pip("uninstall", "--yes", left)

    def run_tests(self, unpacked: Path) -> None:
        """Run some of the sdist's tests against what is installed."""
        for package in PACKAGES:  # so that there is nothing to import but the wheel
            shutil.rmtree(unpacked / package)
        options = ("--import-mode=importlib", "--quiet", "-p", "no:cacheprovider")
        where = ("-c", unpacked / "pyproject.toml", "--rootdir", unpacked)
        tests = (unpacked / folder for folder in TESTED)
        python: list[str | Path] = [self._bin / "python", "-Im", "pytest"]
        command = [*python, *options, *where, *tests]
        if subprocess.run(command, cwd=self._cwd, env=ENVIRONMENT, check=False).returncode:
            sys.exit("the tests fail against the installed wheel")


def main() -> None:
    """Build, install and try everything in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="stdiod-package-") as name:
        scratch = Path(name).resolve()
        wheel, unpacked = build_and_compare(scratch)
        venv = Venv(scratch, version=wheel.name.split("-")[1])
        say("the wheel by itself")
        venv.pip("install", str(wheel))
        venv.check("stdiod")
        venv.run("python", "-Ic", PROBE_ALL)
        venv.pip("uninstall", "--yes", "stdiod")
        venv.try_beside_theirs(wheel)
        say("the tests against the installed wheel")
        venv.pip("install", f"{wheel}[test]")
        venv.run_tests(unpacked)
    say("the package is sound")


if __name__ == "__main__":
    main()
