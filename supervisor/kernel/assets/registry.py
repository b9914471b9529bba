"""The registry of assets: each file that a module handed over, found again by an id of ours.

    event -> look in a thread (files) -> registered, kept, `artifact:write`
                                      -> or a warning of the response

The id is eight hexadecimal digits, unique in the registry. It is bounded in number and in bytes,
and so are copies: beyond that the oldest assets of the owner who has most are forgotten. The files
themselves are never deleted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
import trio
from msgspec import UNSET

from protocol.connection import Notice
from protocol.errors import Failure, Reason
from protocol.events import Asset, built
from protocol.host_events import RegisteredAsset, Registration
from supervisor.kernel.assets.files import AssetChecks, AssetFileError, CheckedFile
from supervisor.kernel.documents import KeptDocuments
from supervisor.kernel.parties import Provenance, RefusedError
from supervisor.kernel.recorder import Recorder
from supervisor.policy.principals import Principal
from supervisor.policy.shares import Shares
from supervisor.runtime.turns import Turn

if TYPE_CHECKING:
    from supervisor.kernel.assets.store import Spool

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
    def copy(self) -> str | None:
        """The digest of its copy, if the store has one."""
        return self.sha256 if self.copied else None

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


ASSETS_KEPT = 10_000
"""Assets remembered; beyond that the oldest of the owner who has most are forgotten."""

RECORD_BYTES = 32 << 20
"""Bytes of all records together, with the same consequence."""

METADATA_BYTES = 64 << 10
"""The longest metadata of an asset, as JSON."""

KIND = "asset"

SHORTEST_PREFIX = 4
CHANGED_WORDS = "it changed while it was read, so it has no digest"

log = structlog.get_logger()

_ENCODE = msgspec.json.Encoder().encode


class Assets:
    def __init__(
        self,
        recorder: Recorder,
        nursery: trio.Nursery,
        checks: AssetChecks,
        wall_clock: Callable[[], float],
    ) -> None:
        """Run checks in `nursery`; `wall_clock` gives Unix time (s)."""
        self.checks = checks
        self.forgotten = 0
        self._recorder = recorder
        self._nursery = nursery
        self._wall_clock = wall_clock
        self._records = KeptDocuments(recorder, KIND, AssetRecord, named_by="asset", order="ts")
        self._newest: dict[str, str] = {}
        self._count = Shares[str](ASSETS_KEPT)
        self._bytes = Shares[str](RECORD_BYTES)
        self._copies = Shares[str](checks.store.limit_bytes)
        """The bytes of the copies, those with the same content counted for each."""
        for record in list(self._records.values()):
            self._count_in(record)

    # For invocations.

    async def check(self, asset: Asset, origin: Provenance, folder: str) -> CheckedFile | Notice:
        """Look at the file of an asset, within a bound; returns a warning if it is refused."""
        try:
            return await self._look(origin.owner, origin.module, asset.path, folder)
        except AssetFileError as error:
            return _notice(error.reason, asset, str(error))

    def spool(self, spool: Spool) -> None:
        self._nursery.start_soon(spool.run)

    def register(
        self, asset: Asset, looked: CheckedFile, origin: Provenance
    ) -> tuple[Asset, AssetRecord | None, list[Notice]]:
        """Remember an asset; returns the event for the client, its record, and warnings."""
        asset = msgspec.structs.replace(asset, path=looked.path)
        unavailable = self._recorder.unavailable()
        if unavailable is not None:
            self.discard(looked)
            return asset, None, [_notice("not_registered", asset, unavailable.message)]
        metadata, notices = _bounded_metadata(asset)
        if looked.changed:
            notices.append(_notice("asset_changed", asset, CHANGED_WORDS))
        record = self._record(asset, looked, origin, metadata)
        self._add(record)
        self._recorder.record(
            "artifact:write",
            module=record.module,
            data=_facts(record),
            **origin.recorded(),
        )
        if record.sha256 is None and record.problem is None:
            self._nursery.start_soon(self._read, record)
        content = msgspec.structs.asdict(asset)
        content["metadata"] = msgspec.UNSET if metadata is None else metadata
        passed_on = RegisteredAsset(**content, registered=record.registration())
        return passed_on, record, notices

    def discard(self, looked: CheckedFile) -> None:
        """Release the copy of an asset that is not taken."""
        self._release(looked.copy)

    def _release(self, copy: str | None) -> None:
        if copy is not None:
            self._nursery.start_soon(self.checks.release, (copy,))

    async def make_room(self, owner: str | None, size: int) -> bool:
        """Forget copies of those who have most, so that an owner has room for `size` bytes.

        Returns whether there may be room now, where there was none.
        """
        copies, left = self._copies, self.checks.store.left_bytes
        if size <= left or copies.growth(owner, size) < size:
            return False
        released = []
        while left < size and (most := copies.most(owner, size)) is not None:
            record = self._records[next(iter(most))]
            left += record.size
            released.append(self._forget(record))
        with trio.move_on_after(self.checks.check_s):
            await self.checks.release(released)
        return bool(released)

    async def _look(
        self, owner: str | None, module: str, path: str, folder: str | None = None
    ) -> CheckedFile:
        """Check a file, or read all of it, where there is or can be room for its copy."""
        while True:
            try:
                if folder is None:
                    return await self.checks.read(module, path)
                return await self.checks.look(module, path, folder)
            except AssetFileError as error:
                if not await self.make_room(owner, error.no_room_for):
                    raise

    # For readers.

    def status(self) -> dict[str, Any]:
        return {
            "known": len(self._records),
            "forgotten": self.forgotten,
            "copied_bytes": self.checks.store.total_bytes,
        }

    async def find(self, named: str, principal: Principal) -> AssetRecord:
        """Return an asset by its id, by the module's own id (the newest), or by an id's beginning.

        Only assets that the principal may see. Raises `RefusedError` (`unknown_asset`).
        """
        exact = self._records.get(named) or self._records.get(self._newest.get(named, ""))
        if exact is not None and _may_see(principal, exact):
            return exact
        beginning = named if len(named) >= SHORTEST_PREFIX else None

        def fits(one: AssetRecord) -> bool:
            begins = beginning is not None and one.asset.startswith(beginning)
            return begins or one.asset_id == named

        seen = await self._seen(principal, fits)
        same = [one for one in seen if one.asset_id == named]
        if same or len(seen) == 1:
            found = same[-1] if same else seen[0]
            return self._records.get(found.asset, found)
        forgotten = f"; {self.forgotten} older ones are forgotten" if self.forgotten else ""
        words = f"there is no asset {named!r:.80}{forgotten}; `stdiod asset list` shows them"
        raise RefusedError.because(Reason.UNKNOWN_ASSET, words)

    async def select(self, principal: Principal, **wanted: str) -> list[AssetRecord]:
        """Return the assets of a `session_id`, a `module`, a `request_id`; the oldest first."""
        asked = list(wanted.items())
        return await self._seen(
            principal, lambda one: all(getattr(one, name) == value for name, value in asked)
        )

    async def _seen(
        self, principal: Principal, fits: Callable[[AssetRecord], bool]
    ) -> list[AssetRecord]:
        """Return the assets that fit and that a principal may see; its globs take turns."""
        found, turn = [], Turn()
        for one in tuple(self._records.values()):
            await turn.go_on()
            if fits(one) and _may_see(principal, one):
                found.append(one)
        return found

    def note_read(self, record: AssetRecord, failure: Failure | None, reader: Provenance) -> None:
        """Record that a client asked for the file, and whether it was there.

        The ids are the reader's: those of the writer are in the `artifact:write` of the same
        `asset`.
        """
        error = None if failure is None else {"code": failure.code, "message": failure.message}
        self._recorder.record(
            "artifact:read",
            module=record.module,
            status="ok" if failure is None else "error",
            data=_facts(record),
            error=error,
            **reader.recorded(),
        )

    # Its life.

    async def open(self, *, complete: bool = True) -> None:
        """Open the store with the copies of the assets that an earlier daemon registered.

        If it may have registered more (not `complete`), copies that none of these names stay: a
        journal that was set aside may still be looked at.
        """
        kept = list(self._records.values())
        copies = [one.copy for one in kept if one.copy is not None]
        problem = await self.checks.open_store(copies, collect=complete)
        if problem is not None:
            log.warning("the copies of assets could not be looked at", words=problem)
        for record in kept:
            if record.sha256 is None and record.problem is None:
                self._nursery.start_soon(self._read, record)

    def _record(
        self, asset: Asset, looked: CheckedFile, origin: Provenance, metadata: dict[str, Any] | None
    ) -> AssetRecord:
        return AssetRecord(
            asset=self._new_id(),
            asset_id=asset.asset_id,
            module=origin.module,
            op=origin.op,
            request_id=origin.request_id or "",  # files come in the course of one
            session_id=origin.session_id,
            span_id=origin.span_id,
            owner=origin.owner,
            kind=asset.kind,
            media_type=asset.media_type,
            supported=is_supported(asset.media_type),
            path=looked.path,
            real_path=looked.real_path,
            size=looked.size,
            mtime_ns=looked.mtime_ns,
            sha256=looked.sha256,
            copied=looked.copied,
            problem=CHANGED_WORDS if looked.changed else None,
            metadata=metadata,
            ts=round(self._wall_clock(), 3),
        )

    def _new_id(self) -> str:
        while (found := secrets.token_hex(4)) in self._records:
            pass
        return found

    def _add(self, record: AssetRecord) -> None:
        self._records.put(record.asset, record)
        self._count_in(record)

    def _count_in(self, record: AssetRecord) -> None:
        """Count a record in its owner's shares, and forget others where there is no room."""
        owner = record.owner
        self._count.put(owner, record.asset)
        self._bytes.put(owner, record.asset, self._records.size(record.asset))
        if record.copied:
            self._copies.put(owner, record.asset, record.size)
        self._newest[record.asset_id] = record.asset
        for shares in (self._count, self._bytes):
            while shares.left < 0:
                self._release(self._forget(self._records[next(iter(shares.to_lose(owner)))]))

    def _forget(self, record: AssetRecord) -> str | None:
        """Forget an asset; returns the copy that is to be released then."""
        self._records.remove(record.asset)
        for shares in (self._count, self._bytes, self._copies):
            shares.take(record.owner, record.asset)
        if self._newest.get(record.asset_id) == record.asset:
            del self._newest[record.asset_id]
        if not self.forgotten:
            words = "assets are forgotten from now on, the oldest of the owner who has most first"
            log.warning(words, kept=ASSETS_KEPT)
        self.forgotten += 1
        return record.copy

    async def _read(self, record: AssetRecord) -> None:
        """Read a file that was too large, or too slow, to be read before the response."""
        try:
            looked = await self._look(record.owner, record.module, record.path)
        except AssetFileError as error:
            self._change(record, problem=str(error))
            return
        same = (record.real_path, record.size, record.mtime_ns)
        if (looked.real_path, looked.size, looked.mtime_ns) != same or looked.changed:
            self.discard(looked)
            self._change(record, problem="it changed before it was read, so it has no digest")
        elif looked.sha256 is None:
            return  # the daemon is ending; the next one reads it
        elif not self._change(record, sha256=looked.sha256, copied=looked.copied):
            self.discard(looked)

    def _change(self, record: AssetRecord, **changes: Any) -> bool:
        known = record.asset in self._records
        if known:
            self._add(msgspec.structs.replace(record, **changes))
        return known


def _may_see(principal: Principal, record: AssetRecord) -> bool:
    return principal.is_full or (
        principal.owns(record.owner) and principal.covers(record.module, record.op)
    )


def _bounded_metadata(asset: Asset) -> tuple[dict[str, Any] | None, list[Notice]]:
    if asset.metadata is msgspec.UNSET:
        return None, []
    metadata = built(asset.metadata)
    try:
        size = len(_ENCODE(metadata))
    except (RecursionError, ValueError, TypeError, OverflowError) as error:
        words = f"its metadata cannot be kept and is left out: {type(error).__name__}"
        return None, [_notice("metadata_too_large", asset, words)]
    if size > METADATA_BYTES:
        words = f"its metadata has {size} bytes, {METADATA_BYTES} are allowed; it is left out"
        return None, [_notice("metadata_too_large", asset, words)]
    return metadata, []


def _facts(record: AssetRecord) -> dict[str, Any]:
    return {
        "uri": record.uri,
        "bytes": record.size,
        "sha256": record.sha256,
        "asset": record.asset,
        "media_type": record.media_type,
    }


def _notice(reason: str, asset: Asset, words: str) -> Notice:
    return Notice(reason, f"asset {asset.asset_id!r:.80}: {words}")
