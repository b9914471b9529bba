"""What all tests share: the marker that ties a test to a clause of a specification."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "clause(id): the test holds this clause of tests/conformance/clauses.py"
    )
