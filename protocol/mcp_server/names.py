"""The names of ops for clients: made from module and op, and nothing else.

Without a prefix, an op keeps its own name, as far as MCP allows. With one it is `MODULE__OP`, in
the characters that every client accepts. A name that is longer than NAME_CHARS, or would be that of
another op too, ends in a digest of module and op. So the same ops
have the same names in each daemon, in whatever order they came.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Generator, Iterable, Mapping

NAME_CHARS = 64
"""The shortest of the known limits of clients and models."""

DIGEST_CHARS = 8

SEPARATOR = "__"

REMEMBERED = 20_000
"""Former names that are kept."""

Op = tuple[str, str]

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_ODD_IN_MCP = re.compile(r"[^A-Za-z0-9_.-]")


def naming(ops: Iterable[Op], *, prefix: bool) -> Generator[None, None, dict[str, Op]]:
    """Name each op, in small steps; the order stays."""
    plain: dict[Op, str] = {}
    times: Counter[str] = Counter()
    for one in ops:
        name = plain[one] = _plain(one, prefix=prefix)
        times[name] += 1
        yield
    named: dict[str, Op] = {}
    for one, name in plain.items():
        fits = times[name] == 1 and 0 < len(name) <= NAME_CHARS
        named[name if fits else _digested(name, one)] = one
        yield
    return named


def _plain(one: Op, *, prefix: bool) -> str:
    module, op = one
    return _ODD.sub("_", f"{module}{SEPARATOR}{op}") if prefix else _ODD_IN_MCP.sub("_", op)


def may_be_of(name: str, module: str, *, prefix: bool) -> bool:
    """Tell whether an op of a module, one that is not known yet, may have that name."""
    most = NAME_CHARS - DIGEST_CHARS - 1
    return not prefix or name.startswith(_plain((module, ""), prefix=True)[:most])


def op_of(name: str, module: str) -> str | None:
    """Return the op that a name with a prefix has after that of a module; None if it has another's.

    Odd characters of the op are lost in a name: it is for a module that lists no ops.
    """
    before = _plain((module, ""), prefix=True)
    return name.removeprefix(before) if name.startswith(before) else None


def _digested(name: str, one: Op) -> str:
    digest = hashlib.sha256("\0".join(one).encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
    return f"{name[: NAME_CHARS - DIGEST_CHARS - 1]}_{digest}"


class Names:
    """The ops by name, current and former ones: calls by a former name may be under way."""

    def __init__(self) -> None:
        self._now: Mapping[str, Op] = {}
        self._former: dict[str, Op] = {}

    def replace(self, now: Mapping[str, Op]) -> None:
        for name, one in self._now.items():
            if name not in now:
                self._former.pop(name, None)  # the newest last
                self._former[name] = one
        while len(self._former) > REMEMBERED:
            del self._former[next(iter(self._former))]
        self._now = now

    def find(self, name: str) -> Op | None:
        """Return the op that a name stands for, or stood for last."""
        return self._now.get(name) or self._former.get(name)
