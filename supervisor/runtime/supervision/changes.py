"""Wait for a change of some module, of one module, or of each of several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import trio


class Changes:
    """Who waits for modules to change; each change wakes those it is for, and nobody else."""

    def __init__(self) -> None:
        self._any = trio.Event()
        self._of: dict[str, trio.Event] = {}
        self._noting: set[Noted] = set()

    def tell(self, names: Iterable[str]) -> None:
        """Wake those who wait for one of these, or for whatever comes."""
        self.tell_all()
        for name in names:
            event = self._of.pop(name, None)
            if event is not None:
                event.set()
            for noted in self._noting:
                noted.add(name)

    def tell_all(self) -> None:
        """Wake those who wait for whatever comes."""
        self._any.set()
        self._any = trio.Event()

    async def wait(self) -> None:
        """Wait for whatever comes next."""
        await self._any.wait()

    async def wait_of(self, name: str) -> None:
        """Wait for the next change of this one."""
        await self._of.setdefault(name, trio.Event()).wait()

    @contextlib.contextmanager
    def noting(self) -> Iterator[Noted]:
        """Note within the block who has changed."""
        noted = Noted()
        self._noting.add(noted)
        try:
            yield noted
        finally:
            self._noting.discard(noted)


class Noted:
    """Those that have changed since they were last taken."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._some = trio.Event()

    def add(self, name: str) -> None:
        """Take note of one."""
        self._names[name] = None
        self._some.set()

    async def take(self) -> list[str]:
        """Wait until there are some, and return them."""
        await self._some.wait()
        self._some = trio.Event()
        names, self._names = self._names, {}
        return list(names)
