"""What the tests of containment share: lifelines, and each rung in turn."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.runtime.containment import ladder
from supervisor.runtime.containment.ladder import ContainmentError
from supervisor.runtime.containment.orphans import Orphans
from tests.runtime.containment.lifelines import Lifelines


@pytest.fixture
def lifelines() -> Iterator[Lifelines]:
    # Not tmp_path: a socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="lf") as folder:
        lines = Lifelines(Path(folder))
        yield lines
        lines.close()


def why_not(rung: str) -> str | None:
    """Say why this machine lacks a rung."""
    try:
        chosen = ladder.choose(rung, "probe-probe", Orphans("probe", whole_process=False))
    except ContainmentError as error:
        return str(error)
    chosen.rung.close()
    return None


@pytest.fixture(params=ladder.RUNGS)
def rung(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    reason = why_not(name)
    if reason is not None:
        if os.environ.get("STDIOD_TEST_ALL_RUNGS"):
            pytest.fail(reason)
        pytest.skip(reason)
    return name
