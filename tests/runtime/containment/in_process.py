"""A daemon inside the test, and how it is asked."""

from __future__ import annotations

from typing import Any

import trio

from protocol.response import Response
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.parties import Client
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment import cgroup_folder
from tests.principals import ADA
from tests.runtime.containment.lifelines import PATIENCE_S


class Asked(Client):
    """A client that waits for one response."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._response: Response | None = None

    def finished(self, response: Response) -> None:
        self._response = response
        self._done.set()

    async def response(self) -> Response:
        with trio.fail_after(PATIENCE_S):
            await self._done.wait()
        assert self._response is not None
        return self._response


def ask(daemon: Kernel, op: str, module: str = "stubborn", **args: Any) -> Asked:
    asked = Asked()
    daemon.requests.invoke(ADA, module, {"op": op, "args": args, "timeout_s": PATIENCE_S}, asked)
    return asked


async def until(daemon: Kernel, state: State, module: str = "stubborn") -> None:
    with trio.fail_after(PATIENCE_S):
        await daemon.fleet.wait_until(lambda: daemon.fleet.modules[module].state is state or None)


def cgroups(daemon: Kernel) -> list[str]:
    """Return the names of the cgroups of its instances, and of those below them."""
    folder = daemon.facts.registry.rung.folder
    found = [] if folder is None else cgroup_folder.subtree(folder)[:-1]
    return [one.rpartition("/")[2] for one in found]


async def until_removed(daemon: Kernel, *but: str) -> None:
    """Wait until the cgroups of what has ended are removed: all `but` those that begin so."""
    with trio.fail_after(PATIENCE_S):
        while not all(one.startswith(but) for one in cgroups(daemon)):
            await trio.lowlevel.checkpoint()
