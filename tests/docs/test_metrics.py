"""The tables of docs/metrics.md say what is written for a scrape, both ways."""

from __future__ import annotations

import re

from supervisor.kernel.metrics import EDGES_US, OF_DAEMON, OF_MODULE
from supervisor.policy.lifecycle import State
from supervisor.policy.tally import OUTCOMES, SERIES
from tests.docs.markdown import blocks, prose

DOCUMENT = "docs/metrics.md"


def test_alerts_and_queries_are_about_metrics_that_there_are() -> None:
    known = {one.name for one in (*OF_DAEMON, *OF_MODULE)}
    named = {
        name.removesuffix("_bucket")
        for block in blocks(DOCUMENT)
        if block.language != "console"
        for name in re.findall(r"\bstdiod_\w+", block.text)
    }
    assert named
    assert named <= known


def test_a_module_has_no_more_series_than_the_page_says() -> None:
    said = re.search(r"that makes (\d+) series at the most", " ".join(prose(DOCUMENT).split()))
    assert said is not None
    causes = 40
    most = SERIES + len(OUTCOMES) + len(EDGES_US) + 3 + len(State) + causes + len(OF_MODULE) - 4
    assert 0 <= int(said[1]) - most < 10
