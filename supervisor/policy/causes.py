"""The words of causes that name other modules, and what a reader sees of them.

A module waits for those that it depends on, so what happens to it is often because of another one.
A reader who may not see that one reads that there is one, without its name and what became of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervisor.policy.principals import Principal


def got_ready(names: Iterable[str]) -> str:
    return f"{', '.join(names)} got ready"


def is_needed(dependant: str) -> str:
    return f"{dependant} depends on it"


def went(name: str, before: str, after: str, cause: str) -> str:
    return f"{name}, which it depends on, went from {before} to {after}: {cause}"


_ANOTHER = "another module"
_STATES = r"(?P<states>(?:this instance: )?[a-z_]+ -> [a-z_]+: )?"
_GOT_READY = re.compile(rf"{_STATES}(?P<names>.+) got ready", re.DOTALL)
_IS_NEEDED = re.compile(rf"{_STATES}(?P<name>.+) depends on it", re.DOTALL)
_WENT = re.compile(
    r"(?P<name>.+?), which it depends on, (?P<went>went from [a-z_]+ to [a-z_]+): (?P<cause>.*)",
    re.DOTALL,
)
_NAMES = re.compile(r"depends_on names (?P<quoted>'[^']*'|\"[^\"]*\"),")
_CIRCLE = re.compile(r"depends_on goes in a circle: (?P<names>.* -> .*)", re.DOTALL)


def seen_cause(words: str, principal: Principal) -> str:
    """Return the words without names of modules that a principal may not see.

    `words` are a cause, a line of the host's in a module's log, or why a descriptor is not used.
    """
    if principal.covers_all():
        return words
    if match := _WENT.fullmatch(words):
        if not principal.sees(match["name"]):
            return f"a module that it depends on {match['went']}"
        at = match.start("cause")
        return words[:at] + seen_cause(match["cause"], principal)
    if match := _GOT_READY.fullmatch(words):
        names = match["names"].split(", ")
        seen = [one for one in names if principal.sees(one)]
        others = [_ANOTHER] if len(seen) < len(names) else []
        return (match["states"] or "") + got_ready([*seen, *others])
    if (match := _IS_NEEDED.fullmatch(words)) and not principal.sees(match["name"]):
        return (match["states"] or "") + is_needed(_ANOTHER)
    if (match := _NAMES.search(words)) and not principal.sees(match["quoted"][1:-1]):
        return words[: match.start("quoted")] + _ANOTHER + words[match.end("quoted") :]
    if match := _CIRCLE.search(words):
        names = [one if principal.sees(one) else _ANOTHER for one in match["names"].split(" -> ")]
        return words[: match.start("names")] + " -> ".join(names)
    return words
