from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from scripts import mutants
from scripts.mutant_places import Mutant, draw, places
from scripts.mutants import EQUIVALENT, Map, Reached, equivalents, failed_tests
from scripts.seam_tests import look, seam_tests
from tests.scripts.checkout import CHECKOUT

SOURCE = b'''\
"""A docstring with 3 numbers."""

LIMIT: int = 64


async def read(stream, some, *, most=2):
    """A docstring of its own."""
    if some is not None and 0 < len(some) <= most:
        await stream.wait()
        stream.tell("x")
    elif "a" not in some:  # <
        stream.close()
    try:
        return [one == 7 for one in some]
    finally:
        stream.end()


def count(lines):
    lines.size = 0
    lines.seen: set[int] = set()
    lines.size = 0
    lines.most = lines.size + 1
    number = len(lines)
    lines.append(number)
    if number > 9:
        return ""
    if number > 8:
        return "8"
    most = lines.most
    if most > 7:
        return "7"
    return f"{number:3} < 4"
'''


def changes() -> set[tuple[str, str, str]]:
    return {(mutant.kind, *mutant.diff(SOURCE)) for mutant in places("a.py", SOURCE)}


@pytest.mark.parametrize(
    ("kind", "was", "now"),
    [
        ("comparison", "if some is not None and 0 < len(some) <= most:", "some is None"),
        ("comparison", "if some is not None and 0 < len(some) <= most:", "0 <= len(some) <= most"),
        ("comparison", "if some is not None and 0 < len(some) <= most:", "0 < len(some) < most"),
        ("comparison", 'elif "a" not in some:  # <', '"a" in some'),
        ("comparison", "return [one == 7 for one in some]", "one != 7"),
        ("bound", "LIMIT: int = 64", "= 65"),
        ("bound", "async def read(stream, some, *, most=2):", "most=1"),
        ("if", "if some is not None and 0 < len(some) <= most:", "if True:"),
        ("if", 'elif "a" not in some:  # <', "elif False:  # <"),
        ("await", "await stream.wait()", "stream.wait()"),
        ("cleanup", "stream.close()", "pass"),
        ("cleanup", "stream.end()", "pass"),
        (
            "order",
            "lines.size = 0 ; lines.most = lines.size + 1",
            "lines.size + 1 ; lines.size = 0",
        ),
        ("order", 'await stream.wait() ; stream.tell("x")', 'stream.tell("x") ; await'),
    ],
)
def test_one_place_of_each_kind_is_changed(kind: str, was: str, now: str) -> None:
    assert any(found[:2] == (kind, was) and now in found[2] for found in changes())


def test_neither_documents_nor_texts_nor_impossible_orders_are_changed() -> None:
    found = changes()
    assert not [one for one in found if "docstring" in one[1]]
    assert not [one for one in found if one[0] == "bound" and 'f"' in one[1]]
    assert not [one for one in found if one[1].startswith("number =")]
    orders = [one[1] for one in found if one[0] == "order"]
    assert "lines.size = 0 ; lines.seen: set[int] = set()" not in orders
    assert "lines.most = lines.size + 1 ; number = len(lines)" not in orders


def test_an_order_is_changed_only_where_somebody_acts() -> None:
    orders = [one[1] for one in changes() if one[0] == "order"]
    assert 'lines.append(number) ; if number > 9: ; return ""' in orders
    assert not [one for one in orders if one.startswith(("if number", "most"))]


def test_a_seed_draws_the_same_mutants_again_and_none_twice() -> None:
    sources = {"a.py": SOURCE, "b.py": SOURCE * 2}
    first = list(itertools.islice(draw(sources, 5), 20))
    assert first == list(itertools.islice(draw(sources, 5), 20))
    assert first != list(itertools.islice(draw(sources, 6), 20))
    assert len(set(draw({"a.py": SOURCE}, 5))) == len(places("a.py", SOURCE))


