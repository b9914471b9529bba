"""Whoever installs stdiod gets what it imports, and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHIPPED = ("supervisor", "protocol", "schemas")
OTHER_NAMES = {"jsonschema_rs": "jsonschema-rs"}
"""Those of distributions that are named otherwise than what is imported."""
OF_EXTRAS = {"opentelemetry": "otel"}
"""Imported where somebody has asked for them."""
BY_OTHERS = {"websockets"}
"""What uvicorn speaks WebSocket with, and does not ask for itself."""
FOR_TYPES = {"_typeshed"}
"""Known to the type checker only."""


def imported() -> Iterator[str]:
    for folder in SHIPPED:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield node.module.partition(".")[0]


def test_the_dependencies_are_what_the_shipped_packages_import() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    foreign = set(imported()) - sys.stdlib_module_names - {*SHIPPED, *FOR_TYPES}
    extra = {name for name in foreign if name in OF_EXTRAS}
    used = {OTHER_NAMES.get(name, name) for name in foreign - extra} | BY_OTHERS
    assert used == named(project["dependencies"])
    for name in extra:
        of_extra = named(project["optional-dependencies"][OF_EXTRAS[name]])
        assert all(one.startswith(name) for one in of_extra)


def named(lines: list[str]) -> set[str]:
    return {re.split(r"[<>=~! ]", line, maxsplit=1)[0] for line in lines}
