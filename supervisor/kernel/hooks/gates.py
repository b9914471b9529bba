"""The gates of each module."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import NamedTuple

from protocol.descriptor.model import Gate, Hook, Kind
from supervisor.policy.hook_chain import Link
from supervisor.runtime.supervision.module import Module


class Standing(NamedTuple):
    """The gates before a module, in the order in which they were mounted."""

    pre: tuple[Link, ...]
    post: tuple[Link, ...]
    error: tuple[Link, ...]


class Gates:
    def __init__(self) -> None:
        self.any = False
        """Whether there is a gate at all; each invocation asks this."""
        self._hooks: dict[str, tuple[Hook, re.Pattern[str]]] = {}
        self._standing: dict[str, Standing | None] = {}

    def mount(self, name: str, hook: Hook) -> None:
        """Put a hook before the modules that it names; a mounted one keeps its place."""
        if hook.gate:
            self._hooks[name] = hook, re.compile("|".join(translate(one) for one in hook.modules))
        else:
            self._hooks.pop(name, None)
        self._changed()

    def unmount(self, name: str) -> None:
        self._hooks.pop(name, None)
        self._changed()

    def forget(self, name: str) -> None:
        """Compute the gates of a module anew: it may be of another kind now."""
        self._standing.pop(name, None)

    def before(self, module: Module) -> Standing | None:
        """Return the gates before a module; None if there are none, as before any hook."""
        name = module.name
        if name not in self._standing:
            self._standing[name] = self._find(module)
        return self._standing[name]

    def hook(self, name: str) -> Hook | None:
        """Return the gate of the hook's current descriptor; None if it was removed."""
        found = self._hooks.get(name)
        return None if found is None else found[0]

    def _changed(self) -> None:
        self.any = bool(self._hooks)
        self._standing.clear()

    def _find(self, module: Module) -> Standing | None:
        if module.descriptor.kind is Kind.HOOK:
            return None
        standing = Standing(*(self._links(gate, module.name) for gate in Gate))
        return standing if any(standing) else None

    def _links(self, gate: Gate, module: str) -> tuple[Link, ...]:
        return tuple(
            Link(name, hook.priority, hook.on_failure)
            for name, (hook, globs) in self._hooks.items()
            if gate in hook.gate and globs.match(module)
        )
