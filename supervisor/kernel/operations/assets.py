"""The ops about assets: `asset.list`, `asset.show`, `asset.read`, `asset.content`.

The last two give a client the path of an asset's file, or its bytes, after a check that the file is
the same. The file itself comes first, since its name says what it is; a copy stands in for a file
that is gone or has changed. A digest decides: where there is one, and the file is not too large to
be read again, a file that was only touched is still the same.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from protocol.errors import Reason
from supervisor.kernel.assets.files import (
    DIGEST_BYTES,
    AssetChecks,
    AssetFileError,
    ChangedError,
    KeepOn,
    OpenFile,
    digest,
    opened,
)
from supervisor.kernel.assets.registry import AssetRecord
from supervisor.kernel.operations.op import (
    Args,
    ModuleName,
    Natural,
    OwnRequest,
    Positive,
    Word,
    op,
)
from supervisor.kernel.parties import DAEMON, Provenance, RefusedError, or_refused
from supervisor.policy.principals import Scope

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

LISTED = 1000
"""The most assets in a list: the newest ones."""

PIECE_BYTES = 1 << 18
"""Bytes per read, and per event."""

READ_CHECK_S = 10.0
"""The longest a client waits for the look at a file."""


class AssetListArgs(Args):
    session_id: Word | None = None
    module: ModuleName | None = None
    request_id: Word | None = None


class AssetArgs(Args):
    asset: Annotated[
        Word, "an asset's id, its beginning, or the module's own assetId (the newest of it)"
    ]


class AssetContentArgs(AssetArgs):
    offset: Natural = 0
    length: Annotated[Positive | None, "all that follows if left out"] = None
    last: Annotated[Positive | None, "the last ones, in place of both"] = None

    def within(self, size: int) -> tuple[int, int]:
        """Return the offset and the length; raises `RefusedError` if that is beyond the end."""
        if self.last is not None:
            length = min(self.last, size)
            return size - length, length
        if self.offset > size or (self.offset == size and size):
            words = f"the asset has {size} bytes: there is none from {self.offset} on"
            raise RefusedError.because(Reason.BEYOND_END, words, size=size)
        left = size - self.offset
        return self.offset, left if self.length is None else min(self.length, left)


@op("asset.list", Scope.READ, AssetListArgs)
async def list_assets(kernel: Kernel, args: AssetListArgs, request: OwnRequest) -> dict[str, Any]:
    assets = kernel.effects.assets
    given = {key: one for key, one in msgspec.structs.asdict(args).items() if one is not None}
    found = await assets.select(request.principal, **given)
    shown = found[-LISTED:]
    return {
        "assets": [one.shown(whole=False) for one in shown],
        "left_out": len(found) - len(shown),
        "forgotten": assets.forgotten,
    }


@op("asset.show", Scope.READ, AssetArgs)
async def show_asset(kernel: Kernel, args: AssetArgs, request: OwnRequest) -> dict[str, Any]:
    found = await kernel.effects.assets.find(args.asset, request.principal)
    return found.shown(whole=True)


@op("asset.read", Scope.READ, AssetArgs)
async def read_asset(kernel: Kernel, args: AssetArgs, request: OwnRequest) -> dict[str, Any]:
    """Return `asset`, `path`, `copy` and what was `verified`."""
    async with _noted(kernel, args, request) as record:
        found, _ = await _looked_at(record, kernel.effects.assets.checks)
        return {"asset": record.asset, "media_type": record.media_type, **found}


@op("asset.content", Scope.READ, AssetContentArgs)
async def send_asset(kernel: Kernel, args: AssetContentArgs, request: OwnRequest) -> dict[str, Any]:
    """Emit the size and the offset, then the bytes.

    The file is opened for each piece, so that none stays open for a client that does not read; it
    has to be the one that was looked at.
    """
    checks = kernel.effects.assets.checks
    async with _noted(kernel, args, request) as record:
        found, seen = await _looked_at(record, checks)
        offset, length = args.within(record.size)
        known = {
            "asset": record.asset,
            "media_type": record.media_type,
            "size": record.size,
            "sha256": record.sha256,
            "offset": offset,
            "length": length,
        }
        await request.say(f"{length} bytes of {record.asset}", known)
        end = offset + length
        while offset < end:
            size = min(PIECE_BYTES, end - offset)
            piece = await _piece(record, checks, seen, offset, size)
            if len(piece) != size:
                raise _changed(record, {"file": "it was written to while it was read"})
            await request.say(f"{size} bytes", {"offset": offset, "data": piece})
            offset += size
        return {**known, "verified": found["verified"]}


@asynccontextmanager
async def _noted(
    kernel: Kernel, args: AssetArgs, request: OwnRequest
) -> AsyncIterator[AssetRecord]:
    """Give the asset that is read, and note the read in the journal.

    Its origin is the principal, in the session that was named with the op.
    """
    assets, principal, session_id = kernel.effects.assets, request.principal, request.session_id
    if session_id is not None:
        or_refused(kernel.sessions.find(session_id, principal))
    request_id = kernel.host.next_request_id()
    reader = Provenance(DAEMON, request.what, request_id, session_id, by=principal.by)
    record = await assets.find(args.asset, principal)
    try:
        yield record
    except RefusedError as error:
        assets.note_read(record, error.failure, reader)
        raise
    assets.note_read(record, None, reader)


async def _piece(
    record: AssetRecord, checks: AssetChecks, seen: OpenFile, offset: int, size: int
) -> bytes:
    def work(keep_on: KeepOn) -> bytes:
        del keep_on
        try:
            with opened(seen.real_path, "/") as file:
                same = (file.real_path, file.size, file.mtime_ns)
                if same != (seen.real_path, seen.size, seen.mtime_ns):
                    return b""
                return os.pread(file.descriptor, size, offset)
        except AssetFileError:
            return b""

    return await checks.in_thread(record.module, READ_CHECK_S, work) or b""


async def _looked_at(record: AssetRecord, checks: AssetChecks) -> tuple[dict[str, Any], OpenFile]:
    copy = str(checks.store.path(record.sha256)) if record.copied and record.sha256 else None

    def work(keep_on: KeepOn) -> tuple[dict[str, Any], OpenFile | None]:
        return _read(record, copy, keep_on)

    words = f"the file of asset {record.asset} could not be looked at in {READ_CHECK_S:g} s"
    slow: tuple[dict[str, Any], OpenFile | None] = ({"file": words}, None)
    found, seen = await checks.in_thread(record.module, READ_CHECK_S, work) or slow
    if seen is None:
        raise _changed(record, found)
    return found, seen


def _changed(record: AssetRecord, changed: dict[str, Any]) -> RefusedError:
    words = f"asset {record.asset} is not what it was: {'; '.join(changed.values())}"
    return RefusedError.because(Reason.ASSET_CHANGED, words, path=record.path, changed=changed)


def _read(
    record: AssetRecord, copy: str | None, keep_on: KeepOn
) -> tuple[dict[str, Any], OpenFile | None]:
    """Return the location and the file as it was seen, closed by now; or what has changed."""
    changed, verified, seen = _compare(record, record.path, record.real_path, keep_on)
    if not changed:
        return {"path": record.path, "copy": copy, "verified": verified}, seen
    if copy is not None:
        changed_copy, verified, seen = _compare(record, copy, None, keep_on)
        if not changed_copy:
            found = {"path": copy, "copy": copy, "verified": verified, "original": changed}
            return found, seen
        changed["copy"] = f"its copy: {'; '.join(changed_copy.values())}"
    return changed, None


def _compare(
    record: AssetRecord, path: str, real_path: str | None, keep_on: KeepOn
) -> tuple[dict[str, str], list[str], OpenFile | None]:
    """Return the differences, what was compared, and the file; a copy has no `real_path`."""
    try:
        with opened(path, "/") as file:
            if real_path is not None and file.real_path != real_path:
                words = f"its path now leads to {file.real_path!r:.200}, it was {real_path!r:.200}"
                return {"link": words}, [], None
            if file.size != record.size:
                return {"size": f"it has {file.size} bytes, it had {record.size}"}, [], None
            original = real_path is not None
            return *_compare_content(record, file, keep_on, original=original), file
    except AssetFileError as error:
        return {"file": str(error)}, [], None


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
