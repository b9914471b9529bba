"""inotify(7), as far as it is needed to learn that something changed in some directories.

Not a library's watcher, because those that there are poll their own queue from a thread (watchfiles
wakes 20 times a second in an idle daemon), fix the set of directories when they are made, and watch
whole trees; here the set follows the descriptors, and a module's folder may hold a `node_modules`.
"""

from __future__ import annotations

import ctypes
import os
import struct
from enum import IntFlag
from typing import NamedTuple

import trio

READ_BYTES = 65536
_HEADER = struct.Struct("iIII")  # wd, mask, cookie, len


class Mask(IntFlag):
    """What can happen, and how to watch for it (linux/inotify.h)."""

    ATTRIB = 0x4
    CLOSE_WRITE = 0x8
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATE = 0x100
    DELETE = 0x200
    DELETE_SELF = 0x400
    MOVE_SELF = 0x800
    UNMOUNT = 0x2000
    Q_OVERFLOW = 0x4000
    IGNORED = 0x8000
    ONLYDIR = 0x1000000
    MASK_ADD = 0x20000000
    ISDIR = 0x40000000


class Event(NamedTuple):
    """Something happened in a watched directory, or with it (then `name` is empty)."""

    watch: int
    mask: Mask
    name: str


class Inotify:
    """A queue of events; `add` raises `OSError`, as making one does."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(
            self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1"
        )

    def add(self, directory: str, mask: Mask) -> int:
        """Watch a directory for more; returns the number of the watch, one per inode."""
        flags = mask | Mask.MASK_ADD | Mask.ONLYDIR
        path = os.fsencode(directory)
        watch = self._libc.inotify_add_watch(self._descriptor, path, ctypes.c_uint32(flags))
        return self._checked(watch, directory)

    def remove(self, watch: int) -> None:
        """Watch no longer; a watch that the kernel has removed already is no error."""
        self._libc.inotify_rm_watch(self._descriptor, watch)

    async def events(self) -> list[Event]:
        """Wait for events and return them; cancelled, it has taken none."""
        await trio.lowlevel.checkpoint()  # a flood of events is not to starve the modules
        while True:
            try:
                return _parse(os.read(self._descriptor, READ_BYTES))
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._descriptor)

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._descriptor)
        os.close(self._descriptor)

    @staticmethod
    def _checked(result: int, what: str) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), what)
        return result


def _parse(data: bytes) -> list[Event]:
    events: list[Event] = []
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length
        events.append(Event(watch, Mask(mask), name))
    return events
