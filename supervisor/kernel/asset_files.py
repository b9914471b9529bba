"""The rule for assets that needs the file system: the path is readable (Spec 001 4.3)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from protocol.connection import Notice
from protocol.events import Asset


def resolve(asset: Asset, folder: str) -> Asset | Notice:
    """Return the asset with an absolute path, or why it is refused.

    A relative path starts from `folder`, where the module runs. The file is not opened: rendering
    is deferred until somebody asks (Spec 001 4.3).
    """
    path = Path(folder, asset.path)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        return _refused(asset, f"{asset.path!r:.200} cannot be read: {words}")
    if not stat.S_ISREG(mode):
        return _refused(asset, f"{asset.path!r:.200} is no regular file")
    if not os.access(path, os.R_OK):
        return _refused(asset, f"{asset.path!r:.200} may not be read by the daemon")
    return msgspec.structs.replace(asset, path=str(path))


def _refused(asset: Asset, words: str) -> Notice:
    return Notice("unreadable_path", f"asset {asset.asset_id!r:.80}: {words}")
