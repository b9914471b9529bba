"""The words of MCP that clients, servers and the daemon's own parts have in common.

Apart from the rest, since `stdiod mcp` imports little.
"""

from __future__ import annotations

from enum import StrEnum

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The newest first; between them, nothing that is said here differs."""

BATCHES = "2025-03-26"
"""The revision that has batches."""

BATCH = 1000
"""Messages per line; each takes some 10 us."""

DISCOVER = "server/discover"
INITIALIZE = "initialize"
LISTEN = "subscriptions/listen"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"

META = "io.modelcontextprotocol/"

ROOTS, ASK, SAMPLE = "roots.list", "user.ask", "model.sample"

HOST_METHODS = {
    "roots/list": ROOTS,
    "elicitation/create": ASK,
    "sampling/createMessage": SAMPLE,
}

EXTRAS = ("experimental", "extensions")
"""The capabilities that hold other ones, which MCP does not define."""


class Era(StrEnum):
    """Whether each request carries the handshake's data, or a handshake does once."""

    MODERN = "modern"
    LEGACY = "legacy"
