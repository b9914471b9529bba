"""Print how large the code is, beside its targets and ceilings in `pyproject.toml`.

Counted are tracked files, Python as `ruff format` writes it. The status is 1 if a figure is above
its ceiling, or if code is written so that its lines cannot be compared.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LINE_LENGTH = 100
PRODUCT = ("protocol", "schemas", "supervisor")
PYTHON_FOLDERS = {*PRODUCT, "modules", "scripts", "tests"}
RINGS = {
    "protocol": ("protocol",),
    "policy": ("supervisor/policy",),
    "runtime": ("supervisor/runtime",),
    "transcripts, conformance": ("supervisor/transcripts", "supervisor/conformance"),
    "kernel": ("supervisor/kernel",),
    "faces": ("supervisor/faces",),
    "daemon": ("supervisor/daemon",),
    "edge": ("supervisor/edge",),
    "cli": ("supervisor/cli",),
}
KEEPS_ITS_FORM = re.compile(r"# *fmt: *off|# *(ruff: *)?noqa.*\bE501\b", re.IGNORECASE)

Tree = dict[str, ast.Module]
"""Python files, parsed, by path."""


def tracked(root: Path) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return sorted(path for path in listed.stdout.split("\0") if path and (root / path).is_file())


def parsed(root: Path, paths: list[str], *folders: str) -> Tree:
    """Parse the Python files of some folders."""
    python = [path for path in paths if inside(path, folders) and path.endswith(".py")]
    return {path: ast.parse((root / path).read_bytes(), path) for path in python}


def inside(path: str, folders: tuple[str, ...]) -> bool:
    return path.startswith(tuple(f"{folder}/" for folder in folders))


def run_ruff(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run ruff with settings of its own, whatever the checkout says."""
    ruff = [sys.executable, "-m", "ruff", *command, "--isolated", "--target-version", "py311"]
    return subprocess.run(ruff, cwd=root, check=False, capture_output=True, text=True)


# --- Classes and import circles ----------------------------------------------


def name_of(expression: ast.expr) -> str:
    """Return `Life` for `Life`, `worker.Life` and `Life[T]`."""
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value) | ast.Call(func=value):
            return name_of(value)
        case _:
            return ""


def is_unimplemented(method: ast.stmt) -> bool:
    if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    last = method.body[-1]
    raised = last.exc if isinstance(last, ast.Raise) else None
    return "abstractmethod" in map(name_of, method.decorator_list) or (
        raised is not None and name_of(raised) == "NotImplementedError"
    )


def protocols(classes: list[ast.ClassDef]) -> list[str]:
    """Return the Protocols, and the abstract classes that have at most one subclass."""
    bases = Counter(name_of(base) for node in classes for base in node.bases)
    return sorted(
        node.name
        for node in classes
        if "Protocol" in map(name_of, node.bases)
        or (any(map(is_unimplemented, node.body)) and bases[node.name] <= 1)
    )


def names_twice(tree: Tree) -> list[str]:
    found = (node for module in tree.values() for node in module.body)
    names = Counter(node.name for node in found if isinstance(node, ast.ClassDef))
    return sorted(name for name, times in names.items() if times > 1)


def circles(root: Path, tree: Tree) -> list[list[str]]:
    """Return the strongly connected components of more than one file.

    Imports in functions count, those under `TYPE_CHECKING` do not.
    """
    read = run_ruff(root, "analyze", "graph", "--preview", "--no-type-checking-imports", *tree)
    graph: dict[str, list[str]] = json.loads(read.stdout)
    reached: dict[str, set[str]] = {}
    for path in graph:
        below = reached[path] = set()
        waiting = [path]
        while waiting:
            imported = set(graph.get(waiting.pop(), ())) - below
            below |= imported
            waiting += imported
    found = {
        tuple(sorted(other for other in below if path in reached[other]))
        for path, below in reached.items()
    }
    return sorted(list(circle) for circle in found if len(circle) > 1)


# --- The table ---------------------------------------------------------------


