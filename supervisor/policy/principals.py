"""Requesters and their rights: a value with its decisions, and no state.

A principal may do what its scopes allow, to modules that its globs cover. No scope holds
another one: `admin` alone may not invoke. A glob is about a module, `kv`, or about ops of it,
`kv.get`, `kv.get*`; a glob about a module is about all its ops too. It is an entry as in a policy
(`capabilities.covers`): `*` stands for any characters and nothing else is special, and "%", "." and
":" in a module's name are written as in a URL, so that `kv.get` is never a module of that name.

An owner is recorded by name, and a name is one party's: a user of the machine has the bare name, in
which there is no colon (passwd(5)); `token:` and `module:` stand before the others.

Narrowing can only take away. Of two globs that partly overlap, such as `k*` and `*v`, nothing is
left: what they share is no glob.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache

import msgspec

from supervisor.policy.capabilities import WILDCARD, Glob, covers, operation

EVERYTHING = (WILDCARD,)

GLOBS = 50
"""The most globs of a principal: each request is matched against them, and `narrow` matches each
against each, which takes up to 10 ms."""

GLOB_CHARS = 300

WILDCARDS = 4
"""The most `*` in a glob: the parts between them are searched for."""


class Scope(StrEnum):
    """A kind of access: read, invoke, change how the daemon and modules run."""

    READ = "read"
    INVOKE = "invoke"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)


def token_name(name: str) -> str:
    return f"token:{name}"


def module_name(name: str) -> str:
    return f"module:{name}"


def is_user(name: str) -> bool:
    """Tell whether the name is that of a user of this machine."""
    return ":" not in name


class Principal(msgspec.Struct, frozen=True):
    """A requester at a face; equal values are the same principal."""

    name: str
    face: str
    scopes: frozenset[Scope] = ALL_SCOPES
    modules: tuple[str, ...] = EVERYTHING
    is_full: bool = False
    """Whether it may do everything; made from the rest, and checked first."""
    by: msgspec.Raw = msgspec.Raw(b"null")
    """Its name and face as JSON, for the journal: encoded once, and not for each entry."""
    globs: tuple[Glob, ...] = ()
    """`modules`, parsed: all modules may be matched against them."""

    def __post_init__(self) -> None:
        everything = any(covers_all(glob) for glob in self.modules)
        # A user's name need not be Unicode, and JSON has to hold it.
        said = {"name": self.name.encode(errors="replace").decode(), "face": self.face}
        msgspec.structs.force_setattr(self, "is_full", everything and self.scopes == ALL_SCOPES)
        msgspec.structs.force_setattr(self, "by", msgspec.Raw(msgspec.json.encode(said)))
        msgspec.structs.force_setattr(self, "globs", _globs(self.modules))

    def __hash__(self) -> int:
        return hash((self.name, self.face, self.scopes, self.modules))

    def covers(self, module: str, op: str | None = None) -> bool:
        """Tell whether its globs cover a module as a whole, or one op of it."""
        if self.is_full:
            return True
        subject = operation(module, op)
        return any(glob.covers(subject) for glob in self.globs)

    def covers_all(self) -> bool:
        return self.is_full or any(covers_all(glob) for glob in self.modules)

    def sees(self, module: str) -> bool:
        """Tell whether a module is visible to it: at least an op of it could be covered."""
        if self.is_full:
            return True
        whole = operation(module)
        below = operation(module, "")
        return any(_reaches(glob, below) or glob.covers(whole) for glob in self.globs)

    def owns(self, owner: str | None) -> bool:
        """Tell whether it may see what belongs to `owner`: its own, or anything as an admin.

        None is the owner of what was made before owners were recorded.
        """
        return self.is_full or Scope.ADMIN in self.scopes or self.name == owner

    def narrowed(
        self, scopes: Iterable[Scope] | None = None, modules: Iterable[str] | None = None
    ) -> Principal:
        """Return it with no more than these scopes and globs; None keeps its own."""
        kept = self.scopes if scopes is None else self.scopes & frozenset(scopes)
        globs = self.modules if modules is None else _common(self.modules, tuple(modules))
        return Principal(self.name, self.face, kept, globs)

    def delegated(self) -> Principal:
        """Return the principal of a module that serves it: modules are granted to invoke.

        Which module and op are granted is decided for each call (`capabilities.decide`).
        """
        return _delegated(self)

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "face": self.face,
            "scopes": [str(one) for one in Scope if one in self.scopes],
            "modules": list(self.modules),
        }


@lru_cache(maxsize=1024)
def _delegated(principal: Principal) -> Principal:
    return principal.narrowed((Scope.INVOKE,))


def covers_all(glob: str) -> bool:
    return bool(glob) and not glob.strip(WILDCARD)


def has_few_wildcards(glob: str) -> bool:
    """Tell whether a glob is cheap to match."""
    return glob.count(WILDCARD) <= WILDCARDS


@lru_cache(maxsize=1024)
def _globs(modules: tuple[str, ...]) -> tuple[Glob, ...]:
    return tuple(map(Glob.of, modules))


def _reaches(glob: Glob, beginning: str) -> bool:
    """Tell whether a glob could cover a text with that beginning."""
    return glob.head.startswith(beginning) or (
        glob.has_wildcard and beginning.startswith(glob.head)
    )


def _common(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """Return globs that cover what both sides do, as far as globs can express it; never more."""
    found: dict[str, None] = {}
    for one in theirs:
        if any(covers(mine, one) for mine in ours):
            found[one] = None
        else:
            found |= dict.fromkeys(mine for mine in ours if covers(one, mine))
    return tuple(found)


SUPERVISOR = Principal("supervisor", "daemon")
"""The daemon itself, which asks gates, and gives events to hooks."""
