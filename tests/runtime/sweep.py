"""Cancel something at its first scheduler step, its second, ... until it gets through uncancelled.

A step is what a task does between two checkpoints, so every checkpoint of every task that takes
part is met, with the cancellation pending when the task comes to it. A step that hands work to a
thread counts as well: the cancellation then comes while the thread works.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import trio

from tests import factories

MOST_STEPS = 5000
"""What takes more steps than this waits for something in a busy loop."""


class CancelAfter(trio.abc.Instrument):
    """Cancels a scope once so many steps of any task are over."""

    def __init__(self, scope: trio.CancelScope, steps: int) -> None:
        self.left = steps
        self._scope = scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self._scope.cancel()


async def sweep(
    subject: Callable[[], Awaitable[None]], check: Callable[[], None] = lambda: None
) -> int:
    """Run `subject` again and again; after each run, nothing may be left and `check` must hold.

    Returns the number of runs, which is one more than the number of steps that were cancelled.
    """
    await subject()  # whatever is made once and kept (threads, their wakeup) is made now
    files = factories.open_files()
    for steps in itertools.count(1):
        assert steps < MOST_STEPS
        with trio.CancelScope() as scope:
            cancel = CancelAfter(scope, steps)
            trio.lowlevel.add_instrument(cancel)
            try:
                await subject()
            finally:
                trio.lowlevel.remove_instrument(cancel)
        left = factories.opened_since(files)
        assert not left, f"cancelled at step {steps}: {left}"
        assert not factories.children(), f"cancelled at step {steps}"
        check()
        if cancel.left > 0:
            return steps
    raise AssertionError
