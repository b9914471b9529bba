"""Which tests know the product from outside only, and so stay when what is inside is rebuilt.

A seam test is a test file that, with the helpers that it uses, imports no more of the product than
`SEAMS`, but for a figure (`BURST_BYTES`), to know how much to ask for; it reaches for no private
name of others and patches nothing of the product.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

SEAMS = ("protocol", "schemas", "supervisor.policy", "supervisor.kernel.kernel")
"""Of the product, a seam test may import these; else it speaks to a process or a socket."""

ELSEWHERE = ("tests.scripts.", "tests.budget.")
"""Tests of other programs, and of what something costs, say nothing of what it does."""

FROM_OUTSIDE = (
    "tests.conftest",
    "tests.cli.conftest",  # runs the command line in the process of the test
    "tests.docs.sandbox",
    "tests.kernel.hooks.parties",  # of it, others use the descriptors of hooks
    "tests.factories",  # writes descriptors; the calls that it makes are for others
    "tests.runtime.containment.conftest",  # asks what the machine can hold
)
"""Helpers that import more, but do not wire the product for those who use them."""


@dataclass
class Look:
    """What a file of the suite imports and touches."""

    inner: bool
    """It imports more of the product than the seams."""
    reaches: bool
    """It reaches for a private name, or patches the product."""
    tests: set[str]


def _is_figure(name: str) -> bool:
    return name.rpartition(".")[2].isupper()


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def look(text: str) -> Look:
    """Read a file of the suite."""
    inner = reaches = False
    tests: set[str] = set()
    product: set[str] = set()
    others: set[str] = set()
    tree = ast.parse(text)
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"self", "cls"}
    }
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        names: dict[str, str] = {}
        if isinstance(node, ast.Import):
            names = {name.name: name.asname or name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{name.name}": name.asname or name.name for name in node.names}
        for name, bound in names.items():
            top = name.split(".")[0]
            if top in {"protocol", "schemas", "supervisor"}:
                product.add(bound)
                inner |= not _is_figure(name) and not any(
                    f"{name}.".startswith(f"{seam}.") for seam in SEAMS
                )
            elif top == "tests":
                tests.add(name)
            else:
                others.add(bound)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            reaches |= private and node.attr not in own and _root(node) not in others
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".setattr") and node.args:
            patched = ast.unparse(node.args[0]).strip("'\"").split(".")[0]
            reaches |= patched in product | {"protocol", "schemas", "supervisor"}
    return Look(inner, reaches, tests)


def seam_tests(checkout: Path) -> tuple[list[str], int]:
    """Return the test files that know the product from outside only, and how many there are."""
    looks: dict[str, Look] = {}
    for path in sorted(checkout.glob("tests/**/*.py")):
        module = ".".join(path.relative_to(checkout).with_suffix("").parts)
        looks[module.removesuffix(".__init__")] = look(path.read_text())

    def helpers(module: str) -> set[str]:
        names = {name if name in looks else name.rpartition(".")[0] for name in looks[module].tests}
        return {name for name in names if name in looks}

    def wires(module: str) -> bool:
        """Whether a test, or a helper that it uses, knows more of the product than the seams."""
        parts = module.split(".")[:-1]
        folders = {".".join([*parts[:depth], "conftest"]) for depth in range(1, len(parts) + 1)}
        left = [module, *(folders & looks.keys())]
        known = {*left}
        while left:
            other = left.pop()
            if other in FROM_OUTSIDE:
                continue
            if looks[other].inner:
                return True
            further = helpers(other) - known
            known |= further
            left += further
        return False

    tests = [module for module in looks if module.rpartition(".")[2].startswith("test_")]
    outside = [
        f"{module.replace('.', '/')}.py"
        for module in tests
        if not (module.startswith(ELSEWHERE) or looks[module].reaches or wires(module))
    ]
    return outside, len(tests)
