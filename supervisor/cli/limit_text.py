"""Write a limit that was passed: what was used of what is allowed."""

from __future__ import annotations

from typing import Any

from supervisor.cli.quantities import size


def limit_text(limit: dict[str, Any]) -> str:
    """Write `last_exit.limit`, or `details.limit` of a failure: memory 412.0 MiB of 256.0 MiB."""
    name, used, allowed = limit["limit"], limit["used"], limit["allowed"]
    match name:
        case "memory_bytes":
            return f"memory {size(used)} of {size(allowed)}"
        case "memory_ceiling_bytes":
            share = limit.get("share")
            own = "" if share is None else f", {size(share)} of it this one's"
            return f"memory of all modules {size(used)} of {size(allowed)}{own}"
        case _:
            return f"{name} {used} of {allowed}"
