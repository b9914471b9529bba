"""The rules for `asset` events that need no file system (Spec 001 4.3)."""

from __future__ import annotations

import re

from protocol.connection import Notice
from protocol.events import Asset

# RFC 6838 4.2 restricted names, with RFC 2045 5.1 parameters after them.
_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&\-^_.+]{0,126}"
_WORD = r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+"
_QUOTED = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
_MEDIA_TYPE = re.compile(rf"{_NAME}/{_NAME}(?:[ \t]*;[ \t]*{_WORD}=(?:{_WORD}|{_QUOTED}))*")

LONGEST = 1024
"""No registered type comes near; a bound keeps a hostile one cheap."""


def is_media_type(text: str) -> bool:
    return len(text) <= LONGEST and _MEDIA_TYPE.fullmatch(text) is not None


ASSETS_PER_REQUEST = 10_000
"""Ids are remembered to find duplicates; a bound keeps a flood of them from growing memory."""


def asset_refusal(asset: Asset, seen: set[str]) -> Notice | None:
    """Return why an asset is refused; else add its id to those `seen` in its request."""
    if not is_media_type(asset.media_type):
        return Notice(
            "bad_media_type",
            f"asset {asset.asset_id!r:.80}: {asset.media_type!r:.80} is not a MIME type "
            'such as "image/png"',
        )
    if asset.asset_id in seen:
        return Notice(
            "duplicate_asset", f"asset id {asset.asset_id!r:.80} was used in this request before"
        )
    if len(seen) >= ASSETS_PER_REQUEST:
        return Notice("too_many_assets", f"a request may have at most {ASSETS_PER_REQUEST} assets")
    seen.add(asset.asset_id)
    return None
