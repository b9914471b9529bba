"""docs/benchmarks.md is what the benchmark writes of its data, and no figure of it was typed."""

from __future__ import annotations

from scripts.bench.findings import from_json, results
from scripts.bench.page import DATA, DOCS, files, page
from scripts.bench.rows import OURS, ROWS


def test_the_page_its_data_and_its_plot_are_what_is_written_of_the_data() -> None:
    findings = from_json((DOCS / DATA).read_text(encoding="utf-8"))
    written = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("benchmarks*")}
    assert written == files(findings)


def test_every_row_was_measured_with_us_or_is_named_as_left_out() -> None:
    findings = from_json((DOCS / DATA).read_text(encoding="utf-8"))
    found = {result.row: result for result in results(findings.rounds)}
    left_out = next(
        (one for one in page(findings).splitlines() if one.startswith("Not measured in this run")),
        "",
    )
    assert all(row in found or row.title in left_out for row in ROWS)
    assert all(OURS in {*one.figures, *one.failures} for one in found.values())
    assert not findings.quick
