"""The decision whether a module may make a call to its host, with the rule that made it.

The rules are tried from the top; the first that applies decides:

1. the descriptor does not list the capability: denied;
2. a `deny` entry covers it, the module's own or the global one: denied;
3. an `allow` entry covers it, the module's own, then the global one: allowed;
4. the module's `mode`, else the global one: `strict` denies, `permissive` allows, `prompt` asks.

A capability is `METHOD` or `METHOD:SCOPE`, made here from what is asked for, never taken from the
module. An entry covers the capability that is equal to it and all below it, where a level begins
with "." or ":"; `*` in an entry stands for any characters, levels included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from urllib.parse import unquote

import msgspec

from protocol.problem import nearest, quoted

INVOKE = "module.invoke"
SESSION_READ = "session.read"
SESSION_WRITE = "session.write"
EMIT = "event.emit"
LOG = "log"
ROOTS = "roots.list"
USER_ASK = "user.ask"
SAMPLE = "model.sample"
METHODS = (INVOKE, SESSION_READ, SESSION_WRITE, EMIT, LOG, ROOTS, USER_ASK, SAMPLE)

WILDCARD = "*"
_LEVELS = (".", ":")


def operation(module: str, op: str | None = None) -> str:
    """Return `MODULE`, or `MODULE.OP`; "%", "." and ":" in the module's name as in a URL.

    Otherwise, what is allowed for `kv` would be allowed for another module named
    `kv.secret`.
    """
    for char in ("%", *_LEVELS):
        module = module.replace(char, f"%{ord(char):02X}")
    return module if op is None else f"{module}.{op}"


def invoke_capability(module: str, op: str) -> str:
    return f"{INVOKE}:{operation(module, op)}"


def emit_capability(event: str) -> str:
    return f"{EMIT}:{event}"


def sample_capability(module: str) -> str:
    return f"{SAMPLE}:{operation(module)}"


class Glob(msgspec.Struct, frozen=True):
    head: str
    inner: tuple[str, ...]
    last: str
    last_of_level: tuple[str, ...]
    """`last`, with each character that may follow it."""
    has_wildcard: bool
    length: int
    """The length of the shortest capability that it covers."""

    @classmethod
    def of(cls, entry: str) -> Glob:
        head, *parts = entry.split(WILDCARD)
        *inner, last = parts or [""]
        of_level = tuple(f"{last}{level}" for level in _LEVELS)
        return cls(head, tuple(inner), last, of_level, bool(parts), len(entry) - len(parts))

    def covers(self, capability: str) -> bool:
        if len(capability) < self.length or not capability.startswith(self.head):
            return False
        at = len(self.head)
        if not self.has_wildcard:
            return at == len(capability) or capability[at] in _LEVELS
        # The leftmost place of each part is enough: it leaves the most for the rest. Not a regular
        # expression, since the names in a capability are the module's and may be made to be slow.
        for part in self.inner:
            at = capability.find(part, at)
            if at < 0:
                return False
            at += len(part)
        # One search first: most entries do not match, and a thousand of them may be tried.
        if capability.find(self.last, at) < 0:
            return False
        if capability.endswith(self.last, at):
            return True
        return any(capability.find(of_level, at) >= 0 for of_level in self.last_of_level)


def covers(entry: str, capability: str) -> bool:
    """Tell whether an entry covers a capability.

    If both are entries: whether the first covers everything that the second covers; a "yes" is
    always right, since a `*` of the second can only be matched by one of the first.
    """
    return Glob.of(entry).covers(capability)


def is_about_a_method(entry: str) -> bool:
    """Tell whether an entry covers anything that a module can ask the host for."""
    return any(covers(entry, one) or covers(one, entry) for one in METHODS)


def unknown_capability(entry: str, *, misspelt: bool = False) -> str | None:
    """Say that a capability is none that a module can ask for, with the nearest one; None if it is.

    A descriptor may name a capability that its host does not grant, such as "fs.read": only a
    `misspelt` name is reported then.
    """
    if misspelt and entry.startswith(f"{EMIT}:") and (plain := unquote(entry)) != entry:
        return f"{quoted(entry)}: the name of an event is written as it is: {quoted(plain)}"
    if is_about_a_method(entry):
        return None
    method = entry.partition(":")[0]
    meant = nearest(method, METHODS, 0.7)  # "fs.read" is no "session.read"
    if misspelt and meant is None:
        return None
    hint = f"known are {', '.join(METHODS)}"
    if meant is not None:
        hint = f"did you mean {quoted(meant + entry[len(method) :])}?"
    return f"{quoted(entry)} is an unknown capability, for which nothing is granted; {hint}"


class Mode(StrEnum):
    """The decision on a capability that no entry covers."""

    STRICT = "strict"
    PROMPT = "prompt"
    PERMISSIVE = "permissive"


class Authorization(StrEnum):
    ALLOWED = "allowed"
    DENIED = "denied"
    ASK = "ask"


_VERDICTS = {
    Mode.STRICT: Authorization.DENIED,
    Mode.PROMPT: Authorization.ASK,
    Mode.PERMISSIVE: Authorization.ALLOWED,
}


class ListEntry(msgspec.Struct, frozen=True):
    """An entry of a list, and its key path in the file, such as `modules.kv.allow[0]`."""

    text: str
    key: str


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    mode: Mode | None = None
    mode_key: str | None = None
    allow: tuple[ListEntry, ...] = ()
    deny: tuple[ListEntry, ...] = ()


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    source: str | None = None
    everywhere: Rules = Rules()
    modules: Mapping[str, Rules] = {}


class RulePlace(StrEnum):
    DESCRIPTOR = "descriptor"
    DENY = "deny"
    ALLOW = "allow"
    MODE = "mode"


class RuleMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The rule that decided.

    `module` is None for a global one, `entry` is the text in the list or the mode, `key` its key
    path; `file` and `key` are None for a mode that is the default.
    """

    source: RulePlace
    module: str | None = None
    entry: str | None = None
    file: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        """Return one line, such as `policy.toml: deny[0] "log"`."""
        if self.source is RulePlace.DESCRIPTOR:
            return "the descriptor's capabilities do not list it"
        said = quoted(self.entry or "")
        if self.key is None:
            return f"{self.source} {said}, the default"
        return f"{self.file}: {self.key} {said}"


