"""Which invocations wait for each other, and whether one would wait for itself (policy.waits).

An invocation waits for its open children: the host calls of its module, and the gates that are
asked about it. Before its module has begun with it, it also waits for that module's capacity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Failure, Reason
from supervisor.policy.waits import Waits, circle
from supervisor.runtime.supervision.module import Module

if TYPE_CHECKING:
    from supervisor.kernel.invocation import Invocation


class Parents:
    """The invocations that have open children, by module."""

    def __init__(self) -> None:
        self._by_module: dict[str, dict[str, Invocation]] = {}

    def add(self, one: Invocation) -> None:
        """Add an invocation that has a child; idempotent."""
        self._by_module.setdefault(one.module.name, {})[one.request_id] = one

    def discard(self, one: Invocation) -> None:
        of_module = self._by_module.get(one.module.name, {})
        of_module.pop(one.request_id, None)
        if not of_module:
            self._by_module.pop(one.module.name, None)

    def reentrant(self, call: str, parent: Invocation, module: Module) -> Failure | None:
        """Return the failure if a call for a module without room would never be served.

        `call` is its id, `parent` the invocation on whose behalf it is to be made.
        """
        self.add(parent)  # it is one as soon as the call is made
        try:
            chain = circle(call, self._waits(call, parent, module))
        finally:
            if not any(True for _ in parent.children):
                self.discard(parent)
        if chain is None:
            return None
        words = (
            f"{module.name} would never serve this call: {' -> '.join(chain)} wait for each other;"
            " a larger supervision.concurrency makes room"
        )
        return Failure.because(Reason.REENTRANT_CALL, words, chain=list(chain))

    def _waits(self, call: str, parent: Invocation, module: Module) -> Waits:
        """Collect what the end of a call may depend on, and no more."""
        modules = {call: module.name}
        children: dict[str, list[str]] = {}
        waiting = {call}
        holders: dict[str, list[str]] = {}
        capacities: dict[str, int] = {}
        wanted, found = [module], list["Invocation"]()
        while wanted or found:
            if wanted:
                one = wanted.pop()
                if one.name not in holders:
                    there = self._holders(one)
                    holders[one.name] = [kin.request_id for kin in there]
                    capacities[one.name] = one.capacity
                    found += there
                continue
            kin = found.pop()
            if kin.request_id in modules:
                continue
            modules[kin.request_id] = kin.module.name
            below = list(kin.children)
            children[kin.request_id] = [child.request_id for child in below]
            if kin is parent:
                children[kin.request_id].append(call)
            if kin.is_waiting:
                waiting.add(kin.request_id)
                wanted.append(kin.module)
            found += below
        return Waits(modules, children, waiting, holders, capacities)

    def _holders(self, module: Module) -> list[Invocation]:
        """Return the invocations that hold a module's capacity; others there end by themselves."""
        of_module = self._by_module.get(module.name, {})
        return [one for one in of_module.values() if not (one.is_waiting or one.has_outcome)]
