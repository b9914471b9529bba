"""300 modules, each of which changes its state ten times a second: the page answers in time, and is
drawn at a calm pace."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from tests.page.chromium import Chromium
from tests.page.churning import MODULES
from tests.page.probes import DRAWN_DESPITE_A_LATE_TIMER, HEADING_AFTER_CLICK, REPAINTS
from tests.page.visit import Visit

FRAMES = 120
"""That are watched: 2 s where nothing is in the way."""

REPAINTED_EVERY_MS = 200
"""A view is drawn no more often, by the clock of the page: the slower the machine, the fewer times.
300 modules change 3,000 times a second."""

LEAST_REPAINTS = 3
"""That are watched, however few frames there are."""

MOST_ELEMENTS = 40 * MODULES
MOST_HEAP_BYTES = 64 * 2**20

MOST_FRAMES = 10
"""From a click to the view that it shows."""


@pytest.fixture
def churning() -> Iterator[dict[str, str]]:
    """A daemon whose modules change all the time: where it is, and a code to log in with."""
    with tempfile.TemporaryDirectory(prefix="stdiod-") as folder:
        words = [sys.executable, "-m", "tests.page.churning", folder]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                yield json.loads(process.stdout.readline())
            finally:
                process.kill()


@pytest.mark.bound(600)
def test_the_page_answers_while_300_modules_change_their_states(
    browser: Chromium, churning: dict[str, str]
) -> None:
    address = churning["address"]
    browser.open(f"{address}/login?code={churning['code']}")
    rows = f"return document.querySelectorAll('main tbody tr').length >= {MODULES}"
    browser.until(rows, "all modules")
    for view, wanted in (("events", "Events"), ("modules", "Modules")):
        # It waits for nothing: not for the daemon, and not for a turn of its own.
        heading, frames = browser.js(HEADING_AFTER_CLICK, f"nav a[href='#/{view}']")
        assert heading == wanted
        assert frames <= MOST_FRAMES, f"{view} is there after {frames} frames"
        if view == "modules":
            browser.until(rows, "all modules again")
        sizes = []
        for _ in range(2):
            drawn, passed_ms, new_rows = browser.js(REPAINTS, FRAMES, LEAST_REPAINTS)
            most = 2 + passed_ms / REPAINTED_EVERY_MS
            assert drawn <= most, f"{view} is drawn {drawn} times in {passed_ms:.0f} ms"
            if view == "modules":
                assert not new_rows, f"{new_rows} rows were made anew"
            browser.cdp("HeapProfiler.collectGarbage")
            sizes.append(browser.cdp("Runtime.getHeapUsage")["usedSize"])
            elements = browser.js("return document.getElementsByTagName('*').length")
            assert elements < MOST_ELEMENTS, f"{view} has {elements} elements"
        assert max(sizes) < MOST_HEAP_BYTES, f"{view} holds {sizes} bytes"
    browser.open("about:blank")
    assert not [line for line in browser.console() if line.startswith("SEVERE")]


def test_a_timer_that_comes_late_has_nothing_drawn_twice(visit: Visit) -> None:
    visit.go("modules", "Modules")
    assert visit.browser.js(DRAWN_DESPITE_A_LATE_TIMER) == [1000, 1260, 1510]
