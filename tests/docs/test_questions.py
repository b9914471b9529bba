"""docs/questions.md asks, and says apart from that where the answers are."""

from __future__ import annotations

import re
import tomllib

from tests.docs.markdown import ROOT, read, rows

DOCUMENT = "docs/questions.md"
QUESTIONS = 24


def parts() -> tuple[str, str]:
    asked, _, answered = read(DOCUMENT).partition("\n## Where the answers are\n")
    return asked, answered


def test_questions_are_numbered_through() -> None:
    numbers = re.findall(r"(?m)^(\d+)\. ", parts()[0])
    assert numbers == [str(number) for number in range(1, QUESTIONS + 1)]


def test_a_question_does_not_say_where_its_answer_is() -> None:
    asked, _ = parts()
    named = {
        path.name for ring in ("protocol", "supervisor") for path in (ROOT / ring).rglob("*.py")
    }
    assert not [name for name in named if name in asked]


def test_each_question_has_files_that_exist() -> None:
    found = {
        int(number): re.findall("`(.+?)`", files) for number, files in rows(DOCUMENT, "Question")
    }
    assert list(found) == list(range(1, QUESTIONS + 1))
    assert all(found.values())
    assert not [name for names in found.values() for name in names if not (ROOT / name).is_file()]


def test_each_ring_is_asked_about() -> None:
    _, answered = parts()
    layers = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]["layers"]
    rings = {layer.replace(".", "/") for layer in layers} - {"schemas"} | {"supervisor/edge"}
    assert rings == set(re.findall(r"`(protocol|supervisor/\w+)/", answered))
