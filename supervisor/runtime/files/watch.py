"""Notice that descriptors or watched programs changed; wait until the writer is done; say so.

    look which directories matter -> watch them -> (more than before? read again) -> wait for an
    event that matters -> wait until it is quiet -> reload -> look which directories matter ...

A reload for another reason tells of itself (`follow_anew`): other directories may matter then.

A watch that is set after the files were read may have missed a change between the two; so whenever
a directory is newly watched, the files are read once more. Where the kernel gives no watch (its
limit is reached, say), they are read at an interval, and `status` tells.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Protocol

import msgspec
import structlog
import trio

from supervisor.runtime.files.inotify import Event, Inotify, Mask
from supervisor.runtime.files.sources import Sources
from supervisor.runtime.files.watched_paths import DESCRIPTORS, Interests
from supervisor.runtime.threads import Threads

QUIET_S = 0.1
"""A change is over when nothing has happened for so long: many files are one change."""

RESTLESS_S = 1.0
"""Under steady change, the files are read this often nevertheless."""

RESCAN_S = 60.0
"""How often they are read whatever happens: a link or a folder far up may lead elsewhere now."""

POLL_S = 2.0
"""How often they are read where there are no watches."""

UNANSWERED_S = 5.0
"""How often the files are read again where something did not answer."""

log = structlog.get_logger()

_CAME_OR_WENT = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
_SELF = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT | Mask.IGNORED
_STRUCTURE = _CAME_OR_WENT | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ATTRIB
_CONTENT = _STRUCTURE | Mask.CLOSE_WRITE

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG})
"""Directories that cannot be read; what is in them is bad for the same reason, and shown so."""


class WatchState(msgspec.Struct):
    """How changes are noticed, as `status` shows it: `off`, `inotify`, or `polling` and why."""

    mode: str = "off"
    directories: int = 0
    reason: str | None = None


class NoWatchError(Exception):
    def __init__(self, error: OSError) -> None:
        name = errno.errorcode.get(error.errno or 0, "?")
        super().__init__(f"the kernel gives no watch: {error.strerror} ({name})")


class Reload(Protocol):
    async def __call__(self, *, if_needed: bool) -> None:
        """Read the files again; with `if_needed`, it is no event if nothing changed."""


OpenQueue = Callable[[], Inotify]


class Watch:
    def __init__(
        self,
        files: Sources,
        state: WatchState,
        threads: Threads,
        open_queue: OpenQueue = Inotify,
    ) -> None:
        """`state` is kept up to date."""
        self._files = files
        self._state = state
        self._threads = threads
        self._open_queue = open_queue
        self._task_status: trio.TaskStatus[None] | None = None
        self._stale = False
        """Whether the files have been read since the directories to watch were chosen."""
        self._waiting = trio.CancelScope()

    def follow_anew(self) -> None:
        """The files were read: other directories may matter now."""
        self._stale = True
        self._waiting.cancel()

    async def run(
        self, reload: Reload, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Call `reload` after each change, until cancelled; started once nothing can be missed."""
        self._task_status = task_status
        try:
            await self._run_inotify(reload)
        except NoWatchError as error:
            self._state.mode, self._state.directories = "polling", 0
            self._state.reason = str(error)
            log.warning("files are polled instead of watched", every_s=POLL_S, reason=str(error))
        await self._run_polling(reload)

    async def _run_inotify(self, reload: Reload) -> None:
        watches = Watches(_opened(self._open_queue))
        try:
            while await self._follow(watches):
                await reload(if_needed=True)
            self._say_started()
            new = False
            while True:
                self._state.mode, self._state.directories = "inotify", watches.count
                changed = False
                patience_s = UNANSWERED_S if self._files.unanswered else RESCAN_S
                with trio.move_on_after(patience_s) as overdue:
                    changed = not new and await self._wait_changed(watches)
                if new or changed:
                    happened = await _until_quiet(watches) or changed
                    await reload(if_needed=not happened)
                elif overdue.cancelled_caught:
                    await reload(if_needed=True)
                new = await self._follow(watches)
        finally:
            watches.close()

    async def _follow(self, watches: Watches) -> bool:
        self._stale = False
        follow = partial(watches.follow, self._files.interests)
        return await self._threads.run("watching the folders of descriptors and programs", follow)

    async def _wait_changed(self, watches: Watches) -> bool:
        """Wait for something that matters, or until other directories may matter; then False."""
        if self._stale:
            return False
        with trio.CancelScope() as self._waiting:
            await watches.wait_changed()
            return True
        return False

    async def _run_polling(self, reload: Reload) -> None:
        await reload(if_needed=True)
        self._say_started()
        while True:
            await trio.sleep(POLL_S)
            await reload(if_needed=True)

    def _say_started(self) -> None:
        if self._task_status is not None:
            self._task_status.started()
            self._task_status = None


class Watches:
    """An inotify queue whose watches follow what matters."""

    def __init__(self, queue: Inotify) -> None:
        self._queue = queue
        self._names: dict[int, dict[str, str]] = {}
        """Of each watch: the names that matter, and the directory as its path is written."""

    @property
    def count(self) -> int:
        return len(self._names)

    def follow(self, interests: Interests) -> bool:
        """Watch these entries and no others; returns whether there is a new directory among them.

        Raises `NoWatchError` if the kernel gives no more.
        """
        following: dict[int, dict[str, str]] = {}
        for directory, entries in groupby(sorted(interests), key=attrgetter("directory")):
            content = {one.name: one.content for one in entries}
            try:
                # Each time: another directory may have taken the place of the one that is watched.
                watch = self._queue.add(
                    directory, _CONTENT if any(content.values()) else _STRUCTURE
                )
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise NoWatchError(error) from error
            else:
                following.setdefault(watch, {}).update(dict.fromkeys(content, directory))
        new = following.keys() - self._names.keys()
        for watch in self._names.keys() - following.keys():
            self._queue.remove(watch)
        self._names = following
        return bool(new)

    async def wait_changed(self) -> None:
        while True:
            # All of them are looked at: one may say that a watch is gone.
            matters = [self._matters(event) for event in await self._queue.events()]
            if any(matters):
                return

    def close(self) -> None:
        self._queue.close()

    def _matters(self, event: Event) -> bool:
        if event.mask & Mask.Q_OVERFLOW:
            return True
        names = self._names.get(event.watch)
        if names is None:
            return False  # not watched any more
        if event.mask & Mask.IGNORED:
            del self._names[event.watch]  # its number may be given to another one
        return bool(event.mask & _SELF) or event.name in names or _is_of_descriptors(event, names)


def _opened(open_queue: OpenQueue) -> Inotify:
    try:
        return open_queue()
    except OSError as error:
        raise NoWatchError(error) from error


def _is_of_descriptors(event: Event, names: Mapping[str, str]) -> bool:
    directory = names.get(DESCRIPTORS)
    if directory is None or event.name.startswith("."):
        return False
    if event.name.endswith(".json") or event.mask & Mask.ISDIR:
        return True
    # A link to a folder is not told from a file by the kernel. Where it leads is not looked at:
    # that may be a file system that does not answer.
    came = bool(event.mask & (Mask.CREATE | Mask.MOVED_TO))
    return came and os.path.islink(os.path.join(directory, event.name))  # noqa: PTH114, PTH118


async def _until_quiet(watches: Watches) -> bool:
    """Wait until nothing has happened for a while; returns whether something did before."""
    happened = False
    with trio.move_on_after(RESTLESS_S):
        while True:
            with trio.move_on_after(QUIET_S) as pause:
                await watches.wait_changed()
            if pause.cancelled_caught:
                break
            happened = True
    return happened
