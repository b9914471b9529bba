"""The table of clauses and the markers on the tests, held to each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.events import VERSION
from tests.conformance.clauses import CLAUSES, Binds

TESTS = Path(__file__).parents[1]
IDS = {clause.id for clause in CLAUSES}


def marked() -> Iterator[tuple[str, str]]:
    """Find each `@pytest.mark.clause("...")`: its id, and the test that carries it.

    The sources are read, so that the answer does not depend on which tests were selected.
    """
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.clause" not in source:
            continue
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for decorator in function.decorator_list:
                match decorator:
                    case ast.Call(
                        func=ast.Attribute(attr="clause"), args=[ast.Constant(str(name))]
                    ):
                        yield name, f"{path.relative_to(TESTS)}::{function.name}"


def test_no_clause_stands_in_the_table_twice() -> None:
    assert len(IDS) == len(CLAUSES)


def test_a_clause_has_a_test_or_says_why_it_has_none() -> None:
    held = dict(marked())
    assert {name: test for name, test in held.items() if name not in IDS} == {}
    for clause in CLAUSES:
        if clause.needs_test:
            assert clause.id in held, f"no test holds: {clause.quote}"
        else:
            assert clause.id not in held, f"{held[clause.id]} holds it: drop the reason"


def test_what_binds_the_host_can_be_late_but_not_unchecked() -> None:
    for clause in CLAUSES:
        unchecked = clause.unchecked and (clause.later or clause.binds is Binds.HOST)
        assert not unchecked, clause.id


@pytest.mark.clause("N001-11-a")
def test_the_version_is_the_one_of_spec_001() -> None:
    assert VERSION == "0"
