"""Whether a module is who its descriptor says."""

from __future__ import annotations

from typing import Any

import structlog

from protocol.descriptor import Descriptor

log = structlog.get_logger()


def misfit_of(description: dict[str, Any], descriptor: Descriptor) -> str | None:
    """Say, as a clause without its name, how a module differs from its descriptor.

    What it has beyond the capabilities of its descriptor it is not granted; that is no misfit.
    """
    for key, expected in (("name", descriptor.name), ("kind", str(descriptor.kind))):
        if description[key] != expected:
            found = description[key]
            return f"describes itself with {key} {found!r:.80}; its descriptor says {expected!r}"
    extra = sorted(set(description["capabilities"]) - set(descriptor.capabilities))
    if extra:
        log.warning(
            "capabilities beyond the descriptor are not granted",
            module=descriptor.name,
            capabilities=extra,
        )
    return None
