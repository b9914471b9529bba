"""Which names in which directories decide over a path: what to watch to see it change.

A path is more than its last name. Every directory on the way may be renamed or replaced, every
symbolic link may be pointed elsewhere (an atomic deployment does just that), and what is not there
may come. So a path is walked as the kernel walks it, and each step is an entry in some directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

MAX_LINKS = 40
"""The kernel follows no more on one path (path_resolution(7))."""


class Interest(msgspec.Struct):
    """What matters in one directory.

    `names` are entries that matter by themselves; with `descriptors`, so does every descriptor
    file and every folder. With `content`, it matters what is in those files; otherwise only whether
    an entry comes, goes, or is replaced.
    """

    names: set[str] = msgspec.field(default_factory=set)
    descriptors: bool = False
    content: bool = False


class Interests:
    """What to watch, by directory."""

    def __init__(self) -> None:
        self.by_directory: dict[str, Interest] = {}

    def at(self, directory: str) -> Interest:
        return self.by_directory.setdefault(directory, Interest())

    def add(self, others: Interests) -> None:
        for directory, other in others.by_directory.items():
            interest = self.at(directory)
            interest.names |= other.names
            interest.descriptors |= other.descriptors
            interest.content |= other.content

    def add_path(self, path: str, *, content: bool) -> None:
        """Add each step of the way to a path; with `content`, the file there."""
        interest: Interest | None = None
        for directory, name in steps(path):
            interest = self.at(directory)
            interest.names.add(name)
        if content and interest is not None:
            interest.content = True

    def add_folder(self, directory: str) -> None:
        """Add a folder of descriptors, and each step of the way to it."""
        self.add_path(directory, content=False)
        interest = self.at(directory)
        interest.descriptors = interest.content = True

    def add_file(self, directory: str, name: str) -> None:
        """Add a file, without the way to its directory, which is known."""
        interest = self.at(directory)
        interest.names.add(name)
        interest.content = True


def steps(path: str) -> Iterator[tuple[str, str]]:
    """Yield (directory, name) for each entry that is looked up on the way to an absolute path.

    The walk ends at a name that is not there. Directories are given without links in them.
    """
    at = "/"
    ahead = path.split("/")
    links = 0
    while ahead and links <= MAX_LINKS:
        name = ahead.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)  # noqa: PTH120
            continue
        yield at, name
        full = os.path.join(at, name)  # noqa: PTH118
        try:
            target = os.readlink(full)  # noqa: PTH115
        except FileNotFoundError:
            return
        except OSError:
            at = full  # no link
            continue
        links += 1
        if target.startswith("/"):
            at = "/"
        ahead = target.split("/") + ahead
