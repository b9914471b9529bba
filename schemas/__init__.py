"""The JSON Schema documents of everything that crosses a wire or a file; see PROVENANCE.md.

A document's `$id` is an identifier, not an address: nothing here, or anywhere else in stdiod, ever
fetches one. References between documents resolve in a registry of these files alone.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

NAMES: tuple[str, ...] = (
    "describe-reply.v1",
    "error.v1",
    "event.v1",
    "health-reply.v1",
    "http-answers.v1",
    "invoke-reply.v1",
    "module-descriptor.v1",
    "narratoria-event.v0",
    "narratoria-input.v0",
    "plan.v1",
    "response.v1",
    "stdiod-config.v1",
    "stdiod-descriptor.v1",
    "stdiod-policy.v1",
    "transcript.v1",
)


@cache
def load(name: str) -> dict[str, Any]:
    """Return the schema document of that name, one of `NAMES`; it must not be changed.

    Raises `KeyError` for any other name.
    """
    document: dict[str, Any] = json.loads(text(name))
    return document


def text(name: str) -> str:
    """Return the document's text. Raises `KeyError` as `load` does."""
    if name not in NAMES:
        raise KeyError(name)
    return _read(f"{name}.json")


def typescript() -> str:
    """Return TypeScript types of the documents, and of HTTP's requests and answers."""
    return _read("stdiod.d.ts")


def _read(file: str) -> str:
    # Each daemon imports this package, and few read a document.
    from importlib import resources  # noqa: PLC0415

    return resources.files(__name__).joinpath(file).read_text(encoding="utf-8")
