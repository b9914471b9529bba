"""The ops about assets: `asset.list`, `asset.show`, `asset.read`, `asset.content`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from protocol.errors import Failure
from supervisor.kernel.assets.reading import Part, read_asset, send_content
from supervisor.kernel.assets.record import AssetRecord
from supervisor.kernel.operations.op import MODULE, WORD, Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.parties import DAEMON, Origin, RefusedError

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
        checks, part = self._parts.effects.assets.checks, Part(**wanted)
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

    def _reader(self, op: str, asked: OwnRequest) -> Origin:
        """Return the origin of a read: the principal, in the session that was named with the op."""
        principal, session_id = asked.principal, asked.session_id
        if session_id is not None:
            found = self._parts.effects.sessions.find(session_id, principal)
            if isinstance(found, Failure):
                raise RefusedError(found)
        request_id = self._parts.next_request_id()
        return Origin(DAEMON, op, request_id, session_id, by=principal.by)
