"""The suites of the faces ask a daemon through its clients; those that do not yet are listed.

A file has inner access if it imports the product or a helper that runs a daemon within the test's
process. The list `inner_access.txt` may only shrink.
"""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent
SUITES = ("faces/http", "faces/mcp", "page", "amcp", "mcp", "field")
INNER = (
    "supervisor",
    "tests.kernel",
    "tests.faces.in_process",
)


def test_only_listed_files_reach_into_the_daemon_and_each_of_them_does() -> None:
    found = {
        path.relative_to(TESTS).as_posix()
        for suite in SUITES
        for path in (TESTS / suite).rglob("*.py")
        if has_inner_access(path)
    }
    assert sorted(found) == (TESTS / "inner_access.txt").read_text().split()


def has_inner_access(path: Path) -> bool:
    return any(
        name == inner or name.startswith(f"{inner}.")
        for name in imported(ast.parse(path.read_text()))
        for inner in INNER
    )


def imported(tree: ast.Module) -> set[str]:
    """Return the names of the modules that a file imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{one.name}" for one in node.names)
    return found
