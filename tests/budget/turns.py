"""An event loop and those at the other ends of its pipes, who take turns with it.

Just before the loop would block, one of the others takes its turn: a module reads all that was
written to it and answers, or a client reads all its answers and asks again. Nothing happens at the
same time, so what the loop does in between can be counted.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pytest
import trio

_READ, _WRITE = os.read, os.write


class Peer(Protocol):
    """Somebody at the other end of a pipe or a socket."""

    def turn(self) -> bool:
        """Do what there is to do; False if that is nothing."""


class Turns(trio.abc.Instrument):
    """Gives the peers their turns, and counts what the loop does."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.counts: Counter[str] = Counter()
        self._counting: trio.CancelScope | None = None
        self._token = trio.lowlevel.current_trio_token()

    def soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function next, from a peer's turn."""
        self._token.run_sync_soon(function)

    def before_io_wait(self, timeout: float) -> None:
        if timeout > 0:
            # Only one: what it leads to is done before the next one acts.
            acted = any(peer.turn() for peer in self.peers)
            if self._counting is not None and not acted:
                self.soon(self._counting.cancel)

    def after_io_wait(self, timeout: float) -> None:
        self.counts["passes"] += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.counts["steps"] += 1

    @contextmanager
    def counting(self, patch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
        """Count passes of the loop, steps of tasks, reads and writes within the block.

        A block that waits while nobody has anything to do fails: it would wait for ever.
        """
        with patch.context() as patched, trio.CancelScope() as scope:
            patched.setattr(os, "read", self._counted("reads", _READ))
            patched.setattr(os, "write", self._counted("writes", _WRITE))
            self.counts.clear()
            self._counting = scope
            try:
                yield self.counts
            finally:
                self._counting = None
        assert not scope.cancelled_caught, "nobody has anything to do"

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.counts[name] += 1
            return function(*args)

        return counted


@contextmanager
def taking_turns() -> Iterator[Turns]:
    """Have peers take turns with this event loop within the block."""
    turns = Turns()
    trio.lowlevel.add_instrument(turns)
    try:
        yield turns
    finally:
        with contextlib.suppress(KeyError):  # removed by trio, and logged, if a turn has raised
            trio.lowlevel.remove_instrument(turns)


def read_all(descriptor: int) -> bytes:
    """Read what there is, without being counted."""
    data = b""
    try:
        while chunk := _READ(descriptor, 1 << 20):
            data += chunk
    except (BlockingIOError, OSError):
        pass  # nothing more now, or the other end is closed
    return data


def write_some(descriptor: int, data: bytes) -> bytes:
    """Write what there is room for, without being counted; returns the rest."""
    try:
        return data[_WRITE(descriptor, data) :]
    except BlockingIOError:
        return data
