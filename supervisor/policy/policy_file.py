"""Read the operator's policy file: text to `Policy`, or to words about its faults.

Wrong types, modes, keys and syntax are errors. Entries that contradict each other are findings:
their effect is well-defined, since deny beats allow, but the operator meant something else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from protocol.problem import did_you_mean, quoted
from supervisor.policy.capabilities import (
    INVOKE,
    WILDCARD,
    ListEntry,
    Mode,
    Policy,
    Rules,
    covers,
    operation,
    unknown_capability,
)
from supervisor.policy.toml_document import NotTomlError, Place, Remark, key_text, read_toml, told

MAX_ENTRIES = 1000
"""In all lists together: each decision may look at all of them, in a fraction of a millisecond."""

MAX_TOLD = 100
"""More problems and findings are left out; nobody reads the second hundred."""

_SCOPE_KEYS = ("mode", "allow", "deny")
_KEYS = (*_SCOPE_KEYS, "modules", "$schema")
_MODES = ", ".join(quoted(mode) for mode in Mode)
_LIST = 'an array of capabilities such as ["log", "session.*"]'
_TYPES: tuple[tuple[type, str], ...] = (
    (str, "a string"),
    (bool, "a boolean"),
    (int, "a number"),
    (float, "a number"),
    (list, "an array"),
    (dict, "a table"),
)


class PolicyError(Exception):
    """A policy file that cannot be used; its text is one line per problem: `FILE: KEY: ...`."""

    def __init__(self, source: str, problems: tuple[Remark, ...]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(told(self.source, problem) for problem in self.problems)


class PolicyFile(msgspec.Struct, frozen=True):
    policy: Policy
    findings: tuple[Remark, ...] = ()


def parse_policy(text: str, source: str) -> PolicyFile:
    """Parse and check a policy; `source` is the path its text was read from.

    Raises `PolicyError` with everything that is wrong, and nothing else.
    """
    try:
        document = read_toml(text)
    except NotTomlError as error:
        raise PolicyError(source, (error.remark,)) from None
    reading = _Reading()
    policy = reading.policy(document, source)
    if reading.problems:
        raise PolicyError(source, tuple(reading.problems[:MAX_TOLD]))
    return PolicyFile(policy, tuple(islice(_findings(policy), MAX_TOLD)))


def unknown_modules(found: PolicyFile, known: Iterable[str]) -> tuple[Remark, ...]:
    """Return a finding for each table of rules and each entry that names an unknown module."""
    names = set(known)
    remarks = [
        Remark(f"{key_text(('modules', name))}: no module has this name{did_you_mean(name, names)}")
        for name in found.policy.modules
        if name not in names
    ]
    callable_names = sorted(operation(name) for name in names)
    for entries in _lists(found.policy):
        for entry in entries:
            method, colon, target = entry.text.partition(":")
            if method != INVOKE or not colon or _meets(target, callable_names):
                continue
            near = did_you_mean(target.partition(".")[0], callable_names)
            words = f"{quoted(entry.text)} is about no module there is{near}"
            remarks.append(Remark(f"{entry.key}: {words}"))
    return tuple(remarks[:MAX_TOLD])


def _meets(target: str, names: Sequence[str]) -> bool:
    """Tell whether MODULE or MODULE.OP, with wildcards, could match one of the sorted names."""
    head, wildcard, _ = target.partition(WILDCARD)
    module, dot, _ = head.partition(".")
    at = bisect_left(names, module)
    if at == len(names):
        return False
    return names[at] == module or (bool(wildcard) and not dot and names[at].startswith(module))


class _Reading:
    def __init__(self) -> None:
        self.problems: list[Remark] = []
        self._entries = 0

    def policy(self, document: dict[str, Any], source: str) -> Policy:
        self._unknown_keys((), document, _KEYS)
        everywhere = self._rules((), document)
        modules: dict[str, Rules] = {}
        tables = document.get("modules", {})
        if not isinstance(tables, dict):
            self._wrong(("modules",), tables, "tables such as [modules.orchestrator]")
            tables = {}
        for name, table in tables.items():
            place = ("modules", name)
            if isinstance(table, dict):
                self._unknown_keys(place, table, _SCOPE_KEYS)
                modules[name] = self._rules(place, table)
            else:
                self._wrong(place, table, "a table with mode, allow and deny")
        return Policy(source=source, everywhere=everywhere, modules=modules)

    def _rules(self, at: Place, table: dict[str, Any]) -> Rules:
        mode = table.get("mode")
        known = tuple(Mode)
        if mode is not None and mode not in known:
            hint = did_you_mean(mode, known) if isinstance(mode, str) else ""
            self._wrong((*at, "mode"), mode, f"one of {_MODES}{hint}")
            mode = None
        return Rules(
            mode=None if mode is None else Mode(mode),
            mode_key=None if mode is None else key_text((*at, "mode")),
            allow=self._list((*at, "allow"), table.get("allow", [])),
            deny=self._list((*at, "deny"), table.get("deny", [])),
        )

    def _list(self, at: Place, value: Any) -> tuple[ListEntry, ...]:
        if not isinstance(value, list):
            self._wrong(at, value, _LIST)
            return ()
        before, self._entries = self._entries, self._entries + len(value)
        if before <= MAX_ENTRIES < self._entries:
            self._say(
                at, f"makes more than {MAX_ENTRIES} entries in this file, the most there may be"
            )
        entries = []
        for index, text in enumerate(value):
            place = (*at, index)
            if isinstance(text, str) and text:
                entries.append(ListEntry(text, key_text(place)))
            else:
                self._wrong(place, text, 'a capability such as "module.invoke:kv.get"')
        return tuple(entries)

    def _unknown_keys(self, at: Place, table: dict[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                hint = did_you_mean(key, known) or f"; known are {', '.join(known)}"
                self._say((*at, key), f"unknown key{hint}")

    def _wrong(self, at: Place, value: Any, want: str) -> None:
        shown = quoted(value) if isinstance(value, str) else _kind(value)
        self._say(at, f"is {shown}, must be {want}")

    def _say(self, at: Place, message: str) -> None:
        self.problems.append(Remark(f"{key_text(at)}: {message}"))


def _kind(value: Any) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "a date or time")


def _findings(policy: Policy) -> Iterator[Remark]:
    everywhere = policy.everywhere
    yield from _never(everywhere.allow, everywhere.deny)
    for rules in policy.modules.values():
        yield from _never(rules.allow, (*rules.deny, *everywhere.deny))
    for entries in _lists(policy):
        for entry in entries:
            if (words := unknown_capability(entry.text)) is not None:
                yield Remark(f"{entry.key}: {words}")


def _lists(policy: Policy) -> Iterator[tuple[ListEntry, ...]]:
    for rules in (policy.everywhere, *policy.modules.values()):
        yield rules.allow
        yield rules.deny


def _never(allow: Iterable[ListEntry], deny: Sequence[ListEntry]) -> Iterator[Remark]:
    """Find the entries of an allow list that a deny entry covers completely."""
    for allowed in allow:
        denied = next((one for one in deny if covers(one.text, allowed.text)), None)
        if denied is not None:
            yield Remark(
                f"{allowed.key}: {quoted(allowed.text)} never applies: {denied.key} is "
                f"{quoted(denied.text)}, and deny beats allow"
            )
