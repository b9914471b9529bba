"""The lists of one view, as the daemon has them and as a client knows them.

    asked for    `offers`, with the `version` that is known: mostly nothing has changed
    followed     from the first list on; after a change, or on a new connection, what is known does
                 not count until the daemon was asked
    told         a list that differs from what the client was given, and was not told of before

So a client is told nothing when modules come whose tools it knows already, or when the daemon or a
crashed module is there again. Names and URIs stay with whose they were (`table`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from protocol.dialects.mcp.catalogue import LISTS
from protocol.errors import Failure
from protocol.jsonrpc import RpcError
from protocol.mcp_server.client import McpRequestError
from protocol.mcp_server.daemon_link import (
    DAEMON,
    AfterLoss,
    DaemonEvent,
    DaemonLink,
    DaemonRequest,
    RequestEnd,
    fields_of,
    pause_of,
)
from protocol.mcp_server.results import own_error
from protocol.mcp_server.table import Definitions, KnownLists, Table
from protocol.mcp_server.tasks import Pending, Task

LOOKED_AT = 256
"""Servers that are asked at a time whether they have more (`offers`)."""

STEPS = 512
"""Of laying out a table, before the host has its turn: some milliseconds."""

CHANGING = tuple(dict.fromkeys(one.capability for one in LISTS.values()))
"""The lists whose changes a `list_changed` notification may tell."""

Given = dict[str, Definitions]
"""The lists as a client knows them, by field."""


class ListWatch:
    """A receiver of `list_changed`: the client of the older era, or a `subscriptions/listen`."""

    def __init__(
        self,
        given: Given,
        tell: Callable[[str, dict[str, Any]], None],
        wanted: Collection[str] = CHANGING,
        *,
        takes_present: bool = False,
    ) -> None:
        self.given = given
        self.takes_present = takes_present
        """Whether the lists at the beginning count as known to the client."""
        self.told: Given = {}
        """Lists known to have changed; the client may not have asked for them yet."""
        self.tell = tell
        """Takes a notification: its method and params."""
        self.wanted = wanted
        """Those of CHANGING that it is told of."""

    def take_present(self, table: Table) -> None:
        """Take the lists as they are for those that the client knows, if that is still to do."""
        if self.takes_present:
            self.takes_present = False
            for field, entries in table.lists.items():
                self.given.setdefault(field, entries)

    def compare(self, table: Table) -> None:
        """Tell of the lists that differ from those that the client knows, or was told of."""
        self.take_present(table)
        changed = {
            field
            for field, entries in self.given.items()
            if table.lists[field] not in (entries, self.told.get(field))
        }
        self.told.update((field, table.lists[field]) for field in changed)
        told = {one.capability for one in LISTS.values() if one.field in changed}
        for kind in CHANGING:
            if kind in told and kind in self.wanted:
                self.tell(f"notifications/{kind}/list_changed", {})


class Offered:
    def __init__(self, daemon: DaemonLink, known: KnownLists) -> None:
        self.given: Given = {}
        """The lists that the client was given; not over HTTP in the newer era."""
        self.changed: Pending[None] = Pending(daemon.tasks)
        """Set when lists may have changed; then there is another one."""
        self._daemon = daemon
        self.known = known
        self._changes = 0
        self._seen = -1
        """The number of changes that the table has."""
        self._fetching: dict[bool, tuple[Pending[Table | Failure | None], Sequence[str]]] = {}
        """Those that are being fetched, by whether starting modules are waited for; and the servers
        that are asked before whether they have more."""
        self._watches: list[ListWatch] = []
        self._following: DaemonRequest | None = None
        """Tells of changes, until it is over."""
        self._is_new_daemon = False
        """Whether its starting modules are still to be waited for."""
        self._follow: Task | None = None
        """None before the first list was asked for."""
        self._tell = daemon.tasks.spawn(self._tell_changes())

    # The lists.

    async def table(
        self,
        *,
        wait: bool = True,
        use_kept: bool = False,
        look_again: Sequence[str] | None = None,
        is_patient: bool = False,
    ) -> Table:
        """Return the lists; with `wait` they include those of modules that are starting.

        With `use_kept` the last ones do, unless a change was told of. With `look_again` they are
        made anew, and the servers in it are asked before whether they have more. If the daemon says
        that it is asked too often, a patient caller waits. Raises `McpRequestError`.
        """
        while True:
            table = self.known.table
            if use_kept and table is not None and self._is_current(table, wait=wait):
                return table
            if wait in self._fetching:
                fetching, asked = self._fetching[wait]
                found = await fetching
                if isinstance(found, Table) and (
                    {*look_again} <= {*asked} if look_again else self._is_current(found, wait=wait)
                ):
                    return found
            else:
                found = await self._fetch_for_all(look_again, wait=wait)
                if isinstance(found, Table):
                    return found
            if isinstance(found, Failure):
                pause_s = pause_of(found)
                if pause_s is None or not is_patient:
                    raise McpRequestError(own_error(found))
                await self._daemon.tasks.sleep(pause_s)

    async def table_within(self, seconds: float) -> Table | None:
        """Return the lists, or after a while the last ones, if there are any; raises as `table`."""
        found: Pending[Table | RpcError | None] = Pending(self._daemon.tasks)

        async def fetch() -> None:
            try:
                found.set(await self.table(wait=False, is_patient=True))
            except McpRequestError as refusal:
                found.set(refusal.error)

        self._daemon.tasks.spawn(fetch())
        timer = self._daemon.tasks.call_later(seconds, lambda: found.set(None))
        table = await found
        timer.cancel()
        if isinstance(table, RpcError):
            raise McpRequestError(table)
        return self.known.table if table is None else table

    def _is_current(self, table: Table, *, wait: bool) -> bool:
        is_followed = self._following is not None and not self._following.is_over
        return is_followed and self._seen == self._changes and (table.has_waited or not wait)

    async def _fetch_for_all(
        self, look_again: Sequence[str] | None, *, wait: bool
    ) -> Table | Failure:
        """Fetch the lists; others that want them meanwhile wait for these."""
        if self._follow is None:
            self._follow = self._daemon.tasks.spawn(self._follow_changes())
        fetching: Pending[Table | Failure | None] = Pending(self._daemon.tasks)
        self._fetching[wait] = fetching, look_again or ()
        result = None  # if this is cancelled
        try:
            result = await self._fetch(look_again, wait=wait)
        finally:
            del self._fetching[wait]
            fetching.set(result)
        return result

    async def _fetch(self, look_again: Sequence[str] | None, *, wait: bool) -> Table | Failure:
        known = self.known
        while True:
            seen, asked = self._changes, known.version
            args: dict[str, Any] = {"wait": wait, "detail": True}
            if look_again is not None:
                args["look_again"] = list(look_again)[:LOOKED_AT]
            elif asked is not None and asked == self._version(asked[-1]):
                args["known"] = asked[-1]
            with self._daemon.read("offers", args) as request:
                outcome = (await request.done()).outcome
            if isinstance(outcome, Failure):
                return outcome
            version = self._version(outcome.result["version"])
            if "modules" in outcome.result:
                steps = known.lay_out(outcome.result, self._daemon.view, has_waited=wait)
                table = await self._daemon.tasks.in_steps(steps, STEPS)
                self._note_renamed(table)
            elif version != known.version or known.table is None:
                continue  # what is known is of another daemon, or newer by now
            else:
                has_waited = wait or known.table.has_waited
                table = msgspec.structs.replace(known.table, has_waited=has_waited)
            self._seen = seen
            known.keep(table, version)
            return table

    def _version(self, number: int) -> tuple[Any, ...]:
        """Return the version of offers that the present daemon has given a number."""
        caller = self._daemon.caller
        return (caller and (caller.run, caller.name, caller.modules, caller.view)), number

    def _note_renamed(self, table: Table) -> None:
        former = {} if self.known.table is None else self.known.table.renamed
        for module, uris in table.renamed.items():
            if former.get(module) != uris:
                words = "resources are listed under the name of their module: another has them"
                words += f": {module}: {', '.join(uris[:8])} ({len(uris)})"
                self._daemon.tasks.remarks.append(words)

    # Changes.

    async def watch(self, watch: ListWatch) -> None:
        """Tell of changes from now on, until this is cancelled."""
        self._watches.append(watch)
        try:
            with contextlib.suppress(McpRequestError):  # then the lists are followed all the same
                takes = watch.takes_present
                watch.take_present(await self.table(wait=takes, use_kept=True, is_patient=True))
            await Pending[None](self._daemon.tasks)
        finally:
            self._watches.remove(watch)

    def close(self) -> None:
        """End what is followed."""
        self._tell.cancel()
        if self._follow is not None:
            self._follow.cancel()

    async def _follow_changes(self) -> None:
        """Follow the daemon's changes, over each connection anew."""
        while True:
            if not self._daemon.is_ready:
                await self._daemon.ready
                self._is_new_daemon = True
                self._change()
            args = {"follow": True, "notifications": True}
            with self._daemon.open(DAEMON, "offers", args, after_loss=AfterLoss.FAIL) as following:
                self._following = following
                while not isinstance(event := await following.next(), RequestEnd):
                    self._take_change(event)
            if self._daemon.is_ready:
                pause_s = pause_of(event.outcome)
                if pause_s is not None:
                    await self._daemon.tasks.sleep(pause_s)
                    self._change()
                else:  # it stops, or does not allow that: until then it is asked each time
                    await self._daemon.lost

    def _take_change(self, event: DaemonEvent) -> None:
        """Take a change, or a notification of an extension."""
        fields = fields_of(event)
        if "method" not in fields:
            self._change()
        elif self.known.table is not None and fields["module"] == self.known.table.sole:
            for watch in self._watches:
                watch.tell(fields["method"], fields["params"])

    def _change(self) -> None:
        self._changes += 1
        changed, self.changed = self.changed, Pending(self._daemon.tasks)
        changed.set(None)

    async def _tell_changes(self) -> None:
        """Compare the lists with those that the watches know, after each change."""
        compared = self._changes
        while True:
            while compared == self._changes or not self._watches:
                await self.changed
            compared, wait = self._changes, self._is_new_daemon
            self._is_new_daemon = False
            with contextlib.suppress(McpRequestError):
                table = await self.table(wait=wait, is_patient=True)
                for watch in self._watches:
                    watch.compare(table)