def evasions(root: Path, paths: list[str], tree: Tree) -> Iterator[str]:
    """Yield a sentence for each way in which the figures would be smaller than the code is."""
    for path in tree:
        source = (root / path).read_text()
        for number, line in enumerate(source.splitlines(), 1):
            if found := KEEPS_ITS_FORM.search(line):
                yield f"{path}:{number} says `{found.group()}`: the formatter writes product code."
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.OP and token.string == ";":
                where = f"{path}:{token.start[0]}"
                yield f"{where} joins statements with a semicolon: give each its own line."
        if path.count("/") > 1 and not any(inside(path, folders) for folders in RINGS.values()):
            yield f"{path} is in no ring: move it into one."
    top = {path.partition("/")[0] for path in paths if path.endswith(".py")}
    for name in sorted(top - PYTHON_FOLDERS):
        yield f"{name} is new Python at the top: product code belongs to {', '.join(PRODUCT)}."
    if tree:
        settings = ("--check", "--output-format=concise", "--config", f"line-length={LINE_LENGTH}")
        checked = run_ruff(root, "format", *settings, *tree)
        if checked.returncode:
            said = checked.stdout.partition("\n")[0] or checked.stderr.strip()
            yield f"Lines are counted as `ruff format` writes them: {said}. Run `make format`."


def excesses(figures: dict[str, int], bounds: dict[str, list[int]]) -> Iterator[str]:
    for row, figure in figures.items():
        if row not in bounds:
            yield f"{row}: pyproject.toml has no target and ceiling for this row."
        elif figure > bounds[row][1]:
            yield f"{row}: {figure:,} is above the ceiling of {bounds[row][1]:,}."
    for row in bounds.keys() - figures.keys():
        yield f"{row}: pyproject.toml has a ceiling for a row that does not exist."


def measure(root: Path) -> dict[str, Any]:
    """Return rows with figure, target and ceiling, what some of them count, and what is wrong."""
    configuration = tomllib.loads((root / "pyproject.toml").read_text())
    bounds: dict[str, list[int]] = configuration["tool"]["stdiod"]["size"]
    paths = tracked(root)
    python = [path for path in paths if path.endswith(".py")]
    documents = [path for path in paths if re.fullmatch(r"README\.md|docs/.*\.md", path)]
    tree = parsed(root, paths, *PRODUCT)
    nodes = (node for module in tree.values() for node in ast.walk(module))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    lists: dict[str, list[Any]] = {
        "Protocols": protocols(classes),
        "names twice": names_twice(tree),
        "circles": circles(root, tree),
    }

    def lines(paths: list[str], *folders: str) -> int:
        read = ((root / path).read_bytes() for path in paths if inside(path, folders))
        return sum(text.count(b"\n") for text in read)

    def times(text: str, *folders: str) -> int:
        return sum((root / path).read_text().count(text) for path in tree if inside(path, folders))

    figures = {
        **{ring: lines(list(tree), *folders) for ring, folders in RINGS.items()},
        "together": lines(list(tree), *PRODUCT),
        "not Python": lines([path for path in paths if path not in tree], *PRODUCT),
        "scripts": lines(python, "scripts"),
        "documents (KB)": -(-sum((root / path).stat().st_size for path in documents) // 1000),
        "files": len(tree),
        "classes": len(classes),
        **{row: len(found) for row, found in lists.items()},
        "files in circles": sum(map(len, lists["circles"])),
        "Callable[ in kernel, faces": times("Callable[", *RINGS["kernel"], *RINGS["faces"]),
        "fmt: skip": times("# fmt: skip", *PRODUCT),
        "tests": lines(python, "tests"),
    }
    return {
        "rows": {
            row: {"today": figure, "target": target, "ceiling": ceiling}
            for row, figure in figures.items()
            for target, ceiling in [bounds.get(row, [0, 0])]
        },
        **lists,
        "faults": [*excesses(figures, bounds), *evasions(root, paths, tree)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=f"{__doc__}".partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print it, and what it counts, as JSON")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    found = measure(options.root)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{'':28}{'today':>9}{'target':>9}{'ceiling':>9}")
        for row, numbers in found["rows"].items():
            print(f"{row:28}", *(f"{number:>9,}" for number in numbers.values()), sep="")
    for fault in found["faults"]:
        print(fault, file=sys.stderr)
    return bool(found["faults"])


if __name__ == "__main__":
    sys.exit(main())
