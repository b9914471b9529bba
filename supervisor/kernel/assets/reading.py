"""Give somebody the path of an asset's file, after a look whether it is still that file.

The file itself comes first, since its name says what it is; a copy stands in for one that is gone
or has changed. A digest has the last word: where there is one, and the file is not too large to be
read again, a file that was only touched is still the same.
"""

from __future__ import annotations

from typing import Any

from protocol.errors import Failure, Reason
from supervisor.kernel.assets.checks import DIGEST_BYTES, AssetChecks
from supervisor.kernel.assets.files import (
    ChangedError,
    KeepOn,
    OpenFile,
    UnreadableError,
    digest,
    opened,
)
from supervisor.kernel.assets.record import AssetRecord
from supervisor.kernel.parties import RefusedError

READ_CHECK_S = 10.0
"""How long whoever asks waits for the look at a file."""


async def read_asset(record: AssetRecord, checks: AssetChecks) -> dict[str, Any]:
    """Return `asset`, `path`, `copy` and what was `verified`; raises `RefusedError`."""
    copy = str(checks.store.path(record.sha256)) if record.copied and record.sha256 else None

    def work(keep_on: KeepOn) -> dict[str, Any]:
        return _read(record, copy, keep_on)

    found = await checks.in_thread(record.module, READ_CHECK_S, work)
    if found is None:
        words = f"the file of asset {record.asset} could not be looked at in {READ_CHECK_S:g} s"
        found = {"changed": {"file": words}}
    if "changed" not in found:
        return {"asset": record.asset, "media_type": record.media_type, **found}
    changed: dict[str, str] = found["changed"]
    words = f"asset {record.asset} is not what it was: {'; '.join(changed.values())}"
    raise RefusedError(
        Failure.because(Reason.ASSET_CHANGED, words, path=record.path, changed=changed)
    )


def _read(record: AssetRecord, copy: str | None, keep_on: KeepOn) -> dict[str, Any]:
    changed, verified = _compare(record, record.path, record.real_path, keep_on)
    if not changed:
        return {"path": record.path, "copy": copy, "verified": verified}
    if copy is not None:
        changed_copy, verified = _compare(record, copy, None, keep_on)
        if not changed_copy:
            return {"path": copy, "copy": copy, "verified": verified, "original": changed}
        changed["copy"] = f"its copy: {'; '.join(changed_copy.values())}"
    return {"changed": changed}


def _compare(
    record: AssetRecord, path: str, real_path: str | None, keep_on: KeepOn
) -> tuple[dict[str, str], list[str]]:
    """Return what differs, in words, and what was compared; a copy has no `real_path`."""
    try:
        with opened(path, "/") as file:
            if real_path is not None and file.real_path != real_path:
                words = f"its path now leads to {file.real_path!r:.200}, it was {real_path!r:.200}"
                return {"link": words}, []
            if file.size != record.size:
                return {"size": f"it has {file.size} bytes, it had {record.size}"}, []
            return _compare_content(record, file, keep_on, original=real_path is not None)
    except UnreadableError as error:
        return {"file": str(error)}, []


def _compare_content(
    record: AssetRecord, file: OpenFile, keep_on: KeepOn, *, original: bool
) -> tuple[dict[str, str], list[str]]:
    touched = original and file.mtime_ns != record.mtime_ns
    if record.sha256 is not None and (file.size <= DIGEST_BYTES or touched):
        try:
            sha256 = digest(file, keep_on)
        except ChangedError:
            return {"content": "it is being written to"}, []
        if sha256 == record.sha256:
            return {}, ["size", "sha256"]
        if sha256 is not None:
            return {"sha256": f"its SHA-256 is {sha256}, it was {record.sha256}"}, []
    if touched:
        return {"mtime": "it was written to since"}, []
    return {}, ["size", "mtime"] if original else ["size"]
