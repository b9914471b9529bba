"""Remove the cgroups of instances that have ended: in a thread, many at a time, a moment later.

The kernel has one lock for all cgroups of the machine (`cgroup_mutex`), which `mkdir`, `rmdir`,
`cgroup.procs` and `cgroup.kill` take. The move of a process holds it for an RCU grace period, so
where others move many, a call waits for it for 100 ms and more. So nothing of that is done on the
event loop, and nothing waits for a removal: the cgroup is empty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial

import trio

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment.contained import Containment

TOGETHER_S = 0.1
"""What ends within that is removed together: a thread costs a lone call more than its `rmdir`."""


class Removals:
    """The cgroups to be removed; for the event loop."""

    def __init__(self, blocking: BlockingWork) -> None:
        self._blocking = blocking
        self._ended: list[Containment] = []
        self._some = trio.Event()

    def add(self, containment: Containment) -> None:
        self._ended.append(containment)
        self._some.set()

    async def run(self) -> None:
        """Remove until cancelled; what is left goes with the rung's folder."""
        while True:
            await self._some.wait()
            await trio.sleep(TOGETHER_S)
            self._some = trio.Event()
            ended = self._ended[:]
            with contextlib.suppress(OSError):  # without a thread, it is done with the next ones
                await self._blocking.run("removing cgroups", partial(_remove, ended))
                del self._ended[: len(ended)]


def _remove(ended: Iterable[Containment]) -> None:
    for one in ended:
        one.remove()
