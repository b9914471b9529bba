"""Make the pictures that documents show, while the sample modules are called.

    .venv/bin/python -m scripts.pictures top    docs/top.svg: the screen of `stdiod top`
    .venv/bin/python -m scripts.pictures page   docs/page-*.png: views of the page

Tests compare with today's what can be read in them: the text of a drawing, and that which a picture
of the page has in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from protocol.client import Answer
from scripts.checkout import ROOT, Stdiod
from scripts.foreign import PILLOW
from supervisor.cli.client import DaemonClient
from supervisor.cli.top.figures import ARGS, Figures, Order, Trends, figures
from supervisor.cli.top.view import Look, view

DOCS: Final = ROOT / "docs"

# --- `stdiod top` --------------------------------------------------------------

TOP: Final = DOCS / "top.svg"
WIDTH, HEIGHT = 124, 23
"""Cells of the terminal."""
ROUNDS: Final = 24
INTERVAL_S: Final = 0.5
WITHIN_S: Final = 60.0

CALLS: Final[Sequence[tuple[str, str, dict[str, Any], int]]] = (
    # What is called, and how often in a round at the most.
    ("dice", "roll", {"dice": "3d6"}, 60),
    ("primes", "factor", {"n": 600851475143}, 90),
    ("textstats", "stats", {"text": "the quick brown fox"}, 40),
    ("notes", "list", {"last": 1}, 12),
    ("crowd", "complete", {"prompt": "a word", "delay_ms": 2, "max_words": 6}, 20),
    ("oracle", "complete", {"messages": [{"role": "user", "content": "why?"}]}, 8),
    ("torch", "light", {"room": "hall"}, 2),
    ("wc", "words", {"text": "one two three"}, 3),
    ("flaky", "exit", {"code": 3}, 1),
)

CELL_WIDTH, LINE_HEIGHT, BASELINE, MARGIN = 7.8, 17, 13, 14
COLOURS: Final = {
    "1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan", "90": "grey",
}  # fmt: skip
STYLE: Final = (
    "rect{fill:#16181d}text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "fill:#d8dee9;white-space:pre}.bold{font-weight:bold}.dim,.grey{fill:#7b8494}"
    ".red{fill:#ef6b73}.green{fill:#8fc77c}.yellow{fill:#e5c07b}.cyan{fill:#6cc0cf}"
)
_STYLED = re.compile(r"((?:\x1b\[\d+m)+)(.*?)\x1b\[0m")


def svg(lines: Sequence[str]) -> str:
    """Return the lines of a terminal, with the escapes of `click.style`, as a drawing."""
    width, height = round(WIDTH * CELL_WIDTH) + 2 * MARGIN, len(lines) * LINE_HEIGHT + 2 * MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">\n<style>{STYLE}</style>\n'
        f'<rect width="{width}" height="{height}" rx="8"/>\n'
    )
    texts = (
        f'<text x="{MARGIN}" y="{MARGIN + BASELINE + number * LINE_HEIGHT}">'
        f"{''.join(_spans(line))}</text>\n"
        for number, line in enumerate(lines)
    )
    return f"{head}{''.join(texts)}</svg>\n"


def _spans(line: str) -> Iterator[str]:
    at = 0
    for found in _STYLED.finditer(line):
        yield escape(line[at : found.start()], quote=False)
        classes = " ".join(COLOURS[code] for code in re.findall(r"\d+", found[1]))
        yield f'<tspan class="{classes}">{escape(found[2], quote=False)}</tspan>'
        at = found.end()
    yield escape(line[at:], quote=False)


def screen(socket: Path) -> list[str]:
    """Call the modules for some time; return what a terminal shows at the end."""
    trends = Trends()
    with DaemonClient(socket) as client:
        status: dict[str, Any] = client.known("status", ARGS).result
        now: Figures | None = None
        for number in range(ROUNDS):
            ends_at = time.monotonic() + INTERVAL_S
            _call(client, number)
            time.sleep(max(0.0, ends_at - time.monotonic()))
            before, status = status, client.known("status", ARGS).result
            now = figures(before, status)
            trends.add(now)
    assert now is not None
    return view(now, trends.of, Look(interval_s=1.0, order=Order.RATE), WIDTH, HEIGHT)


def _call(client: DaemonClient, number: int) -> None:
    sent = {
        client.send(module, "invoke", {"op": op, "args": args})
        for place, (module, op, args, most) in enumerate(CALLS)
        # A share that goes up and down, so that there is a trend to see.
        for _ in range(max(1, most * ((number * (place + 3)) % 8 + 1) // 8))
    }
    answers = (event for event in client.events(WITHIN_S) if isinstance(event, Answer))
    while sent:
        sent.discard(next(answers).request_id)


def draw_top() -> None:
    """Write docs/top.svg."""
    with (
        tempfile.TemporaryDirectory(prefix="stdiod-top-") as name,
        Stdiod(Path(name).resolve()) as stdiod,
    ):
        stdiod.run("up", str(shutil.copytree(ROOT / "modules", stdiod.folder / "modules")))
        lines = screen(stdiod.socket)
    TOP.write_text(svg(lines), encoding="utf-8")
    print(f"{TOP} is drawn")


# --- The page ------------------------------------------------------------------

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
small = Image.open(taken).convert("RGB").quantize(256, **ways)
small.save(made, optimize=True, pnginfo=said)
"""


def take_page() -> None:
    """Write docs/page-*.png: what tests/page/test_pictures.py takes, made small by Pillow."""
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
    {"top": draw_top, "page": take_page}[sys.argv[1]]()
