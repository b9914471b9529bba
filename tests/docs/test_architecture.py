"""The architecture pages show today's table and today's rings."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from scripts import lifecycle_diagram
from supervisor.kernel.parties import Client
from supervisor.policy.lifecycle import TABLE
from supervisor.runtime.supervision.call import Listener
from supervisor.runtime.supervision.life import Owner
from supervisor.runtime.supervision.module import Peers
from supervisor.runtime.supervision.worker import Employer
from tests.docs.markdown import ROOT, code, read, rows


def test_the_lifecycle_diagram_is_the_table_of_today() -> None:
    drawn = read("docs/architecture.md")
    assert drawn == lifecycle_diagram.drawn_into(drawn), "run -m scripts.lifecycle_diagram"


def test_the_diagram_has_every_move_that_changes_something() -> None:
    arrows = re.findall(
        r"^    (\w+) --> (\w+): ([\w, ]+?)(?: /.*)?$", lifecycle_diagram.diagram(), re.MULTILINE
    )
    drawn = {
        (state, given, after)
        for state, after, given_all in arrows
        for given in given_all.split(", ")
    }
    assert drawn == {
        (str(state), str(given), str(move.state))
        for state, moves in TABLE.items()
        for given, move in moves.items()
        if move.state is not state or move.actions
    }


def test_the_rings_are_those_of_the_import_contract() -> None:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (
        one["layers"]
        for one in configuration["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers"
    )
    assert [code(row[0]) for row in rows("ARCHITECTURE.md", "Ring")] == layers[::-1]
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        assert f"    {' <- '.join(layers[::-1])}\n" in read(name)


@pytest.mark.parametrize("interface", [Client, Listener, Owner, Employer, Peers])
def test_the_picture_of_the_house_names_what_is_told_upwards(interface: type) -> None:
    label = re.search(rf'"{interface.__name__}: ([\w, ]+)"', read("docs/architecture.md"))
    assert label is not None
    told = {
        name for name, one in vars(interface).items() if not name.startswith("_") and callable(one)
    }
    assert set(label[1].split(", ")) == told


def public_classes(path: Path) -> list[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [
        one.name for one in body if isinstance(one, ast.ClassDef) and not one.name.startswith("_")
    ]


def test_the_words_are_classes_of_today_and_few_enough_to_hold_in_mind() -> None:
    words = rows("ARCHITECTURE.md", "Word")
    assert len(words) <= 40
    for word, _, home in words:
        assert word in public_classes(ROOT / home.strip("`")), f"{home} has no class {word}"


def test_no_public_class_name_stands_twice_in_a_ring() -> None:
    for ring, *_ in rows("ARCHITECTURE.md", "Ring"):
        folder = ROOT / ring.strip("`").replace(".", "/")
        names = Counter(name for path in folder.rglob("*.py") for name in public_classes(path))
        assert [name for name, times in names.items() if times > 1] == []
