"""The pictures of the page show the modules and the columns of today, and are small."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.pictures import DOCS, PICTURES, TEXT
from tests.docs.markdown import ROOT, read

HOW = "run -m scripts.pictures page"
MOST_BYTES = 150_000
LIST = ROOT / "supervisor" / "edge" / "http" / "page" / "views" / "module_row.js"


def chunks(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the parts of a PNG file, each with its type."""
    data = path.read_bytes()
    at = 8
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        yield kind, data[at + 8 : at + 8 + length]
        at += 12 + length


def seen_in(name: str) -> str:
    """Return the text that can be seen in a picture."""
    for kind, data in chunks(DOCS / f"{name}.png"):
        if kind == b"iTXt" and data.startswith(TEXT.encode() + b"\0"):
            # Keyword, whether it is compressed and how, language, keyword in that language, text.
            return zlib.decompress(data[len(TEXT) + 3 :].split(b"\0", 2)[2]).decode()
    raise AssertionError(f"{name}.png has no text: {HOW}")


def test_the_list_has_the_columns_and_the_samples_of_today() -> None:
    source = LIST.read_text(encoding="utf-8")
    (table,) = re.findall(r"COLUMNS = \[(.*?)\];", source, re.DOTALL)
    columns = re.findall(r'\["([^"]+)",', table)
    samples = [
        json.loads(path.read_text(encoding="utf-8"))["name"]
        for path in ROOT.glob("modules/*/module.json")
    ]
    words = set(re.split(r"\s+", seen_in("page-modules")))
    assert columns
    assert words >= {*columns, *samples}, HOW


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small(name: str) -> None:
    assert (DOCS / f"{name}.png").stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("name", PICTURES)
def test_a_document_shows_it_with_words_for_who_does_not_see_it(name: str) -> None:
    shown = [read("README.md"), *(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))]
    pattern = re.compile(rf"!\[[^\]]{{30,}}\]\((docs/)?{name}\.png\)|{name}\.png\"[^>]* alt=\"")
    assert any(pattern.search(text) for text in shown)
