"""The meaning of an answer to a question: allowed, denied, or no answer to it.

Rules that live here, and nowhere else:

- `allow` and `deny` answer every question; else it is one of its options, in any case;
- an option allows only if its first word is one of `ALLOWING`: whatever else it says, it denies;
- where answers can be remembered, one is if its last word is `ALWAYS`.
"""

from __future__ import annotations

from collections.abc import Iterable

OPTIONS = 16
OPTION_CHARS = 100
"""More options, or longer ones, are no choice for a person."""

ALLOW = "allow"
DENY = "deny"
ALLOWING = (ALLOW, "approve", "yes")
ALWAYS = "always"


def options_of(options: Iterable[str] | None) -> tuple[str, ...]:
    given = tuple(one[:OPTION_CHARS] for one in tuple(options or ())[:OPTIONS])
    return given or (ALLOW, DENY)


def allows(answer: str, options: Iterable[str]) -> bool | None:
    """Tell whether an answer allows; None if it is no answer to the question."""
    said = answer.strip().casefold()
    if said in (ALLOW, DENY):
        return said == ALLOW
    if said not in {one.strip().casefold() for one in options}:
        return None
    words = _words(said)
    return bool(words) and words[0] in ALLOWING


def is_lasting(answer: str) -> bool:
    return _words(answer.casefold())[-1:] == [ALWAYS]


def _words(answer: str) -> list[str]:
    return answer.replace(",", " ").split()
