"""docs/benchmarks.md is what the benchmark writes of its data, and no figure of it was typed."""

from __future__ import annotations

from scripts.bench.page import DATA, DOCS, files, from_json, page, results
from scripts.bench.table import OURS, SCENES


def test_the_page_and_its_data_are_what_is_written_of_the_data() -> None:
    findings = from_json((DOCS / DATA).read_text(encoding="utf-8"))
    written = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("benchmarks*")}
    assert written == files(findings)


def test_every_row_was_measured_with_us_or_is_named_as_left_out() -> None:
    findings = from_json((DOCS / DATA).read_text(encoding="utf-8"))
    found = results(findings.rounds)
    left_out = next(
        (one for one in page(findings).splitlines() if one.startswith("Not measured in this run")),
        "",
    )
    titles = [row.title for scene in SCENES for row in scene.rows]
    assert all(title in found or title in left_out for title in titles)
    assert all(any(who.startswith(OURS) for who in result) for result in found.values())
    assert not findings.quick
