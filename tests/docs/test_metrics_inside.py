"""Of `test_metrics.py`, what is bound to the structure."""

from __future__ import annotations

import pytest

from supervisor.kernel.metrics import OF_DAEMON, OF_MODULE, Metric
from tests.docs.markdown import rows
from tests.docs.test_metrics import DOCUMENT


@pytest.mark.parametrize(
    ("heading", "metrics"), [("Of the daemon", OF_DAEMON), ("Of each module", OF_MODULE)]
)
def test_every_metric_has_a_row_and_every_row_is_a_metric(
    heading: str, metrics: tuple[Metric, ...]
) -> None:
    shown = [
        [f"`{one.name}`", str(one.kind), ", ".join(f"`{label}`" for label in one.labels), one.words]
        for one in metrics
    ]
    assert rows(DOCUMENT, heading) == shown
