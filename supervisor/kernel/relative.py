"""On whose behalf an invocation is made, and which are made on behalf of it.

Children end with their parent. Who has open children is known to the wait graph, since he waits for
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from supervisor.kernel.wait_graph import Parents
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision.module import Module

Kind = TypeVar("Kind", bound="Relative[Any]")


class Relative(ABC, Generic[Kind]):
    """An invocation, as one of a tree of them."""

    __slots__ = ("_children", "_parents", "parent")

    def __init__(self, parent: Kind | None, parents: Parents) -> None:
        self.parent = parent
        """The invocation on whose behalf it is made, if any."""
        self._parents = parents
        self._children: set[Kind] | None = None

    @property
    @abstractmethod
    def request_id(self) -> str:
        """The daemon's own id of the request."""

    @property
    @abstractmethod
    def module(self) -> Module:
        """The module it is for."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether its module is still to begin with it."""

    @property
    @abstractmethod
    def has_outcome(self) -> bool:
        """Whether its outcome is known."""

    @abstractmethod
    def cancel(self, stopped: Stopped) -> None:
        """End it for a reason of the host's or the client's own; idempotent."""

    @property
    def children(self) -> Iterable[Kind]:
        """The open invocations that are made on its behalf."""
        return self._children or ()

    @property
    def ancestors(self) -> Iterator[Kind]:
        """Those on whose behalf it is made, the nearest first."""
        one = self.parent
        while one is not None:
            yield one
            one = one.parent

    def adopt(self, child: Kind) -> None:
        """Take note of an invocation made on behalf of this one."""
        if self._children is None:
            self._children = set()
        self._children.add(child)
        self._parents.add(self)

    def let_go(self, child: Kind) -> None:
        """Forget a child that has ended."""
        if self._children is not None:
            self._children.discard(child)
            if not self._children:
                self._parents.discard(self)

    def end_children(self, stopped: Stopped) -> None:
        """Give up what is done on its behalf."""
        for child in tuple(self.children):
            child.cancel(stopped)
