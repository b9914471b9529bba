"""A kernel on a virtual clock, over real processes: what its modules' logs say, and at what time.

Time stands still unless a test passes it, however slow the machine is, so each line of a log has
one time. What a process does takes none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing

from protocol.descriptor.model import Descriptor
from protocol.events import Log, Progress
from supervisor.kernel.kernel import Kernel
from supervisor.policy.findings import Found
from tests.kernel.conftest import own, run_op
from tests.principals import ADA

Clock = trio.testing.MockClock
MOMENT_S = 0.01
SHOWN = 3
"""Digits of a time."""

SWITCH_S = 2e-5
"""So soon a thread has the interpreter while a story asks again and again whether something holds.
By default it would wait for 5 ms at each file that it reads, for half a minute in all."""

SLACK_S = 1e-5
"""Times are sums of floats: so much later, what is due has been told."""


class Story:
    """A kernel, and the time that passes for it."""

    def __init__(self, kernel: Kernel, clock: Clock) -> None:
        self.kernel = kernel
        self._clock = clock
        self._began = trio.current_time()

    async def passes(self, seconds: float) -> None:
        """Let time pass, so that each timer on the way is told in its time."""
        await trio.testing.wait_all_tasks_blocked()
        until = trio.current_time() + seconds + SLACK_S
        while (left_s := until - trio.current_time()) > 0:
            next_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
            self._clock.jump(min(left_s, max(next_s, SLACK_S)))
            await trio.testing.wait_all_tasks_blocked()

    async def is_at_rest(self, seconds: float) -> None:
        """Wait until the next that is due is so far away."""
        statistics = trio.lowlevel.current_statistics
        while not math.isclose(statistics().seconds_to_next_deadline, seconds, abs_tol=2 * SLACK_S):
            await trio.lowlevel.checkpoint()

    async def rests(self, seconds: float) -> None:
        """Wait until the next that is due is so far away, and let that time pass."""
        await self.is_at_rest(seconds)
        await self.passes(trio.lowlevel.current_statistics().seconds_to_next_deadline)

    async def status(self, module: str = "m") -> dict[str, Any]:
        status: dict[str, Any] = await own(self.kernel, ADA, "status", module=module)
        return status

    async def is_in(self, state: str, module: str = "m") -> dict[str, Any]:
        """Return the status of a module once it is in a state."""
        while (status := await self.status(module))["state"] != state:
            await trio.lowlevel.checkpoint()
        return status

    async def shows(self, module: str = "m", **fields: Any) -> dict[str, Any]:
        """Return the status of a module once it has these values."""
        status = await self.status(module)
        while any(status[name] != value for name, value in fields.items()):
            await trio.lowlevel.checkpoint()
            status = await self.status(module)
        return status

    async def has(self, *instances: str, module: str = "m") -> None:
        """Wait until these are the processes of a module."""
        while [one["id"] for one in (await self.status(module))["instances"]] != [*instances]:
            await trio.lowlevel.checkpoint()

    async def serve(self, *instances: str, module: str = "m") -> None:
        """Wait until these are the processes of a module, and all of them serve."""
        expected = dict.fromkeys(instances, "ready")
        while {
            one["id"]: one["state"] for one in (await self.status(module))["instances"]
        } != expected:
            await trio.lowlevel.checkpoint()

    async def says(self, message: str, module: str = "m") -> None:
        """Wait until a message is in the log of a module."""
        while message not in (line[2] for line in await self.told(module)):
            await trio.lowlevel.checkpoint()

    async def stays(self, state: str, seconds: float, module: str = "m") -> None:
        """Let all but a moment pass, then hold a module to be in a state; then that moment."""
        await self.passes(seconds - MOMENT_S)
        assert (await self.status(module))["state"] == state, await self.told(module)
        await self.passes(MOMENT_S - SLACK_S)

    async def comes_to(self, state: str, after_s: float, module: str = "m") -> dict[str, Any]:
        """Let time pass until a module, which stays as it is for so long, is in a state.

        What a thread does before, such as to send signals, takes real time, of which the clock
        knows nothing: so it may be somewhat later.
        """
        if after_s:
            await self.stays((await self.status(module))["state"], after_s, module)
        while (status := await self.status(module))["state"] != state:
            await self.passes(MOMENT_S)
        return status

    async def told(self, module: str = "m") -> list[tuple[float, str, str]]:
        """Return the log of a module: the time of each line, its instance, what it says."""
        lines: list[tuple[float, str, str]] = []

        async def take(event: Progress | None) -> None:
            assert isinstance(event, Log)
            assert isinstance(event.fields, dict)
            at = round(event.fields["ts"] - self._began, SHOWN)
            lines.append((at, event.fields["instance"], event.message))

        await run_op(self.kernel, "logs", {"module": module}, take)
        return lines


TAIL = "800000"
"""The tail of request ids in a story: what is drawn is in the middle."""


@asynccontextmanager
async def story(
    clock: Clock, folder: Path, *modules: Descriptor, **options: Any
) -> AsyncIterator[Story]:
    """Run a kernel of modules, of which nothing is awaited."""
    clock.jump(1000)  # 0 stands for no time
    more = {"clock": trio.current_time, "draw": lambda: 0.5, **options}
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        async with Kernel(Found(modules), data_dir=folder / "data", **more) as kernel:
            yield Story(kernel, clock)
            clock.rate = 1  # a thread that is at work is waited for by the clock, too
            kernel.shut_down("the end of the story")
            kernel.shut_down("no time passes for its modules to end by themselves")
    finally:
        sys.setswitchinterval(usual_s)
