"""The text for a scrape: each metric of docs/metrics.md, with the figures of `status`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from supervisor.kernel.kernel import JournalOptions
from tests.bounds import WAIT_S
from tests.factories import actor
from tests.kernel.conftest import GONE, ask, begin, begun, daemon_with, own
from tests.principals import ADA

ROWS = [
    (name, kind, re.findall(r"`(\w+)`", labels), words)
    for name, kind, labels, words in re.findall(
        r"^\| `(stdiod_\w+)` \| (\w+) \| ([^|]*) ?\| (.+) \|$",
        (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(),
        re.MULTILINE,
    )
]
OF_MODULE = next(at for at, row in enumerate(ROWS) if row[0] == "stdiod_module_info")
EDGES_S = [256e-6 * 2**number for number in range(19)]
"""The buckets end at 256 us, 512 us and so on up to 67 s."""

Key = tuple[str, frozenset[tuple[str, str]]]
EQUAL: dict[str, Callable[[dict[str, Any]], float | None]] = {
    "open_files_limit": lambda daemon: daemon["open_files"]["limit"],
    "held_limit_bytes": lambda daemon: daemon["held_bytes"]["limit"],
    "connections": lambda daemon: daemon["connections"]["open"],
    "refused_connections_total": lambda daemon: daemon["connections"]["refused"],
    "suspensions_total": lambda daemon: daemon["suspensions"]["count"],
    "suspended_seconds_total": lambda daemon: daemon["suspensions"]["total_s"],
    "stuck_work": lambda daemon: 0,
    "dropped_log_bytes_total": lambda daemon: 0,
    "lost_log_lines_total": lambda daemon: None,
    "exported_spans_total": lambda daemon: None,
    "failed_spans_total": lambda daemon: None,
    "dropped_spans_total": lambda daemon: None,
    "journal_events": lambda daemon: daemon["journal"]["events"],
    "journal_dropped_total": lambda daemon: 0,
    "journal_problem": lambda daemon: 0,
    "reloads_total": lambda daemon: daemon["reloads"],
    "reaped_orphans_total": lambda daemon: daemon["reaped_orphans"],
    "assets": lambda daemon: 1,
    "asset_store_bytes": lambda daemon: 0,
    "approvals_waiting": lambda daemon: 0,
    "ui_subscribers": lambda daemon: 1,
    "quarantined_descriptors": lambda daemon: 0,
}


class Scrape:
    """The text of a scrape, as a parser reads it, and the status at that time."""

    def __init__(self, form: str, text: str, status: dict[str, Any]) -> None:
        self.text = text
        self.daemon = status["daemon"]
        self.modules = {one["name"]: one for one in status["modules"]}
        parse = parse_openmetrics if form == "openmetrics" else parse_prometheus
        self.families = {one.name: one for one in parse(text)}
        self.figures: dict[Key, float] = {}
        for family in self.families.values():
            for one in family.samples:
                key = one.name, frozenset(one.labels.items())
                assert key not in self.figures
                self.figures[key] = one.value

    def value(self, name: str, **labels: str) -> float | None:
        return self.figures.get((f"stdiod_{name}", frozenset(labels.items())))

    def by_label(self, name: str, label: str, **of: str) -> dict[str, float]:
        """Return the figures of a metric by one of its labels."""
        found = [(dict(labels), one) for (key, labels), one in self.figures.items() if key == name]
        return {labels[label]: one for labels, one in found if of.items() <= labels.items()}


async def scraped(folder: Path, form: str = "prometheus") -> Scrape:
    """Have a daemon do a bit of everything, and scrape it."""
    (folder / "f").write_text("abc")
    m = actor(folder, inputs={op: {"type": "object"} for op in ("echo", "say", "hang")})
    lazy = actor(folder, name="n", supervision={"start": "lazy"})
    async with daemon_with(folder, m, lazy, memory=JournalOptions()) as daemon:
        for number in range(4):
            await own(daemon, ADA, "session.new", session_id=f"s{number}")
        watcher = begin(daemon, "supervisor", "invoke", {"op": "ui.subscribe", "args": {}})
        await watcher.heard(1)
        fails = {"ok": False, "error": {"code": "odd", "message": "no"}}
        known = {"assetId": "a", "kind": "k", "mediaType": "text/plain", "path": "f"}
        lines = [json.dumps({"version": "0", "type": "asset", **known}), json.dumps(fails)]
        for op, args in (("echo", {}), ("echo", {}), ("say", {"lines": lines})):
            await ask(daemon, "m", op, args=args).response()
        await ask(daemon, "nobody").response()
        await ask(daemon, "m", "unknown").response()
        hangs, asker = begun(daemon, "m", "hang", session_id="s0")
        await own(daemon, ADA, "session.end", session_id="s3")  # all before it is stored by then
        status = await own(daemon, ADA, "status")
        told = await own(daemon, ADA, "metrics", format=form)
        hangs.cancel(GONE)
        await asker.response()
    return Scrape(form, told["text"], status)


@pytest.mark.parametrize("form", ["prometheus", "openmetrics"])
async def test_each_metric_of_the_document_is_written_with_its_kind_words_and_labels(
    form: str, tmp_path: Path
) -> None:
    scrape = await scraped(tmp_path, form)
    assert len(ROWS) == 48
    for at, (name, kind, labels, words) in enumerate(ROWS):
        known_as, kind_there = name, kind
        if form == "prometheus" and kind == "info":
            kind_there = "gauge"  # which has no `info`
        elif kind in ("counter", "info"):
            known_as = name.removesuffix(f"_{kind}").removesuffix("_total")
        family = scrape.families[known_as]
        assert (family.type, family.documentation) == (kind_there, words)
        every = {*labels, "module"} if at >= OF_MODULE else set(labels)
        assert {frozenset(one.labels.keys() - {"le"}) for one in family.samples} <= {
            frozenset(every)
        }
    ends = scrape.text.endswith("# EOF\n"), scrape.text.count("# EOF")
    assert ends == ((True, 1) if form == "openmetrics" else (False, 0))


async def test_figures_of_the_daemon_are_those_of_status(tmp_path: Path) -> None:
    scrape = await scraped(tmp_path)
    value, whole = scrape.value, scrape.daemon
    for name, wanted in EQUAL.items():
        assert value(name) == wanted(whole), name
    version, level = whole["version"], whole["containment"]
    assert value("build_info", version=version, containment=level) == 1
    assert whole["uptime_s"] <= (value("uptime_seconds") or 0) <= whole["uptime_s"] + WAIT_S
    assert (value("resident_memory_bytes") or 0) > 1 << 20
    assert 0 < (value("open_files") or 0) < whole["open_files"]["limit"]
    assert value("held_most_bytes") == whole["held_bytes"]["most"]
    assert (value("journal_bytes") or 0) >= 4096
    states = scrape.by_label("stdiod_sessions", "state")
    assert states == {"idle": 2, "busy": 1, "ended": 1}
    refused = scrape.by_label("stdiod_refused_invocations_total", "reason")
    assert refused == whole["refused"] == {"unknown_module": 1, "unknown_op": 1}


@pytest.mark.parametrize(("module", "state"), [("m", "ready"), ("n", "down")])
async def test_figures_of_a_module_are_those_of_status(
    module: str, state: str, tmp_path: Path
) -> None:
    scrape = await scraped(tmp_path)
    up = int(module == "m")
    kinds = {"kind": "tool", "version": "", "protocol": "module", "lifecycle": "persistent"}
    assert scrape.value("module_info", module=module, **kinds) == 1
    states = scrape.by_label("stdiod_module_state", "state", module=module)
    assert {name: one for name, one in states.items() if one} == {state: 1}
    assert {"down", "starting", "ready", "stopping", "failed", "disabled"} <= set(states)
    figures = {
        "module_wanted": up,
        "module_instances": up,
        "module_in_flight": up,
        "module_queued": 0,
        "module_quarantined": 0,
        "module_late_lines_total": 0,
        "module_quarantined_lines_total": 0,
        "module_left_out_log_lines_total": 0,
        "hook_dropped_events_total": None,
    }
    assert {name: scrape.value(name, module=module) for name in figures} == figures
    memory = scrape.value("module_resident_memory_bytes", module=module)
    assert memory is not None
    assert (memory > 1 << 20) is bool(up)
    name = "stdiod_invocations_total"
    oks = scrape.by_label(name, "op", module=module, outcome="ok")
    errors = scrape.by_label(name, "op", module=module, outcome="module_error")
    assert (oks, errors) == (({"echo": 2}, {"say": 1}) if up else ({}, {}))


async def test_durations_are_counted_in_buckets_up_to_the_longest(tmp_path: Path) -> None:
    scrape = await scraped(tmp_path)
    latency, name = scrape.modules["m"]["latency_ms"], "invocation_duration_seconds"
    assert scrape.value(f"{name}_count", module="m") == latency["count"] == 3
    longest_s = latency["max"] / 1000
    assert longest_s < (scrape.value(f"{name}_sum", module="m") or 0) <= 3 * longest_s
    counts = scrape.by_label(f"stdiod_{name}_bucket", "le", module="m")
    assert list(counts) == [*(str(edge) for edge in EDGES_S), "+Inf"]
    assert list(counts.values()) == sorted(counts.values())
    below, above = (
        {number for edge, number in counts.items() if (float(edge) > longest_s) is longer}
        for longer in (False, True)
    )
    assert above == {3}
    assert 3 not in below


async def test_samples_of_a_metric_come_in_an_order_for_people(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        await ask(daemon, "m").response()
        lines = (await own(daemon, ADA, "metrics"))["text"].splitlines()
    states = [line.split('"')[1] for line in lines if line.startswith("stdiod_sessions{")]
    assert states == ["idle", "busy", "ended"]
    durations = [line for line in lines if line.startswith("stdiod_invocation_duration_seconds")]
    assert 'le="+Inf"' in durations[-3]
    assert ["_count{" in durations[-2], "_sum{" in durations[-1]] == [True, True]
