"""The CPUs of a row's parties: what is pinned, and that it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from scripts.bench.machine import pinned
from scripts.bench.rows import INVOKE_MANY, INVOKE_ONE

CPUS = os.sched_getaffinity(0)


def test_one_cpu_is_for_rows_where_each_side_waits_for_the_other() -> None:
    with pinned(INVOKE_MANY):
        assert os.sched_getaffinity(0) == CPUS
    with pinned(INVOKE_ONE):
        assert os.sched_getaffinity(0) == {max(CPUS)}


@pytest.mark.skipif(len(CPUS) < 2, reason="there is only one CPU here")
def test_all_threads_and_what_is_started_share_the_cpu_until_the_end() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    tid = thread.native_id
    assert tid is not None
    try:
        with pinned(INVOKE_ONE):
            command = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            cpus = set(map(int, printed.split()))
            assert cpus == os.sched_getaffinity(0) == os.sched_getaffinity(tid) == {max(CPUS)}
        assert os.sched_getaffinity(0) == os.sched_getaffinity(tid) == CPUS
    finally:
        ended.set()
        thread.join()