@pytest.mark.parametrize(
    ("text", "inner", "reaches"),
    [
        ("from protocol.errors import Failure\nimport os\nos._exit(0)", False, False),
        ("from supervisor.policy import restart", False, False),
        ("class A:\n    def f(self, other):\n        return self._x + other._x", False, False),
        ("from supervisor.runtime.call import OVERRUN_BYTES", False, False),
        ("from supervisor.policies import restart", True, False),
        ("import supervisor.runtime.turns", True, False),
        ("def f(module):\n    return module._state", False, True),
        ("from protocol import framing\nmonkeypatch.setattr(framing, 'LIMIT', 3)", False, True),
        ("monkeypatch.setattr(os, 'name', 3)", False, False),
    ],
)
def test_a_seam_test_knows_nothing_of_the_inside(text: str, inner: bool, reaches: bool) -> None:
    found = look(text)
    assert (found.inner, found.reaches) == (inner, reaches)


def test_seam_tests_are_those_that_wire_nothing_through_their_helpers_either() -> None:
    tests, total = seam_tests(CHECKOUT)
    assert 0 < len(tests) < total
    assert "tests/system/test_stopping.py" in tests
    assert "tests/protocol/test_framing.py" in tests
    assert "tests/runtime/supervision/test_persistent.py" not in tests


def test_what_reaches_a_line_is_asked_soonest_first_and_within_bounds(tmp_path: Path) -> None:
    product = {"a.py": SOURCE}
    reached = Map(tmp_path / "reached.json", product)
    many, few = list(range(50)), [3]
    reached.tests = {
        "slow": Reached("", 200.0, [], {"a.py": many}),
        "broad": Reached("", 10.0, [], {"a.py": many}),
        "quick": Reached("", 1.0, ["quick::fails"], {"a.py": few}),
        "elsewhere": Reached("", 0.1, [], {"a.py": [4], "b.py": many}),
    }
    reached.keep()
    again = Map(tmp_path / "reached.json", product)
    assert again.tests == reached.tests
    mutant = Mutant("a.py", "f", 3, "if", 0, 1, b"True", range(3, 4))
    tests = again.reaching(mutant)
    assert tests == ["quick", "broad", "slow"]
    assert list(again.batches(tests)) == [["quick", "broad"], ["slow"]]
    assert again.deselected(tests) == ["--deselect", "quick::fails"]


def test_what_reaches_a_line_is_known_of_it_after_others_have_changed(tmp_path: Path) -> None:
    path = tmp_path / "reached.json"
    reached = Map(path, {"a.py": b"a\nb\nc\nd\n", "gone.py": b"a\n"})
    reached.tests = {
        "first": Reached("", 1.0, [], {"a.py": [2, 3], "gone.py": [1]}),
        "last": Reached("", 1.0, [], {"a.py": [4]}),
    }
    reached.keep()
    now = Map(path, {"a.py": b"a\nb\nnew\nd\nmore\n"}).tests
    assert now["first"].lines == {"a.py": [2, 3]}
    assert now["last"].lines == {"a.py": [4, 5]}


@pytest.mark.parametrize(
    ("row", "uses"),
    [
        ("one = BACKOFF", True),
        ("one = restart.BACKOFF[0]", True),
        ("one = State.BACKOFF", False),
        ("one = MOST_BACKOFF", False),
    ],
)
def test_a_constant_is_used_by_its_own_name(
    row: str, uses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"restart.py": "BACKOFF = 3\n", "b.py": f"import restart\ndef f():\n    {row}\n"}
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "product_files", lambda: sorted(tmp_path.glob("*.py")))
    (mutant, *_) = places("restart.py", sources["restart.py"].encode())
    assert ("b.py" in mutants.uses_of(mutant)) == uses


def test_failed_tests_are_told_by_their_whole_names() -> None:
    output = "..F\nFAILED tests/a.py::test_x[1 - 2] - assert 3\nERROR tests/b.py\n1 failed in 3 s"
    assert failed_tests(output) == ["tests/a.py::test_x[1 - 2]", "tests/b.py"]


def test_each_mutant_that_changes_nothing_is_still_one_and_has_a_reason() -> None:
    rows = sorted(equivalents(EQUIVALENT).items())
    for file, of_file in itertools.groupby(rows, lambda row: row[0][0]):
        source = (CHECKOUT / file).read_bytes()
        found = {(mutant.function, *mutant.diff(source)) for mutant in places(file, source)}
        for (_, *mutant), why in of_file:
            assert tuple(mutant) in found, (file, mutant)
            assert len(why) > 20
