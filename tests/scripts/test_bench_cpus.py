"""The CPUs of a row's parties: who is pinned, and that it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from scripts.bench.machine import pinned
from scripts.bench.rows import INVOKE_MANY, INVOKE_ONE

CPUS = os.sched_getaffinity(0)


def cpus_of(process: subprocess.Popen[bytes]) -> set[int]:
    return os.sched_getaffinity(process.pid)


def test_one_cpu_is_for_rows_where_each_side_waits_for_the_other() -> None:
    with pinned(INVOKE_MANY):
        assert os.sched_getaffinity(0) == CPUS
    with pinned(INVOKE_ONE):
        assert os.sched_getaffinity(0) == {max(CPUS)}


@pytest.mark.skipif(len(CPUS) < 2, reason="there is only one CPU here")
def test_all_threads_and_processes_share_the_cpus_until_the_end() -> None:
    command = [sys.executable, "-c", "input()"]
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as before:
        thread.start()
        tid = thread.native_id
        assert tid is not None
        try:
            with (
                pinned(INVOKE_ONE),
                subprocess.Popen(command, stdin=subprocess.PIPE) as meanwhile,
            ):
                for found in (os.sched_getaffinity(0), os.sched_getaffinity(tid)):
                    assert found == {max(CPUS)}
                assert cpus_of(before) == cpus_of(meanwhile) == {max(CPUS)}
                meanwhile.communicate(b"\n")
            for found in (os.sched_getaffinity(0), os.sched_getaffinity(tid), cpus_of(before)):
                assert found == CPUS
        finally:
            ended.set()
            thread.join()
            before.communicate(b"\n")
