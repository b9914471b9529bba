"""Take docs/page-*.png: views of the page while the sample modules are called.

    .venv/bin/python -m scripts.pictures_of_page

It runs tests/page/test_pictures.py, has the pictures made small by Pillow, which is installed into
`.pillow`, and writes into each the text that can be seen in it: a test compares that with today's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from scripts.checkout import ROOT
from scripts.foreign import PILLOW

DOCS: Final = ROOT / "docs"
FOLDER_VARIABLE: Final = "STDIOD_PICTURES"


class View(NamedTuple):
    """What a picture shows: a view in its colours, once some words can be seen in it."""

    place: str
    scheme: str
    height: int
    words: str


PICTURES: Final[Mapping[str, View]] = {
    "page-modules": View("modules", "light", 1280, "Counts the words"),
    "page-module": View("modules/dice", "dark", 800, "answered health and describe"),
    "page-session": View("sessions/tour", "light", 640, "primes"),
}
"""Those that the documents show, by the names of their files."""

COLOURS: Final = 256
TEXT: Final = "Description"
"""The keyword of the text in a picture (PNG, 11.3.3.2)."""

SMALLER: Final = f"""
import sys
from PIL import Image, PngImagePlugin
taken, text, made = sys.argv[1:]
said = PngImagePlugin.PngInfo()
said.add_itxt({TEXT!r}, open(text, encoding="utf-8").read(), zip=True)
# What is rare counts as much as what is not: the green of a small dot.
ways = {{"method": Image.Quantize.MAXCOVERAGE, "dither": Image.Dither.NONE}}
small = Image.open(taken).convert("RGB").quantize({COLOURS}, **ways)
small.save(made, optimize=True, pnginfo=said)
"""


def main() -> None:
    """Write the files."""
    why = PILLOW.install()
    if why is not None:
        sys.exit(f"{', '.join(PILLOW.packages)} cannot be installed: {why}")
    with tempfile.TemporaryDirectory(prefix="stdiod-pictures-") as name:
        environment = {**os.environ, "STDIOD_TEST_PAGE": "1", FOLDER_VARIABLE: name}
        tests = ["-n", "0", "-q", "tests/page/test_pictures.py", "-k", "documents"]
        pytest = [sys.executable, "-m", "pytest", *tests]
        subprocess.run(pytest, cwd=ROOT, env=environment, check=True)
        for taken in sorted(Path(name).glob("*.png")):
            made = DOCS / taken.name
            words = [str(taken), str(taken.with_suffix(".txt")), str(made)]
            subprocess.run([str(PILLOW.bin / "python"), "-c", SMALLER, *words], check=True)
            print(f"{made}: {made.stat().st_size} bytes")


if __name__ == "__main__":
    main()
