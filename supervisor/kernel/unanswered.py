"""Say of a request whose time is over that it waited for a person: it would seem to hang else."""

from __future__ import annotations

from collections.abc import Sequence


def with_questions(words: str, questions: Sequence[str]) -> str:
    """Add to `words` which questions were open, if any, and what answers one in time."""
    if not questions:
        return words
    first, more = questions[0], len(questions) - 1
    also = f", as did {more} more" if more else ""
    return (
        f"{words}; a person was asked, and {first} ended with it{also}: `stdiod approve {first}`"
        " would have answered that, and a longer timeout_s leaves time for it"
    )
