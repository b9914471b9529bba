"""The architecture pages show today's table and today's rings."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from scripts import lifecycle_diagram
from supervisor.policy.lifecycle import TABLE
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
    layers = next(
        one["layers"]
        for one in configuration["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers"
    )
    assert [code(row[0]) for row in rows("ARCHITECTURE.md", "Ring")] == layers[::-1]
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        assert f"    {' <- '.join(layers[::-1])}\n" in read(name)


def test_what_is_set_on_a_part_after_it_was_made_stands_on_the_page() -> None:
    """The exceptions to: whatever a part needs, it gets when it is made."""
    paths = ["kernel/kernel.py", "kernel/requests.py"]
    paths += [f"runtime/supervision/{one}.py" for one in ("fleet", "module", "worker", "life")]
    made = (
        function
        for path in paths
        for function in ast.walk(ast.parse(read(f"supervisor/{path}")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and function.name in {"__init__", "_open", "watch"}
    )
    later = {
        ast.unparse(target)
        for function in made
        for one in ast.walk(function)
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"
    }
    sentence = re.search(
        r"One interface is set later, .*? Each", read("docs/architecture.md"), re.DOTALL
    )
    assert sentence is not None
    assert later == set(re.findall(r"`(\w+(?:\.\w+)+)`", sentence[0]))


def public_types(path: Path) -> list[str]:
    """Return the classes and type aliases of a file; a type variable is neither."""
    return [
        name
        for one in ast.parse(path.read_text(encoding="utf-8")).body
        for name in defined(one)
        if not name.startswith("_") and name != name.upper()
    ]


def defined(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name] if name[0].isupper() or name[0] == "_" else []
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name[0].isupper():
            return [] if ast.unparse(value).startswith("TypeVar(") else [name]
    return []


def types_of(*folders: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for folder in folders:
        for path in sorted((ROOT / folder.replace(".", "/")).rglob("*.py")):
            for name in public_types(path):
                found.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    return found


def test_each_word_is_the_name_of_one_type_of_the_whole_house_and_they_are_few() -> None:
    words = rows("ARCHITECTURE.md", "Word")
    assert len(words) <= 40
    house = types_of(
        *{ring.strip("`").partition(".")[0] for ring, *_ in rows("ARCHITECTURE.md", "Ring")}
    )
    assert {word: house.get(word, []) for word, *_ in words} == {
        word: [home.strip("`")] for word, _, home in words
    }


def test_no_name_of_a_public_type_stands_twice_in_a_ring() -> None:
    for ring, *_ in rows("ARCHITECTURE.md", "Ring"):
        found = types_of(ring.strip("`"))
        assert {name: places for name, places in found.items() if len(places) > 1} == {}
