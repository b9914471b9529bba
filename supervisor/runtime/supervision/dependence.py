"""Which modules depend on which: where a change of one matters, and who will not be ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from protocol.errors import Failure, Reason
from supervisor.policy.lifecycle import State
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.refusal import unavailable


class Dependence:
    """Which modules name which in `depends_on`, as of when it was made."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._on: dict[str, list[Module]] = {}
        for module in modules:
            for name in module.descriptor.supervision.depends_on:
                self._on.setdefault(name, []).append(module)

    def on(self, name: str) -> list[Module]:
        return self._on.get(name, [])

    def concerned(self, names: Iterable[str]) -> list[str]:
        """Return these, and those that depend on one of them, however indirectly."""
        found = dict.fromkeys(names)
        left = list(found)
        for name in left:  # it grows
            for module in self.on(name):
                if module.name not in found:
                    found[module.name] = None
                    left.append(module.name)
        return left


def outlook(
    modules: Mapping[str, Module], module: Module, *, final: bool = False
) -> Failure | None:
    """See `Fleet.verdict`."""
    if _is_stuck(module, final=final):
        return unavailable(module)
    # Without recursion: a chain of dependencies may be long.
    left, seen = [module], {module.name}
    while left:
        waiting = left.pop()
        if waiting.state is not State.DOWN:
            continue
        for name in waiting.waits_for:
            needed = modules.get(name)
            if needed is None:
                words = f"{module.name} waits for {name}, and there is no such module"
                return Failure.because(Reason.NOT_READY, words, waits_for=name)
            if _is_stuck(needed, final=final) and not starts_on_demand(needed):
                words = f"{module.name} waits for {name}: {unavailable(needed).message}"
                return Failure.because(Reason.NOT_READY, words, waits_for=name)
            if name not in seen:
                seen.add(name)
                left.append(needed)
    return None


def _is_stuck(module: Module, *, final: bool) -> bool:
    match module.state:
        case State.FAILED:
            return True
        case State.BACKOFF:
            return not final
        case State.DOWN:
            return not module.wanted
        case _:
            return False


def starts_on_demand(module: Module) -> bool:
    """Whether it is down, and would be started by one that depends on it."""
    # What an operator stopped stays stopped, what failed has its own retry, and what ended for good
    # (temporary, transient) is not to be started again and again.
    return (
        module.state is State.DOWN
        and not module.stopped_by_command
        and (module.asleep or module.last_exit is None)
    )
