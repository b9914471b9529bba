"""What all tests share: the markers that tie a test to a clause or to a fault."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "clause(id): the test holds this clause of tests/conformance/clauses.py"
    )
    config.addinivalue_line(
        "markers", "fault(number, ...): the test holds these rows of tests/faults/rows.py"
    )
