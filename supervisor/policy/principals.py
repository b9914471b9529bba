"""Who asks, and what they may do: a value with its decisions, and no state.

A principal may do what is of a scope that it has, to modules that its globs cover. No scope holds
another one: `admin` alone may not invoke. A glob is about a module, `kv`, or about ops of it,
`kv.get`, `kv.get*`; what is about a module is about all its ops too. It is an entry as in a policy
(`capabilities.covers`): `*` stands for any characters and nothing else is special, and "%", "." and
":" in a module's name are written as in a URL, so that `kv.get` is never a module of that name.

What belongs to somebody does so by name, and a name is one party's: a user of the machine has the
bare name, in which there is no colon (passwd(5)); `token:` and `module:` stand before the others.

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
"""The globs that cover each module."""

GLOBS = 50
"""How many somebody may have: each request is held against them, and in `narrow` each against each,
which takes up to 10 ms."""

GLOB_CHARS = 300

WILDCARDS = 4
"""How many `*` a glob may have: it is searched for what stands between them."""


class Scope(StrEnum):
    """What kind of thing somebody may do: look, use, change how the daemon and modules run."""

    READ = "read"
    INVOKE = "invoke"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)


def token_name(name: str) -> str:
    """Return as whom somebody asks who came in with a token of that name."""
    return f"token:{name}"


def module_name(name: str) -> str:
    """Return as whom a module asks on its own account."""
    return f"module:{name}"


def is_user(name: str) -> bool:
    """Tell whether who has that name is a user of this machine."""
    return ":" not in name


class Principal(msgspec.Struct, frozen=True):
    """Somebody who asks through a face; equal ones are the same."""

    name: str
    face: str
    scopes: frozenset[Scope] = ALL_SCOPES
    modules: tuple[str, ...] = EVERYTHING
    is_full: bool = False
    """Whether there is nothing that it may not do; made from the rest, and looked at first."""
    by: msgspec.Raw = msgspec.Raw(b"null")
    """Its name and face as JSON, for the journal: made once, and not for each entry."""
    globs: tuple[Glob, ...] = ()
    """`modules`, taken apart: each module that there is may be held against them."""

    def __post_init__(self) -> None:
        """Make what follows from the rest."""
        everything = any(covers_all(glob) for glob in self.modules)
        said = {"name": _unicode(self.name), "face": self.face}
        msgspec.structs.force_setattr(self, "is_full", everything and self.scopes == ALL_SCOPES)
        msgspec.structs.force_setattr(self, "by", msgspec.Raw(msgspec.json.encode(said)))
        msgspec.structs.force_setattr(self, "globs", _globs(self.modules))

    def __hash__(self) -> int:
        """Return a number that equal ones share."""
        return hash((self.name, self.face, self.scopes, self.modules))

    def may(self, scope: Scope, module: str | None = None, op: str | None = None) -> bool:
        """Tell whether it may do something of a scope: to a module as a whole, or by one op of it.

        Without a module it is about none of them.
        """
        if self.is_full:
            return True
        return scope in self.scopes and (module is None or self.covers(module, op))

    def covers(self, module: str, op: str | None = None) -> bool:
        """Tell whether its globs cover a module as a whole, or one op of it."""
        if self.is_full:
            return True
        subject = operation(module, op)
        return any(glob.covers(subject) for glob in self.globs)

    def covers_all(self) -> bool:
        """Tell whether its globs cover each module there may be."""
        return self.is_full or any(covers_all(glob) for glob in self.modules)

    def sees(self, module: str) -> bool:
        """Tell whether a module is there for it: at least an op of it could be covered."""
        if self.is_full:
            return True
        whole = operation(module)
        below = operation(module, "")
        return any(_reaches(glob, below) or glob.covers(whole) for glob in self.globs)

    def owns(self, owner: str | None) -> bool:
        """Tell whether what belongs to `owner` is its to see: its own, or an admin asks.

        None is nobody: what was made before owners were known.
        """
        return self.is_full or Scope.ADMIN in self.scopes or self.name == owner

    def narrowed(
        self, scopes: Iterable[Scope] | None = None, modules: Iterable[str] | None = None
    ) -> Principal:
        """Return it with no more than these scopes and globs; None leaves what it has."""
        kept = self.scopes if scopes is None else self.scopes & frozenset(scopes)
        globs = self.modules if modules is None else _common(self.modules, tuple(modules))
        return Principal(self.name, self.face, kept, globs)

    def delegated(self) -> Principal:
        """Return as whom a module asks that serves it: to invoke is what modules are granted.

        Which module and op it was granted is decided for each call (`capabilities.decide`).
        """
        return _delegated(self)

    def document(self) -> dict[str, object]:
        """Return it as clients see it."""
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
    """Tell whether a glob covers each module there may be."""
    return bool(glob) and not glob.strip(WILDCARD)


def has_few_wildcards(glob: str) -> bool:
    """Tell whether a glob is looked for quickly."""
    return glob.count(WILDCARD) <= WILDCARDS


@lru_cache(maxsize=1024)
def _globs(modules: tuple[str, ...]) -> tuple[Glob, ...]:
    return tuple(map(Glob.of, modules))


def _reaches(glob: Glob, beginning: str) -> bool:
    """Tell whether a glob could cover something with that beginning."""
    return glob.head.startswith(beginning) or (
        glob.has_wildcard and beginning.startswith(glob.head)
    )


def _common(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """Return globs that cover what both sides do, as far as globs can say it; never more."""
    found: dict[str, None] = {}
    for one in theirs:
        if any(covers(mine, one) for mine in ours):
            found[one] = None
        else:
            found |= dict.fromkeys(mine for mine in ours if covers(one, mine))
    return tuple(found)


def _unicode(name: str) -> str:
    """Return a name that can be written as JSON: a user's need not be Unicode."""
    return name.encode(errors="replace").decode()


SUPERVISOR = Principal("supervisor", "daemon")
"""The daemon itself: who asks a gate, and gives an event to a hook."""
