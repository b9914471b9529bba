"""What is remembered of an asset, and what clients are told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from protocol.host_events import Registration

_FAMILIES = ("text/", "audio/", "video/")
_TYPES = frozenset(
    {
        "image/png",
        "image/jpeg",
        "image/gif",
        "image/webp",
        "image/svg+xml",
        "application/json",
        "application/pdf",
    }
)


class AssetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One registered asset; `asset` is our id for it, `asset_id` the module's own."""

    asset: str
    asset_id: str
    module: str
    op: str
    request_id: str
    session_id: str | None = None
    span_id: str | None = None
    owner: str | None = None
    """The owner (`parties.Origin.owner`); None of an asset from before there were owners."""
    kind: str
    media_type: str
    supported: bool
    path: str
    real_path: str
    size: int
    mtime_ns: int
    sha256: str | None = None
    copied: bool = False
    """Whether the store has a copy, by its digest."""
    problem: str | None = None
    """Why there is no digest, if there will be none."""
    metadata: dict[str, Any] | None = None
    ts: float
    """Unix time (s) of its registration."""

    @property
    def uri(self) -> str:
        return Path(self.path).as_uri()

    @property
    def placeholder(self) -> str | None:
        """Return a text to show in place of a file that cannot be shown."""
        if self.supported:
            return None
        return (
            f"[{self.asset_id}: {self.kind}, {self.media_type}, {self.size} bytes; "
            "there is nothing here that shows this type]"
        )

    def registration(self) -> Registration:
        placeholder = self.placeholder
        return Registration(
            self.asset,
            self.size,
            self.sha256,
            self.supported,
            UNSET if placeholder is None else placeholder,
        )

    def shown(self, *, whole: bool) -> dict[str, Any]:
        """Return the asset as the ops show it; the metadata only if `whole`."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        document["placeholder"] = self.placeholder
        if not whole:
            del document["metadata"]
        return document


def is_supported(media_type: str) -> bool:
    """Tell whether programs at hand usually show such a file; parameters do not count."""
    name = media_type.partition(";")[0].strip().lower()
    return name.startswith(_FAMILIES) or name in _TYPES
