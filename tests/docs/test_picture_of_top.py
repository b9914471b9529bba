"""docs/top.svg, which the README shows, has the columns and the modules of today."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

from scripts.pictures import TOP, svg
from supervisor.cli.top.view import COLUMNS, TREND
from tests.docs.markdown import ROOT, read

HOW = "run -m scripts.pictures top"


def drawn() -> list[str]:
    texts = ET.parse(TOP).getroot().iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()) for text in texts]


def test_the_picture_has_the_columns_of_today() -> None:
    (titles,) = (line for line in drawn() if line.startswith("  NAME "))
    assert re.split(r"\s{2,}", titles.strip()) == [*COLUMNS, TREND], HOW


def test_the_picture_has_the_sample_modules() -> None:
    names = {
        json.loads(path.read_text(encoding="utf-8"))["name"]
        for path in ROOT.glob("modules/*/module.json")
    }
    assert {line[2:].partition(" ")[0] for line in drawn()} >= names, HOW


def test_the_readme_shows_it() -> None:
    assert f"]({TOP.relative_to(ROOT).as_posix()})" in read("README.md")


def test_colours_become_classes_and_text_is_escaped() -> None:
    made = svg(["\x1b[1m\x1b[31ma<b\x1b[0m c&d"])
    assert '<tspan class="bold red">a&lt;b</tspan> c&amp;d</text>' in made
