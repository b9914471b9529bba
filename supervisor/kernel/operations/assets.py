"""The ops about assets: `asset.list`, `asset.show`, `asset.read`, `asset.content`.

The last two give a client the path of an asset's file, or its bytes, after a check that the file is
the same. The file itself comes first, since its name says what it is; a copy stands in for a file
that is gone or has changed. A digest decides: where there is one, and the file is not too large to
be read again, a file that was only touched is still the same.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

import msgspec

from protocol.errors import Reason
from protocol.events import Log
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
from supervisor.kernel.operations.op import MODULE, WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import DAEMON, Provenance, RefusedError, or_refused

LISTED = 1000
"""The most assets in a list: the newest ones."""

_ASSET = {
    **WORD,
    "description": "an asset's id, its beginning, or the module's own assetId (the newest of it)",
}


class AssetOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        "asset.list": args_schema(session_id=WORD, module=MODULE, request_id=WORD),
        "asset.show": args_schema(("asset",), asset=_ASSET),
        "asset.read": args_schema(("asset",), asset=_ASSET),
        "asset.content": args_schema(
            ("asset",),
            asset=_ASSET,
            offset={"type": "integer", "minimum": 0, "default": 0},
            length={"type": "integer", "minimum": 1, "description": "all that follows if left out"},
            last={
                "type": "integer",
                "minimum": 1,
                "description": "the last ones, in place of both",
            },
        ),
    }

    def ops(self) -> Mapping[str, Op]:
        return {
            "asset.list": self._list,
            "asset.show": self._show,
            "asset.read": self._read,
            "asset.content": self._content,
        }

    async def _list(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        found = await self._parts.effects.assets.select(asked.principal, **args)
        shown = found[-LISTED:]
        return {
            "assets": [one.shown(whole=False) for one in shown],
            "left_out": len(found) - len(shown),
            "forgotten": self._parts.effects.assets.forgotten,
        }

    async def _show(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        found = await self._parts.effects.assets.find(args["asset"], asked.principal)
        return found.shown(whole=True)

    async def _read(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        return await self._noted(
            "asset.read",
            args,
            asked,
            lambda one: read_asset(one, self._parts.effects.assets.checks),
        )

    async def _content(self, args: dict[str, Any], asked: OwnRequest) -> Any:
        wanted = {name: int(args[name]) for name in ("offset", "length", "last") if name in args}
        checks, part = self._parts.effects.assets.checks, ByteRange(**wanted)
        return await self._noted(
            "asset.content", args, asked, lambda one: send_content(one, checks, part, asked.emit)
        )

    async def _noted(
        self,
        op: str,
        args: dict[str, Any],
        asked: OwnRequest,
        read: Callable[[AssetRecord], Awaitable[dict[str, Any]]],
    ) -> Any:
        reader = self._reader(op, asked)
        record = await self._parts.effects.assets.find(args["asset"], asked.principal)
        try:
            result = await read(record)
        except RefusedError as error:
            self._parts.effects.assets.note_read(record, error.failure, reader)
            raise
        self._parts.effects.assets.note_read(record, None, reader)
        return result

    def _reader(self, op: str, asked: OwnRequest) -> Provenance:
        """Return the origin of a read: the principal, in the session that was named with the op."""
        principal, session_id = asked.principal, asked.session_id
        if session_id is not None:
            or_refused(self._parts.effects.sessions.find(session_id, principal))
        request_id = self._parts.next_request_id()
        return Provenance(DAEMON, op, request_id, session_id, by=principal.by)


PIECE_BYTES = 1 << 18
"""Bytes per read, and per event."""

READ_CHECK_S = 10.0
"""The longest a client waits for the look at a file."""


class ByteRange(msgspec.Struct, frozen=True):
    """The bytes that are wanted: `length` from `offset` on, or the `last` ones."""

    offset: int = 0
    length: int | None = None
    last: int | None = None

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


async def send_content(
    record: AssetRecord,
    checks: AssetChecks,
    part: ByteRange,
    emit: Callable[[Log], Awaitable[None]],
) -> dict[str, Any]:
    """Emit the size and the offset, then the bytes; raises `RefusedError`.

    The file is opened for each piece, so that none stays open for a client that does not read; it
    has to be the one that was looked at.
    """
    found, seen = await _looked_at(record, checks)
    offset, length = part.within(record.size)
    known = {
        "asset": record.asset,
        "media_type": record.media_type,
        "size": record.size,
        "sha256": record.sha256,
        "offset": offset,
        "length": length,
    }
    await emit(_log(f"{length} bytes of {record.asset}", known))
    end = offset + length
    while offset < end:
        size = min(PIECE_BYTES, end - offset)
        piece = await _piece(record, checks, seen, offset, size)
        if len(piece) != size:
            raise _changed(record, {"file": "it was written to while it was read"})
        await emit(_log(f"{size} bytes", {"offset": offset, "data": piece}))
        offset += size
    return {**known, "verified": found["verified"]}


def _log(words: str, fields: dict[str, Any]) -> Log:
    return Log(version="0", level="info", message=words, fields=fields)


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


async def read_asset(record: AssetRecord, checks: AssetChecks) -> dict[str, Any]:
    """Return `asset`, `path`, `copy` and what was `verified`; raises `RefusedError`."""
    found, _ = await _looked_at(record, checks)
    return {"asset": record.asset, "media_type": record.media_type, **found}


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
