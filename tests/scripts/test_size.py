"""`make size`, on a small made-up tree."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from scripts.size import measure
from tests.scripts.checkout import CHECKOUT, WITHIN_S, run

pytest.importorskip("ruff")
pytestmark = pytest.mark.bound(WITHIN_S)

PLAIN = "X = 1\n"
CEILINGS = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["stdiod"]["size"]


class Checkout:
    """A repository with a size table in which each row may be as large as it likes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ceilings: dict[str, int] = dict.fromkeys(CEILINGS, 1000)
        subprocess.run(["git", "init", "--quiet", str(root)], check=True)
        self.write("protocol/__init__.py", PLAIN)

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def measured(self) -> dict[str, Any]:
        rows = (f"{json.dumps(row)} = [1, {most}]\n" for row, most in self.ceilings.items())
        self.write("pyproject.toml", "[tool.stdiod.size]\n" + "".join(rows))
        subprocess.run(["git", "-C", str(self.root), "add", "--all"], check=True)
        return measure(self.root)

    def figure(self, row: str) -> int:
        return int(self.measured()["rows"][row]["today"])

    def faults(self) -> list[str]:
        return list(self.measured()["faults"])


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_lines_are_counted_by_ring(checkout: Checkout) -> None:
    checkout.write("protocol/a.py", PLAIN * 3)
    checkout.write("supervisor/conformance/a.py", PLAIN)
    checkout.write("supervisor/transcripts/a.py", PLAIN)
    checkout.write("supervisor/cli/a.in", "not Python\n")
    checkout.write("tests/test_a.py", PLAIN * 2)
    checkout.write("scripts/a.py", PLAIN * 5)
    checkout.write("docs/a.md", "x" * 1001)
    rows = {row: found["today"] for row, found in checkout.measured()["rows"].items()}
    assert {row: figure for row, figure in rows.items() if figure} == {
        "protocol": 4,
        "transcripts, conformance": 2,
        "together": 6,
        "not Python": 1,
        "scripts": 5,
        "documents (KB)": 2,
        "files": 4,
        "tests": 2,
    }


def test_a_file_that_is_not_tracked_is_not_counted(checkout: Checkout) -> None:
    checkout.write(".gitignore", "made.py\n")
    checkout.write("protocol/made.py", PLAIN)
    assert checkout.figure("files") == 1


def test_a_figure_above_its_ceiling_is_named(checkout: Checkout) -> None:
    checkout.ceilings["protocol"] = 1
    assert checkout.faults() == []
    checkout.write("protocol/a.py", PLAIN)
    fault = "protocol: 2 is above the ceiling of 1."
    assert checkout.faults() == [fault]
    done = run("size", "--root", str(checkout.root))
    assert (done.returncode, done.stderr) == (1, f"{fault}\n")


def test_a_row_needs_a_ceiling(checkout: Checkout) -> None:
    del checkout.ceilings["tests"]
    checkout.ceilings["poems"] = 1
    assert [fault.partition(":")[0] for fault in checkout.faults()] == ["tests", "poems"]


def test_an_abstract_class_with_one_subclass_counts_as_a_protocol(checkout: Checkout) -> None:
    checkout.write(
        "protocol/a.py",
        "class Real(Protocol[T]): ...\n\n\n"
        "class Abstract:\n    @abstractmethod\n    def act(self): ...\n\n\n"
        "class Raises:\n    def act(self):\n        raise NotImplementedError\n\n\n"
        "class Defaults:\n    def act(self): ...\n\n\n"
        "class One(Abstract, Raises, Defaults): ...\n",
    )
    assert checkout.measured()["Protocols"] == ["Abstract", "Raises", "Real"]
    checkout.write("protocol/b.py", "class Other(Abstract, a.Raises): ...\n")
    assert checkout.measured()["Protocols"] == ["Real"]


def test_a_class_name_in_two_files_is_a_name_twice(checkout: Checkout) -> None:
    checkout.write("protocol/a.py", "class Same: ...\n\n\nclass _Own: ...\n\n\nclass A: ...\n")
    checkout.write("schemas/b.py", "class Same: ...\n\n\nclass _Own: ...\n\n\nclass B: ...\n")
    found = checkout.measured()
    assert found["names twice"] == ["Same", "_Own"]
    assert found["rows"]["classes"]["today"] == 6


def test_an_import_circle_is_found_through_functions(checkout: Checkout) -> None:
    checkout.write("protocol/a.py", "from protocol import b\n")
    checkout.write("protocol/b.py", "def late():\n    from protocol.c import name\n")
    checkout.write("protocol/c.py", "import protocol.a\n")
    checkout.write("protocol/d.py", "import protocol.a\n")
    found = checkout.measured()
    assert found["circles"] == [["protocol/a.py", "protocol/b.py", "protocol/c.py"]]
    assert found["rows"]["files in circles"]["today"] == 3


def test_circles_that_share_a_file_are_one(checkout: Checkout) -> None:
    checkout.write("protocol/a.py", "from .b import x\nfrom .c import y\n")
    checkout.write("protocol/b.py", "from .a import x\n")
    checkout.write("protocol/c.py", "from . import a\n")
    checkout.write("protocol/d.py", "from . import e\n")
    checkout.write("protocol/e.py", "from . import d\n")
    assert [len(circle) for circle in checkout.measured()["circles"]] == [3, 2]


def test_imports_for_types_make_no_circle(checkout: Checkout) -> None:
    checkout.write("protocol/a.py", "import protocol.b\n")
    checkout.write("protocol/b.py", "if TYPE_CHECKING:\n    import protocol.a\n")
    assert checkout.measured()["circles"] == []


def test_callbacks_are_counted_in_kernel_and_faces(checkout: Checkout) -> None:
    for ring in ("kernel", "faces", "runtime"):
        checkout.write(f"supervisor/{ring}/a.py", "x: Callable[[], None]\n")
    assert checkout.figure("Callable[ in kernel, faces") == 2


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("protocol/a.py", "# fmt: off\n", "protocol/a.py:1 says `# fmt: off`"),
        ("protocol/a.py", "x = 1  # noqa: E501\n", "protocol/a.py:1 says `# noqa: E501`"),
        ("protocol/a.py", "x = 1; y = 2\n", "protocol/a.py:1 joins statements"),
        ("protocol/a.py", "x = (1,\n2)\n", "Lines are counted as `ruff format` writes them"),
        ("supervisor/new/a.py", PLAIN, "supervisor/new/a.py is in no ring"),
        ("library/a.py", PLAIN, "library is new Python at the top"),
        ("setup.py", PLAIN, "setup.py is new Python at the top"),
    ],
)
def test_an_evasion_is_named(checkout: Checkout, path: str, text: str, fault: str) -> None:
    checkout.write(path, text)
    assert any(found.startswith(fault) for found in checkout.faults())


def test_scripts_and_tests_may_keep_long_lines(checkout: Checkout) -> None:
    checkout.write("scripts/a.py", "x = 1; y = 2  # noqa: E501\n")
    assert checkout.faults() == []


def test_no_ceiling_is_below_its_target() -> None:
    assert all(target <= ceiling for target, ceiling in CEILINGS.values())
