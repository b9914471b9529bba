"""Which tests know the product from outside only, and so stay when what is inside is rebuilt.

A seam test is a test file that, with the helpers that it uses, imports no more of the product than
`SEAMS`, but for a figure (`BURST_BYTES`), to know how much to ask for; it reaches for no private
name of others and patches nothing of the product.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

PRODUCT = {"protocol", "schemas", "supervisor"}
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


def look(text: str) -> Look:
    names: dict[str, str] = {}
    """Dotted names that the file imports, and what it calls them."""
    own: set[str] = set()
    private: list[tuple[str, str]] = []
    patches: list[str] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=found):
                names |= {one.name: one.asname or one.name.split(".")[0] for one in found}
            case ast.ImportFrom(module=str(module), names=found):
                names |= {f"{module}.{one.name}": one.asname or one.name for one in found}
            case (
                ast.FunctionDef(name=name)
                | ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name)
            ):
                own.add(name)
            case ast.Attribute(attr=name) if name.startswith("_") and not name.startswith("__"):
                private.append((name, first_name(node)))
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[target, *_]):
                patches.append(first_name(target))
    product = {name for name in names if name.split(".")[0] in PRODUCT}
    tests = {name for name in names if name.startswith("tests.")}
    foreign = {names[name] for name in names.keys() - product - tests}
    inner = (name for name in product if not name.rpartition(".")[2].isupper())
    return Look(
        inner=any(not f"{name}.".startswith(tuple(f"{seam}." for seam in SEAMS)) for name in inner),
        reaches=not PRODUCT.union(names[name] for name in product).isdisjoint(patches)
        or any(name not in own and root not in foreign for name, root in private),
        tests=tests,
    )


def first_name(node: ast.expr) -> str:
    return ast.unparse(node).strip("'\"").split(".")[0]


def seam_tests(checkout: Path) -> tuple[list[str], int]:
    """Return the test files that know the product from outside only, and how many there are."""
    looks: dict[str, Look] = {}
    for path in sorted(checkout.glob("tests/**/*.py")):
        module = ".".join(path.relative_to(checkout).with_suffix("").parts)
        looks[module.removesuffix(".__init__")] = look(path.read_text())

    def wires(module: str) -> bool:
        """Tell whether a test, or a helper that it uses, knows more than the seams."""
        folders = module.split(".")[:-1]
        fixtures = {".".join([*folders[:n], "conftest"]) for n in range(1, len(folders) + 1)}
        known: set[str] = set()
        left = {module} | (fixtures & looks.keys())
        while left:
            known |= left
            seen = [looks[one] for one in left if one not in FROM_OUTSIDE]
            if any(one.inner for one in seen):
                return True
            used = {name for one in seen for name in one.tests}
            helpers = {name if name in looks else name.rpartition(".")[0] for name in used}
            left = (helpers & looks.keys()) - known
        return False

    tests = [module for module in looks if module.rpartition(".")[2].startswith("test_")]
    outside = [
        f"{module.replace('.', '/')}.py"
        for module in tests
        if not (module.startswith(ELSEWHERE) or looks[module].reaches or wires(module))
    ]
    return outside, len(tests)
