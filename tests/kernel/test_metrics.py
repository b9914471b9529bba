"""Metrics say what `status` says, in the words of Prometheus, to whoever may see that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from supervisor.kernel import exposition
from supervisor.kernel.exposition import Exposition
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.metrics import EDGES_US, METRICS, Form
from supervisor.policy.lifecycle import State
from supervisor.policy.principals import ALL_SCOPES, Principal
from supervisor.policy.tally import OUTCOMES, SERIES
from tests.factories import actor, script
from tests.kernel.conftest import ask, daemon_with, own
from tests.kernel.test_operations import run
from tests.principals import ADA

CALM = {"timeouts": {"stop_s": 0.1, "exit_s": 0.1}}
HOSTILE = 'x"} 1\nstdiod_uptime_seconds{a="\\</script>\u202e'

Figures = dict[str, dict[frozenset[tuple[str, str]], float]]


async def scraped(
    daemon: Kernel, form: Form = Form.PROMETHEUS, principal: Principal = ADA
) -> Figures:
    """Return what a parser reads, by the names of samples and their labels."""
    told = await own(daemon, principal, "metrics", format=str(form))
    parse = parse_openmetrics if form is Form.OPENMETRICS else parse_prometheus
    found: Figures = {}
    for family in parse(told["text"]):
        for one in family.samples:
            of_name = found.setdefault(one.name, {})
            key = frozenset(one.labels.items())
            assert key not in of_name, one
            of_name[key] = one.value
    return found


def value(figures: Figures, name: str, **labels: str) -> float | None:
    return figures.get(name, {}).get(frozenset(labels.items()))


def modules_in(figures: Figures) -> set[str]:
    return {dict(key)["module"] for key in figures["stdiod_module_info"]}


async def test_a_parser_reads_what_became_of_invocations_in_both_forms(tmp_path: Path) -> None:
    ops = ("echo", "say", "exit", HOSTILE)
    m = actor(tmp_path, supervision=CALM, inputs={op: {"type": "object"} for op in ops})
    silent = script(tmp_path, "true", name="silent", supervision=CALM)
    async with daemon_with(tmp_path, m, silent) as daemon:
        fails = {"lines": [json.dumps({"ok": False, "error": {"code": "odd", "message": "no"}})]}
        for op, args in (("echo", {}), ("echo", {}), ("say", fails), (HOSTILE, {})):
            await ask(daemon, "m", op, args=args).response()
        await ask(daemon, "m", "exit", args={"code": 3}).response()
        await ask(daemon, "silent", "guessed").response()  # it ends without `done`
        await ask(daemon, "m", "unknown").response()
        await ask(daemon, "nobody").response()
        module = daemon.fleet.modules["m"]
        await daemon.fleet.wait_until(lambda: module.state is State.READY or None)
        plain = await scraped(daemon)
        assert set(plain) == set(await scraped(daemon, Form.OPENMETRICS))
        name = "stdiod_invocations_total"
        assert value(plain, name, module="m", op="echo", outcome="ok") == 2
        assert value(plain, name, module="m", op="say", outcome="module_error") == 1
        assert value(plain, name, module="m", op="exit", outcome="unreachable") == 1
        assert value(plain, name, module="silent", op="other", outcome="internal") == 1
        assert HOSTILE in {dict(key)["op"] for key in plain[name]}
        refused = "stdiod_refused_invocations_total"
        assert value(plain, refused, reason="unknown_op") == 1
        assert value(plain, refused, reason="unknown_module") == 1
        restarts = "stdiod_module_restarts_total"
        assert value(plain, restarts, module="m", cause="exited") == module.restarts == 1
        assert value(plain, "stdiod_module_state", module="m", state="ready") == 1
        assert value(plain, "stdiod_module_state", module="m", state="failed") == 0


async def test_durations_are_those_of_status_in_fewer_buckets(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        latency = daemon.fleet.modules["m"].latency
        durations_us = [1, 255, 256, 300, 5_000, 70_000_000]
        for one in durations_us:
            latency.add(one)
        figures = await scraped(daemon)
        name = "stdiod_invocation_duration_seconds"
        for edge_us in EDGES_US:
            below = sum(one < edge_us for one in durations_us)
            assert value(figures, f"{name}_bucket", module="m", le=str(edge_us / 1e6)) == below
        assert value(figures, f"{name}_bucket", module="m", le="+Inf") == len(durations_us)
        assert value(figures, f"{name}_count", module="m") == len(durations_us)
        assert value(figures, f"{name}_sum", module="m") == sum(durations_us) / 1e6


async def test_who_may_see_some_modules_gets_their_figures_and_no_others(tmp_path: Path) -> None:
    a, b = actor(tmp_path, name="a"), actor(tmp_path, name="b")
    async with daemon_with(tmp_path, a, b) as daemon:
        await ask(daemon, "a").response()
        some = Principal("some", "test", ALL_SCOPES, ("b",))
        assert modules_in(await scraped(daemon)) == {"a", "b"}
        figures = await scraped(daemon, principal=some)
        assert modules_in(figures) == {"b"}
        labelled = [dict(key) for samples in figures.values() for key in samples]
        assert {one["module"] for one in labelled if "module" in one} == {"b"}


async def test_a_module_has_a_bounded_number_of_series_and_none_when_it_is_gone(
    tmp_path: Path,
) -> None:
    ops = [f"op{number}" for number in range(SERIES)]
    m = actor(tmp_path, inputs={op: {"type": "object"} for op in ops})
    async with daemon_with(tmp_path, m) as daemon:
        module = daemon.fleet.modules["m"]
        for number, op in enumerate([*ops, *ops]):
            module.tally.add(op, OUTCOMES[number % len(OUTCOMES)], lambda: True)
        figures = await scraped(daemon)
        assert sum(map(len, figures.values())) <= series_of_module() + len(METRICS) + 10
        del daemon.fleet.modules["m"]
        try:
            assert "stdiod_module_info" not in await scraped(daemon)
        finally:
            daemon.fleet.modules["m"] = module


@pytest.mark.fault(29)
async def test_the_text_is_put_together_a_few_modules_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of 9,000 modules, 23 MB, took 75 ms in one step, and 55 over HTTP."""
    parts: list[str] = []
    texts = Exposition.texts

    def kept(written: Exposition) -> Iterator[str]:
        for one in texts(written):
            parts.append(one)
            yield one

    monkeypatch.setattr(exposition, "TOGETHER", 2)
    monkeypatch.setattr(Exposition, "texts", kept)
    names = {f"m{number}" for number in range(5)}
    made = [actor(tmp_path, name=name, supervision={"start": "lazy"}) for name in names]
    async with daemon_with(tmp_path, *made) as daemon:
        assert modules_in(await scraped(daemon)) == names
    assert max(len(set(re.findall(r'module="(\w+)"', one))) for one in parts) == 2


def series_of_module() -> int:
    """Return how many series a module has at the most, but for causes of restarts."""
    histogram = len(EDGES_US) + 3
    return SERIES + len(OUTCOMES) + histogram + len(State) + len(METRICS)


async def test_every_figure_of_the_daemon_is_there(tmp_path: Path) -> None:
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        status: dict[str, Any] = (await run(daemon, "status"))["daemon"]
        figures = await scraped(daemon)
        (held,) = figures["stdiod_held_limit_bytes"].values()
        assert held == status["held_bytes"]["limit"]
        (files,) = figures["stdiod_open_files_limit"].values()
        assert files == status["open_files"]["limit"]
