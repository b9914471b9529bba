"""Let no test wait for ever: one that passes its bound ends, and says where it waited.

It is interrupted as by Ctrl-C, which trio and fixtures clean up after. If that does not end it
within GRACE_S, the process tells the same, shows its threads and ends; pytest-xdist reports that as
a crash in this test and goes on with another process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from types import FrameType
from typing import IO, NoReturn, TypeVar

import pytest
import trio

T = TypeVar("T")

WAIT_S = 60.0
"""For one wait of a test; none comes near it unless something is wrong."""

PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.05
"""Before it is asked again whether something holds; each pause is twice the one before."""

TEST_S = float(os.environ.get("TEST_BOUND_S", "120"))
"""For setup, test and teardown together; far beyond what any takes, since machines are shared.

Mutants that have a test wait for ever are many, and have less (`scripts/mutants.py`).
"""

GRACE_S = min(90.0, TEST_S)
"""What a test that passed its bound has for cleaning up: the end of a daemon has bounds too."""

LAST_S = 60.0
"""What the process has to end, once it does: pytest-xdist's wait for the last test of all."""


def until(holds: Callable[[], T | None], awaited: str) -> T:
    """Ask again and again until something holds, and return it; signs of life do not prolong it.

    Between two questions the processor is for what is awaited, and for the other tests.
    """
    ends_at = time.monotonic() + WAIT_S
    pause_s = PAUSE_S
    while not (found := holds()):
        assert time.monotonic() < ends_at, f"{awaited}: not within {WAIT_S:g} s"
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return found


async def wait_until(holds: Callable[[], T | None], awaited: str) -> T:
    """Ask as `until` does, beside the other tasks of a trio run."""
    ends_at = time.monotonic() + WAIT_S
    pause_s = PAUSE_S
    while not (found := holds()):
        assert time.monotonic() < ends_at, f"{awaited}: not within {WAIT_S:g} s"
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return found


class Bound:
    """The bound on the test that runs."""

    def __init__(self, test: str, bound_s: float) -> None:
        self._test = test
        self._bound_s = bound_s
        self._passed = ""

    def begin(self) -> None:
        signal.signal(signal.SIGALRM, self._pass)
        signal.setitimer(signal.ITIMER_REAL, self._bound_s, GRACE_S)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Fail with the name of the test, whatever came of the interrupt."""
        try:
            yield
        except BaseException as error:
            if self._passed:
                self._fail(error)
            raise
        if self._passed:
            self._fail(None)

    def _pass(self, number: int, frame: FrameType | None) -> None:
        if self._passed:
            print(self._passed, file=_stderr, flush=True)
            faulthandler.dump_traceback(file=_stderr)
            os._exit(1)
        self._passed = f"{self._test} passed its bound of {self._bound_s:g} s"
        if trio.lowlevel.in_trio_run():
            self._passed += "; its tasks waited here:\n" + "\n".join(tasks())
        signal.raise_signal(signal.SIGINT)

    def _fail(self, error: BaseException | None) -> NoReturn:
        words, self._passed = self._passed, ""
        raise pytest.fail.Exception(words) from error


def tasks() -> Iterator[str]:
    """Tell of each task of this trio run where it waits, below its parent."""
    root = trio.lowlevel.current_root_task()
    below = [(root, 0)] if root is not None else []
    while below:
        task, depth = below.pop()
        yield f"{'  ' * depth}{task.name}: {' < '.join(_waits(task)) or 'not begun'}"
        for nursery in task.child_nurseries:
            below += [(one, depth + 1) for one in nursery.child_tasks]


def _waits(task: trio.lowlevel.Task) -> list[str]:
    """Return where a task waits, innermost first; trio's own frames tell nothing."""
    found: list[str] = []
    with contextlib.suppress(TypeError):  # trio does not know each kind of awaitable
        for frame, line in task.iter_await_frames():
            code = frame.f_code
            if f"{os.sep}trio{os.sep}" not in code.co_filename:
                found.append(f"{os.path.relpath(code.co_filename)}:{line} {code.co_name}")
    return found[::-1]


_stderr: IO[str] = sys.stderr
_bound = pytest.StashKey[Bound]()


def pytest_configure(config: pytest.Config) -> None:
    global _stderr  # noqa: PLW0603 - the one that no test captures
    _stderr = os.fdopen(os.dup(2), "w")
    config.addinivalue_line(
        "markers", f"bound(seconds): the test may take so long, instead of {TEST_S:g} s"
    )


def pytest_unconfigure() -> None:
    # A thread that was left would keep the process from ending. Other callbacks come after it.
    threading._register_atexit(_end_within_bound)  # type: ignore[attr-defined]


def _end_within_bound() -> None:
    faulthandler.dump_traceback_later(LAST_S, exit=True, file=_stderr)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("bound")
    bound = item.stash[_bound] = Bound(item.nodeid, *(marker.args if marker else (TEST_S,)))
    if not item.config.getoption("usepdb"):
        bound.begin()
    try:
        return (yield)
    finally:
        bound.end()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with item.stash[_bound].naming():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with item.stash[_bound].naming():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with item.stash[_bound].naming():
        return (yield)