class Decision(msgspec.Struct, frozen=True):
    verdict: Authorization
    module: str
    capability: str
    rule: RuleMatch


def decide(policy: Policy, module: str, declared: Iterable[str], capability: str) -> Decision:
    """Decide by the rules at the top; `declared` are the capabilities in the descriptor."""
    if not any(covers(entry, capability) for entry in declared):
        rule = RuleMatch(source=RulePlace.DESCRIPTOR, module=module)
        return Decision(Authorization.DENIED, module, capability, rule)
    own = policy.modules.get(module, Rules())
    for source, verdict in (
        (RulePlace.DENY, Authorization.DENIED),
        (RulePlace.ALLOW, Authorization.ALLOWED),
    ):
        for scope, rules in ((module, own), (None, policy.everywhere)):
            for entry in rules.deny if source is RulePlace.DENY else rules.allow:
                if covers(entry.text, capability):
                    rule = RuleMatch(
                        source=source,
                        module=scope,
                        entry=entry.text,
                        file=policy.source,
                        key=entry.key,
                    )
                    return Decision(verdict, module, capability, rule)
    scope, rules = (None, policy.everywhere) if own.mode is None else (module, own)
    mode = rules.mode or Mode.STRICT
    rule = RuleMatch(
        source=RulePlace.MODE, module=scope, entry=mode, file=policy.source, key=rules.mode_key
    )
    return Decision(_VERDICTS[mode], module, capability, rule)


def remedy(policy: Policy, decision: Decision, descriptor: str) -> str | None:
    """Say what to write in which file to allow it; `descriptor` is the module's file."""
    module, rule, capability = decision.module, decision.rule, decision.capability
    if decision.verdict is Authorization.ALLOWED:
        return None
    if (words := unknown_capability(capability)) is not None:
        return words
    if rule.source is RulePlace.DESCRIPTOR:
        words = f'add {quoted(capability)} to "capabilities" in {descriptor}'
        more = remedy(policy, decide(policy, module, (capability,), capability), descriptor)
        return words if more is None else f"{words}; {more}"
    if rule.source is RulePlace.DENY:
        deny = (rule.key or "").rpartition("[")[0]
        return f"take {quoted(rule.entry or '')} out of `{deny}` in {rule.file}"
    if policy.source is None:
        return f"put `allow = [{quoted(capability)}]` in a file, then `stdiod up DIR --policy FILE`"
    where = f"`allow` of `[modules.{quoted(module)}]` in {policy.source}"
    return f"add {quoted(capability)} to {where}, then `stdiod reload`"
