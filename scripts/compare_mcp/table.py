"""What the comparisons have in common: a table in a page, and how far it is."""

from __future__ import annotations

import sys


def say(words: str) -> None:
    """Show how far it is."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def written_into(page: str, said: str, begin: str, end: str) -> str:
    """Return the page with another table between two marks."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{said}\n{end}{after}"
