"""The page as the documents show it, and with fleets of all sizes.

`python -m scripts.pictures page` runs these tests to have the pictures: they are written to
$STDIOD_PICTURES, each with the text that can be seen.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.pictures import FOLDER_VARIABLE, PICTURES
from tests.page.descriptors import actor, broken, still
from tests.page.probes import LONGEST_TREND, OVERFLOW
from tests.page.site import Site
from tests.page.visit import Visit

NEEDED = ("node", "perl", "gcc")

CALLS: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("dice", "roll", {"dice": "3d6"}, 12),
    ("primes", "factor", {"n": 600851475143}, 20),
    ("textstats", "stats", {"text": "the quick brown fox"}, 8),
    ("notes", "list", {"last": 1}, 4),
    ("crowd", "complete", {"prompt": "a word", "delay_ms": 2, "max_words": 6}, 5),
    ("oracle", "complete", {"messages": [{"role": "user", "content": "why?"}]}, 3),
    ("moon", "phase", {"date": "2026-11-22"}, 2),
    ("chart", "draw", {"title": "Rain", "values": {"May": 61, "June": 48, "July": 12}}, 1),
    ("torch", "light", {"room": "hall"}, 1),
)
"""What is called, and how often in a round at the most."""

HEADINGS = {
    "page-modules": "Modules",
    "page-module": "dice",
    "page-session": "tour|a walk through the house",
}
"""Of the views of PICTURES, as patterns."""

Picture = Callable[[str], None]


@pytest.fixture
def picture(visit: Visit, tmp_path: Path) -> Picture:
    """Keep what is shown under a name."""
    folder = Path(os.environ.get(FOLDER_VARIABLE, tmp_path))

    def keep(name: str) -> None:
        visit.browser.js("document.activeElement.blur()")
        assert visit.browser.js(OVERFLOW) <= 0, f"{name} is wider than the window"
        (folder / f"{name}.png").write_bytes(visit.browser.screenshot())
        (folder / f"{name}.txt").write_text(visit.browser.text(), encoding="utf-8")

    return keep


@pytest.mark.bound(300)
@pytest.mark.skipif(
    any(shutil.which(name) is None for name in NEEDED), reason=f"samples need {', '.join(NEEDED)}"
)
def test_the_samples_are_shown_as_in_the_documents(
    visit: Visit, site: Site, picture: Picture
) -> None:
    site.serve_samples(broken("weather"))
    points = 24 if FOLDER_VARIABLE in os.environ else 2
    visit.go("modules", "Modules")
    for number in range(400):
        call_samples(site, number)
        if visit.browser.js(LONGEST_TREND) >= points:
            break
    for name, view in PICTURES.items():
        visit.browser.prefer(color_scheme=view.scheme)
        visit.browser.resize(1280, view.height)
        visit.go(view.place, HEADINGS[name])
        visit.sees(view.words)
        picture(name)
    visit.browser.prefer()
    visit.browser.resize(1280, 800)


def call_samples(site: Site, number: int) -> None:
    """Call each so often that there is a trend to see."""
    client = site.daemon.client
    if number == 0:
        site.daemon.op("session.new", session_id="tour", title="a walk through the house")
    sent = [
        client.send(module, "invoke", {"op": op, "args": args, "session_id": "tour"})
        for place, (module, op, args, most) in enumerate(CALLS)
        for _ in range(max(1, most * ((number * (place + 3)) % 8 + 1) // 8))
    ]
    if number % 8 == 0:
        sent.append(client.send("flaky", "invoke", {"op": "exit", "args": {"code": 3}}))
    for request_id in sent:
        client.answer(request_id)


FLEETS = {
    "none": (),
    "one": (actor("only"),),
    "fourteen": (
        *(actor(f"actor-{n}") for n in range(4)),
        *(still(f"still-{n}") for n in range(10)),
    ),
    "failing": tuple(broken(f"broken-{n}") for n in range(14)),
    "many": (
        *(still(f"still-{n:03}") for n in range(297)),
        *(broken(f"broken-{n}") for n in range(3)),
    ),
}


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet_of_any_size_is_shown_whole(
    visit: Visit, site: Site, picture: Picture, name: str
) -> None:
    fleet = FLEETS[name]
    site.serve(*fleet)
    visit.go("modules", "Modules")
    rows = "return document.querySelectorAll('main tbody tr').length === arguments[0]"
    visit.browser.until(rows, f"{len(fleet)} modules", len(fleet))
    for width in (1280, 400):
        visit.browser.resize(width, 800)
        picture(f"fleet-{name}-{width}")
    visit.browser.resize(1280, 800)
