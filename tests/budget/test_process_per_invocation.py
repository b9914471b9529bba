"""What a process per invocation costs the daemon: tasks, threads, and what it asks the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.spawn import Spawner
from tests import factories
from tests.budget.conftest import assert_within
from tests.kernel.conftest import Asker, daemon_with
from tests.principals import ADA
from tests.runtime.containment.conftest import why_not

INVOCATIONS = 20

TOOL = """read -r line; echo '{"version":"0","type":"done","ok":true,"summary":"Done."}'"""

STATE = ("/proc/", "/sys/fs/cgroup/")
"""What tells the state of processes, and holds them."""

EACH = {"tasks": 3, "threads": 1, "spawned": 1, "stat": 1, "killpg": 3}
"""One task serves the call, two read its process's stdout and stderr, unless it ended before that.
Nobody looks at the folder and the program: `exec` tells. The group is killed before the output's
rest is read, and after."""

BUDGETS = {
    "cgroup2": {**EACH, "opened": 9, "mkdir": 1, "rmdir": 3, "listdir": 0, "scandir": 0},
    "subreaper": {**EACH, "opened": 3, "mkdir": 0, "rmdir": 0, "listdir": 0, "scandir": 0},
}
"""By rung. Where a process that has ended is in its cgroup for a moment more, it takes another try
to remove that; usually it takes 5 files and one try.
One look is at the number of the leader's threads, for whom it may have forked before the move."""


class Tasks(trio.abc.Instrument):
    """Counts the tasks that begin."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self._counts["tasks"] += 1


@contextmanager
def counting(patch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count within the block, in all threads."""
    counts: Counter[str] = Counter()

    def count(owner: object, attribute: str, name: str = "") -> None:
        function: Callable[..., Any] = getattr(owner, attribute)

        def counted(*args: Any, **options: Any) -> Any:
            counts[name or attribute] += 1
            return function(*args, **options)

        patched.setattr(owner, attribute, counted)

    opens = os.open

    def counted_open(path: Any, *args: Any, **options: Any) -> int:
        counts["opened" if str(path).startswith(STATE) else "open"] += 1
        return opens(path, *args, **options)

    tasks = Tasks(counts)
    with patch.context() as patched:
        for attribute in ("mkdir", "rmdir", "stat", "listdir", "scandir", "killpg"):
            count(os, attribute)
        patched.setattr(os, "open", counted_open)
        count(subprocess, "Popen", "spawned")
        count(Spawner, "run", "threads")
        trio.lowlevel.add_instrument(tasks)
        try:
            yield counts
        finally:
            trio.lowlevel.remove_instrument(tasks)


@pytest.fixture(params=BUDGETS)
def rung(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    reason = why_not(name)
    if reason is None and procfs.children(os.getpid()) is None:
        reason = "this kernel has no lists of children, so all of /proc is read"
    if reason is not None:
        pytest.skip(reason)
    return name


async def test_an_invocation_asks_the_kernel_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rung: str
) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    tool = factories.descriptor(tmp_path, [shell, "-c", TOOL], transport={"protocol": "narratoria"})

    async with daemon_with(tmp_path, tool, containment=rung) as daemon:
        with counting(monkeypatch) as counts:
            for _ in range(INVOCATIONS):
                asker = Asker()
                daemon.requests.invoke(ADA, "m", {"op": "run"}, asker)
                response = await asker.response()
                assert response.ok, response
    assert counts["spawned"] == counts["threads"] == INVOCATIONS
    assert_within(counts, INVOCATIONS, BUDGETS[rung])
