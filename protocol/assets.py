"""The rules for `asset` events that need no file system (Spec 001 4.3)."""

from __future__ import annotations

from protocol.connection import Notice
from protocol.events import Asset
from protocol.media_type import is_media_type

ASSETS_PER_REQUEST = 10_000
"""Ids are remembered to find duplicates; a bound keeps a flood of them from growing memory."""


class AssetRules:
    """Check the assets of one request: ids unique, media types valid."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def refusal(self, asset: Asset) -> Notice | None:
        """Return why the asset is refused, or None after taking note of its id."""
        if not is_media_type(asset.media_type):
            return Notice(
                "bad_media_type",
                f"asset {asset.asset_id!r:.80}: {asset.media_type!r:.80} is no MIME type such as "
                '"image/png"',
            )
        if asset.asset_id in self._seen:
            return Notice(
                "duplicate_asset",
                f"asset id {asset.asset_id!r:.80} was used in this request before",
            )
        if len(self._seen) >= ASSETS_PER_REQUEST:
            return Notice(
                "too_many_assets", f"a request may have {ASSETS_PER_REQUEST} assets at the most"
            )
        self._seen.add(asset.asset_id)
        return None
