"""The CPUs of a row's parties: what is pinned, and that it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scripts.bench.contenders import on_one_cpu
from scripts.bench.table import SCENES

CPUS = os.sched_getaffinity(0)


def test_one_cpu_is_for_rows_where_each_side_waits_for_the_other() -> None:
    assert {row.title for scene in SCENES for row in scene.rows if scene.one_cpu} == {
        row.title
        for scene in SCENES
        for row in scene.rows
        if "one at a time" in row.title and row.unit == "calls/s"
    }


@pytest.mark.skipif(len(CPUS) < 2, reason="there is only one CPU here")
def test_what_is_started_shares_the_cpu_until_the_end() -> None:
    with on_one_cpu():
        command = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert set(map(int, printed.split())) == os.sched_getaffinity(0) == {max(CPUS)}
    assert os.sched_getaffinity(0) == CPUS
