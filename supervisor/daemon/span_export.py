"""Hand spans to a collector of OpenTelemetry, in a thread, as the OTEL_ variables say.

    event loop -> a bounded queue -> the thread: batches -> OTLP over HTTP

The loop waits for nothing here. A collector that is away, slow or hangs costs spans and nothing
else: the queue fills, and what finds no room is counted. The packages are those of `stdiod[otel]`;
the thread imports them, for the first span.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from protocol.version import VERSION
from supervisor.kernel.spans import EndedSpan
from supervisor.policy.tally import OK
from supervisor.runtime.threads import begin_thread

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The collector's address; without one of them, nothing is exported."""

WAITING = 4096
"""Beyond this number of waiting spans, more are dropped."""

BATCH = 512

GATHER_S = 1.0
"""How long spans are gathered before they are sent together."""

CLOSE_S = 3.0
"""How long the end of the daemon waits for the last spans."""

_NANO = 1_000_000_000

log = structlog.get_logger()


@contextlib.contextmanager
def exporting(environment: Mapping[str, str]) -> Iterator[SpanExport | None]:
    """Export during the block, if the environment names a collector; else give None."""
    where = next((environment[one] for one in ENDPOINTS if environment.get(one)), None)
    if where is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield None
    elif not _is_installed():
        words = "an OTEL_ variable names a collector; for spans, install stdiod[otel]"
        log.warning("no spans are exported", words=words, endpoint=where)
        yield None
    else:
        with contextlib.closing(SpanExport(_otlp)) as export:
            yield export


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def _otlp() -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - see above
        OTLPSpanExporter,
    )

    return OTLPSpanExporter()


class SpanExport:
    def __init__(self, make: Callable[[], SpanExporter], *, gather_s: float = GATHER_S) -> None:
        """Export by what `make` makes, in the thread."""
        self.exported = 0
        self.failed = 0
        self.dropped = 0
        self._make = make
        self._gather_s = gather_s
        self._waiting: deque[EndedSpan] = deque()
        self._some = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def ended(self, span: EndedSpan) -> None:
        """Queue a span, or count it as dropped.

        Not if the caller does not want its trace sampled.
        """
        if not int(span.traceparent[-2:], 16) & 1:
            return
        if len(self._waiting) >= WAITING:
            self.dropped += 1
        else:
            self._waiting.append(span)
            if not self._some.is_set():
                self._some.set()
        self._have_thread()

    def status(self) -> dict[str, Any]:
        return {
            "exported": self.exported,
            "failed": self.failed,
            "dropped": self.dropped,
            "waiting": len(self._waiting),
        }

    def close(self) -> None:
        """Send the queued spans, within `CLOSE_S`."""
        self._closing.set()
        self._some.set()
        self._have_thread()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _have_thread(self) -> None:
        if self._thread is None and self._waiting:
            self._thread = begin_thread(self._run, "spans")

    def _run(self) -> None:
        # It says what went wrong by warnings of its own, one for each try.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False
        try:
            exporter, resource = self._make(), _resource()
        except Exception as error:  # noqa: BLE001 - the words are about the OTEL_ variables
            log.warning("no spans are exported", words=str(error))
            return
        well = True
        while True:
            self._some.wait()
            self._closing.wait(self._gather_s)
            self._some.clear()
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                taken = _sent(exporter, [readable(one, resource) for one in some])
                if taken:
                    self.exported += len(some)
                else:
                    self.failed += len(some)
                if well and not taken:
                    log.warning("the collector takes no spans", spans=len(some))
                well = taken
            if self._closing.is_set():
                exporter.shutdown()
                return


def _sent(exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> bool:
    from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415 - see above

    try:
        return exporter.export(spans) is SpanExportResult.SUCCESS
    except Exception:  # noqa: BLE001 - whatever it is, the spans are lost, and nothing else
        return False


def _resource() -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see above

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "stdiod"}
    return Resource.create({**named, "service.version": VERSION})


def readable(span: EndedSpan, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415 - see above
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags  # noqa: PLC0415
    from opentelemetry.trace.status import Status, StatusCode  # noqa: PLC0415

    def context(traceparent: str, *, is_remote: bool) -> SpanContext:
        _, trace, own, flags = traceparent.split("-")
        return SpanContext(int(trace, 16), int(own, 16), is_remote, TraceFlags(int(flags, 16)))

    failed = span.outcome != OK
    attributes = {
        "stdiod.module": span.module,
        "stdiod.op": span.op,
        "stdiod.outcome": span.outcome,
        "stdiod.request_id": span.request_id,
    }
    if span.session_id is not None:
        attributes["session.id"] = span.session_id
    if failed:
        attributes["error.type"] = span.outcome
    parent = span.parent
    return ReadableSpan(
        f"{span.module}.{span.op}",
        context=context(span.traceparent, is_remote=False),
        parent=None if parent is None else context(parent, is_remote=not span.by_module),
        resource=resource,
        attributes=attributes,
        kind=SpanKind.INTERNAL if span.by_module else SpanKind.SERVER,
        status=Status(StatusCode.ERROR, span.words) if failed else Status(StatusCode.UNSET),
        start_time=int(span.began * _NANO),
        end_time=int(span.ended * _NANO),
    )
