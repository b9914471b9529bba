"""Spans reach a collector, and a collector that is away, wrong or hangs delays nobody."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from protocol.trace_context import EXAMPLE
from supervisor.daemon import span_export
from supervisor.daemon.span_export import WAITING, SpanExport, exporting
from supervisor.kernel.spans import EndedSpan
from tests.factories import actor, none_left
from tests.kernel.conftest import ask, daemon_with
from tests.kernel.host_calls import allowing, caller, payload

CALM = {"timeouts": {"stop_s": 0.1, "exit_s": 0.1}}
SPAN = EndedSpan(EXAMPLE, None, False, 1.0, 2.0, "m", "echo", "r1", None, "ok", None)


async def test_each_invocation_is_a_span_and_what_a_module_calls_is_its_child(
    tmp_path: Path,
) -> None:
    collector = InMemorySpanExporter()
    a = caller(tmp_path, "a", capabilities=["module.invoke"])
    m, operator = actor(tmp_path, supervision=CALM), allowing(tmp_path)
    export = SpanExport(lambda: collector, gather_s=0)
    async with daemon_with(tmp_path, a, m, operator=operator) as daemon:
        daemon.requests.tell_spans(export)
        calls = {"calls": [payload("invoke", module="m", op="echo")], "lines": []}
        await ask(daemon, "a", "calls", args=calls, traceparent=EXAMPLE).response()
        await ask(daemon, "m", "exit", args={"code": 3}).response()
        await ask(daemon, "m", "echo", traceparent=f"{EXAMPLE[:-2]}00").response()  # not sampled
    await trio.to_thread.run_sync(export.close)
    child, first, failed = collector.get_finished_spans()
    assert [one.name for one in (first, child, failed)] == ["a.calls", "m.echo", "m.exit"]
    assert [one.kind for one in (first, child)] == [SpanKind.SERVER, SpanKind.INTERNAL]
    assert (first.parent is not None, child.parent) == (True, first.context)
    assert first.context is not None
    assert f"{first.context.trace_id:032x}" == EXAMPLE[3:35]
    assert dict(failed.attributes or {}) == {
        "stdiod.module": "m",
        "stdiod.op": "exit",
        "stdiod.outcome": "unreachable",
        "stdiod.request_id": (failed.attributes or {})["stdiod.request_id"],
        "error.type": "unreachable",
    }
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.parent is None
    assert all((one.end_time or 0) >= (one.start_time or 0) > 0 for one in (first, child))
    assert export.status() == {"exported": 3, "failed": 0, "dropped": 0, "waiting": 0}


class Held(SpanExporter):
    """A collector that takes nothing until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        self.begun.set()
        assert self.let_go.wait(60)
        return SpanExportResult.FAILURE


@pytest.mark.fault(21)
def test_a_span_that_ends_while_the_system_gives_no_thread_is_exported_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It raised in the invocation that had just ended."""
    collector = InMemorySpanExporter()
    export = SpanExport(lambda: collector, gather_s=0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        export.ended(SPAN)
    export.ended(SPAN)
    export.close()
    assert len(collector.get_finished_spans()) == 2


@pytest.mark.fault(21)
@pytest.mark.parametrize("more", [1, 0], ids=["one more", "the end"])
def test_a_queue_that_filled_while_there_was_no_thread_is_exported_once_there_is_one(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_export, "WAITING", 2)
    collector = InMemorySpanExporter()
    export = SpanExport(lambda: collector, gather_s=0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        for _ in range(2):
            export.ended(SPAN)
    for _ in range(more):
        export.ended(SPAN)
    export.close()
    assert (len(collector.get_finished_spans()), export.dropped) == (2, more)


def test_what_finds_no_room_is_dropped_and_counted() -> None:
    held = Held()
    export = SpanExport(lambda: held, gather_s=0)
    with closing(export):
        export.ended(SPAN)
        assert held.begun.wait(60)
        for _ in range(WAITING + 5):
            export.ended(SPAN)
        assert export.status() == {"exported": 0, "failed": 0, "dropped": 5, "waiting": WAITING}
        held.let_go.set()
    assert export.status() == {"exported": 0, "failed": WAITING + 1, "dropped": 5, "waiting": 0}


@pytest.fixture
def hanging() -> Iterator[str]:
    """Give the URL of a collector that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"


async def test_a_collector_that_hangs_holds_up_no_invocation_and_not_the_end(
    hanging: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_export, "CLOSE_S", 0.05)
    export = SpanExport(partial(OTLPSpanExporter, hanging, timeout=1), gather_s=0)
    async with daemon_with(tmp_path, actor(tmp_path, supervision=CALM)) as daemon:
        daemon.requests.tell_spans(export)
        for _ in range(20):
            assert (await ask(daemon, "m").response()).ok
    await trio.to_thread.run_sync(export.close)
    thread = export._thread
    assert thread is not None
    assert thread.daemon
    await trio.to_thread.run_sync(thread.join, 60)
    assert (export.exported, export.failed) == (0, 20)


def test_an_exporter_that_raises_or_cannot_be_made_costs_its_spans_only() -> None:
    class Raises(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            raise ValueError(spans)

    def unmade() -> SpanExporter:
        raise ValueError("OTEL_EXPORTER_OTLP_CERTIFICATE")

    for make, failed in ((Raises, 1), (unmade, 0)):
        with closing(SpanExport(make, gather_s=0)) as export:
            export.ended(SPAN)
        assert export.failed == failed


def test_nothing_is_exported_unless_the_environment_says_where_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    for environment in ({}, {**where, "OTEL_SDK_DISABLED": "true"}):
        with exporting(environment) as export:
            assert export is None
    with exporting(where) as export:
        assert export is not None
    monkeypatch.setattr(span_export, "_is_installed", lambda: False)
    with exporting(where) as export:
        assert export is None
