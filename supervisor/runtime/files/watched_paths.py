"""Which entries of which directories to watch, to see the file at a path change.

A file is watched where its path says that it is, and where it really is. A link or a folder further
up is not watched: that it leads elsewhere now is found when all files are read again (`watch`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

DESCRIPTORS = "/"
"""In the place of a name: every descriptor file, and every folder. No entry is called so."""


class Interest(NamedTuple):
    """An entry of a directory that matters when it comes, goes, or is replaced.

    With `content`, it matters when it is written, too.
    """

    directory: str
    name: str
    content: bool = True


Interests = set[Interest]


def on_the_way(path: str, *, content: bool = True) -> Iterator[Interest]:
    """Yield what to watch for an absolute path: of folders that are missing, the first one."""
    for one in {path, os.path.realpath(path)}:
        directory, name = os.path.split(one)
        there = True
        while not os.path.isdir(directory):  # noqa: PTH112 - a text, as all others here
            directory, name = os.path.split(directory)
            there = False
        yield Interest(directory, name, content and there)
