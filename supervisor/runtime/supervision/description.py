"""What a module says that it is: what its newest process that is ready says, at any time.

A description counts from the end of its process's start to the end of the process. What it may say
of name and kind is looked at when the process starts, and refused then; a process that says
something else later, or than its newer sibling, is named in `misfits`. A change only sets a flag: a
validator is made when args are next looked at, and what changed is told at most once in
`TELL_EVERY_S`, however often it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from protocol.args_schema import ArgsValidator, op_schemas
from protocol.descriptor.model import Descriptor
from protocol.problem import Problem
from supervisor.runtime.supervision.deadlines import Deadlines, Timer

TELL_EVERY_S = 1.0
"""How often it is told at most that a description has changed."""

log = structlog.get_logger()

Tell = Callable[[Descriptor, str, dict[str, Any], int], None]
"""Takes the descriptor, the instance whose description counts, and that.

Last comes how often it has changed since it was told; the first time it is 0.
"""


class Descriptions:
    def __init__(self, descriptor: Descriptor, deadlines: Deadlines, tell: Tell) -> None:
        """`tell` is called when there is something new to remember, or something has changed."""
        self._descriptor = descriptor
        self._deadlines = deadlines
        self._tell = tell
        self._said: dict[str, dict[str, Any]] = {}
        self._stated = None if not descriptor.inputs else ArgsValidator(descriptor.inputs)
        self.validator = self._stated
        """What args are held to, by the descriptor, else by what counts; look at `is_outdated`."""
        self.is_outdated = False
        """Whether the validator is to be `renewed`; an attribute, since each request asks."""
        self._told: dict[str, Any] | None = None
        self._changes = 0
        self._quiet: Timer | None = None
        self._misfits: list[str] = []

    def relabel(self, descriptor: Descriptor) -> None:
        """Take a descriptor that means the same; what counts is told again, for that one."""
        self._descriptor = descriptor
        newest = self.newest
        if newest is not None:
            self._tell(descriptor, newest, self._said[newest], 0)

    # What processes say.

    def begin(self, instance: str, description: dict[str, Any]) -> str | None:
        """Take what a process says at its start; return what is wrong with it, as a clause."""
        misfit = misfit_of(description, self._descriptor)
        if misfit is None:
            self._said[instance] = description
            self._look()
        return misfit

    def change(self, instance: str, description: dict[str, Any]) -> None:
        if instance in self._said:
            self._said[instance] = description
            self._changes += instance == self.newest
            self._look()

    def end(self, instance: str) -> None:
        """Forget the description of a process that is gone; what it said last is told before."""
        if instance not in self._said:
            return
        if self._quiet is not None:
            self._quiet.cancel()
            self._tell_now()
        del self._said[instance]
        self._look()

    def _look(self) -> None:
        self.is_outdated = self._stated is None
        if self._quiet is None:
            self._tell_now()

    def _tell_now(self) -> None:
        self._quiet = None
        self._name_misfits()
        newest, changes = self.newest, self._changes
        self._changes = 0
        if newest is None or self._said[newest] == self._told:
            return
        is_first = self._told is None
        self._told = self._said[newest]
        if not is_first:
            self._quiet = self._deadlines.after(TELL_EVERY_S, self._tell_now)
        self._tell(self._descriptor, newest, self._told, 0 if is_first else max(changes, 1))

    def _name_misfits(self) -> None:
        found = self.misfits()
        for words in found:
            if words not in self._misfits:
                log.warning("a description does not fit", module=self._descriptor.name, words=words)
        self._misfits = found

    # What counts.

    @property
    def newest(self) -> str | None:
        """The instance whose description counts."""
        return max(self._said, key=generation, default=None)

    @property
    def current(self) -> dict[str, Any] | None:
        newest = self.newest
        return None if newest is None else self._said[newest]

    def renewed(self) -> ArgsValidator | None:
        """Return the validator, made anew if it is outdated; None if ops are not known."""
        if self.is_outdated:
            self.is_outdated = False
            current = self.current
            schemas = None if current is None else op_schemas(current.get("inputs"))
            self.validator = None if schemas is None else ArgsValidator(schemas, self._left_out)
        return self.validator

    def _left_out(self, op: str, problem: Problem) -> None:
        name, words = self._descriptor.name, str(problem)
        log.warning("args are not held to a part of their schema", module=name, op=op, words=words)

    def misfits(self) -> list[str]:
        """Say which descriptions do not fit the descriptor, or that of a newer process."""
        newest, current = self.newest, self.current
        found = []
        for instance, description in self._said.items():
            problem = _contradiction(description, self._descriptor)
            if problem is not None:
                found.append(f"{instance} {problem}")
            if description != current:
                found.append(f"{instance} describes itself differently than {newest}")
        return found


def generation(instance: str) -> int:
    """Return the number of an instance; the newer of two has the higher one."""
    return int(instance.rpartition("#")[2])


def misfit_of(description: dict[str, Any], descriptor: Descriptor) -> str | None:
    """Say, as a clause without its name, how a module differs from its descriptor.

    What it has beyond the capabilities of its descriptor it is not granted; that is no misfit.
    """
    contradiction = _contradiction(description, descriptor)
    if contradiction is not None:
        return contradiction
    extra = sorted(set(description["capabilities"]) - set(descriptor.capabilities))
    if extra:
        log.warning(
            "capabilities beyond the descriptor are not granted",
            module=descriptor.name,
            capabilities=extra,
        )
    return None


def _contradiction(description: dict[str, Any], descriptor: Descriptor) -> str | None:
    for key, expected in (("name", descriptor.name), ("kind", str(descriptor.kind))):
        if description[key] != expected:
            found = description[key]
            return f"describes itself with {key} {found!r:.80}; its descriptor says {expected!r}"
    return None
