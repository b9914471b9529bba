"""Whether a call that waits for a module can ever be served, and if not, which circle waits.

The rules; the answer is their least fixed point (a call ends only if a rule shows it):

- a module can serve if it has capacity to spare, or if one of the calls that hold it can end;
- a call can end if all its open children can, and, if it still waits for capacity, its module can
  serve.

So a call that is served and waits for nothing is taken to end: its time limit sees to that. A new
call is the only way for a circle to close, so it is enough to ask about each one as it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

import msgspec


class Waits(msgspec.Struct, frozen=True):
    """Who holds capacity and who waits for it now; calls are named by their request ids.

    The mappings are never copied, so they may be the live ones.
    """

    modules: Mapping[str, str]
    children: Mapping[str, Collection[str]]
    """The open calls that a call waits for: host calls and gate calls."""
    waiting: Container[str]
    """The calls that still need capacity: queued ones, and those at a gate before the queue."""
    holders: Mapping[str, Collection[str]]
    """The calls that hold a module's capacity."""
    capacities: Mapping[str, int]
    """How many calls a module can serve at a time with all its processes."""


def circle(call: str, waits: Waits) -> tuple[str, ...] | None:
    """Return None if a call can end, else the modules that wait for each other on its way.

    The first one's capacity is wanted, calls of each wait for the next, and the last one stands in
    the tuple twice, unless there is no capacity of it at all. Linear in what is reached: the calls,
    their children, and the holders of the modules they wait for.
    """
    search = _Search(waits)
    search.reach(call)
    search.settle()
    return None if call in search.ending else search.circle(call)


class _Search:
    def __init__(self, waits: Waits) -> None:
        self.ending: set[str] = set()
        self._waits = waits
        self._missing: dict[str, int] = {}  # how many things a reached call waits for
        self._parents: dict[str, list[str]] = {}
        self._queues: dict[str, list[str]] = {}  # the reached calls that wait for a module
        self._held: dict[str, str] = {}
        self._serving: list[str] = []
        self._ended: list[str] = []

    def reach(self, call: str) -> None:
        """Collect everything that the end of a call may depend on."""
        waits = self._waits
        found = [call]
        while found:
            one = found.pop()
            if one in self._missing:
                continue
            children = set(waits.children.get(one, ()))
            queued = one in waits.waiting
            self._missing[one] = len(children) + queued
            if not self._missing[one]:
                self._ended.append(one)
            for child in children:
                self._parents.setdefault(child, []).append(one)
            found += children
            if queued:
                found += self._queue(one, waits.modules[one])

    def _queue(self, call: str, module: str) -> Collection[str]:
        """Put a call into a module's queue; return the holders it waits for, if they are new."""
        known = module in self._queues
        self._queues.setdefault(module, []).append(call)
        if known:
            return ()
        holders = self._waits.holders.get(module, ())
        if len(holders) < self._waits.capacities[module]:
            self._serving.append(module)
            return ()
        self._held.update(dict.fromkeys(holders, module))
        return holders

    def settle(self) -> None:
        served = set(self._serving)
        while self._serving or self._ended:
            if self._serving:
                self._release(self._queues[self._serving.pop()])
                continue
            call = self._ended.pop()
            self.ending.add(call)
            self._release(self._parents.get(call, ()))
            module = self._held.get(call)
            if module is not None and module not in served:
                served.add(module)
                self._serving.append(module)

    def _release(self, calls: Collection[str]) -> None:
        for call in calls:
            self._missing[call] -= 1
            if not self._missing[call]:
                self._ended.append(call)

    def circle(self, call: str) -> tuple[str, ...]:
        """Follow a call that cannot end along its waits, until a call comes again."""
        waits = self._waits
        names = [waits.modules[call]]
        seen: set[str] = set()
        at: str | None = call
        while at is not None and at not in seen:
            seen.add(at)
            stuck = self._stuck(waits.children.get(at, ()))
            if stuck is not None:
                names.append(waits.modules[stuck])
            elif at in waits.waiting:
                stuck = self._stuck(waits.holders.get(waits.modules[at], ()))
            at = stuck
        return tuple(names)

    def _stuck(self, calls: Collection[str]) -> str | None:
        return next((one for one in calls if one not in self.ending), None)
