"""Write metrics as text, by prometheus_client, which is imported with the first scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client import Metric as Family
from prometheus_client.exposition import generate_latest as as_prometheus
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_1_0_0
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics
from prometheus_client.registry import Collector

from supervisor.kernel.metrics import (
    METRICS,
    OF_DAEMON,
    OF_MODULE,
    Form,
    Metric,
    MetricType,
    Sample,
    labels_of,
    of_daemon,
    of_module,
)

TOGETHER = 100
"""The samples of so many modules make a part."""

_END = "# EOF\n"
"""Of OpenMetrics."""

_UNITS = ("seconds", "bytes")
_SUFFIXES = {MetricType.COUNTER: "_total", MetricType.INFO: "_info"}
"""Suffixes of the samples, not of the family."""


class Exposition:
    def __init__(self, form: Form) -> None:
        self._form = form
        self._heads = {metric.name: self._encoded(_family(metric)) for metric in METRICS}
        self._lines: dict[str, list[str]] = {metric.name: [] for metric in METRICS}

    @property
    def content_type(self) -> str:
        return OPENMETRICS_1_0_0 if self._form is Form.OPENMETRICS else CONTENT_TYPE_PLAIN_0_0_4

    def write(self, whole: dict[str, Any], told: Iterator[dict[str, Any] | None]) -> Iterator[None]:
        """Write all metrics, those of a module with each step.

        `whole` is the answer to `status` without the modules; `told` yields the entry of each, with
        `histogram` and `outcomes`, or None.
        """
        for metric in OF_DAEMON:
            self._add(metric, of_daemon(metric, whole))
        for module in told:
            if module is not None:
                for metric in OF_MODULE:
                    self._add(metric, of_module(metric, module))
            yield

    def _add(self, metric: Metric, samples: Iterable[Sample]) -> None:
        # Text at once: of thousands of modules, samples would keep the garbage collector busy.
        family = _family(metric)
        for one in samples:
            _add(family, metric, one)
        self._lines[metric.name].append(
            self._encoded(family).removeprefix(self._heads[metric.name])
        )

    def texts(self) -> Iterator[str]:
        for name, lines in self._lines.items():
            yield self._heads[name]
            for at in range(0, len(lines), TOGETHER):
                yield "".join(lines[at : at + TOGETHER])
        if self._form is Form.OPENMETRICS:
            yield _END

    def _encoded(self, family: Family) -> str:
        encode = as_openmetrics if self._form is Form.OPENMETRICS else as_prometheus
        return bytes(encode(_Only(family))).decode().removesuffix(_END)


class _Only(Collector):
    """A registry with one family."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


def _family(metric: Metric) -> Family:
    name = metric.name.removesuffix(_SUFFIXES.get(metric.kind, ""))
    unit = next((one for one in _UNITS if name.endswith(f"_{one}")), "")
    return Family(name, metric.words, str(metric.kind), unit)


def _add(family: Family, metric: Metric, sample: Sample) -> None:
    labels = dict(zip(labels_of(metric), sample.labels, strict=True))
    if sample.le is not None:
        labels["le"] = sample.le
    suffix = sample.suffix or _SUFFIXES.get(metric.kind, "")
    family.add_sample(family.name + suffix, labels, sample.value)
