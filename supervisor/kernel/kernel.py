"""The kernel: the fleet and all that serves requests, opened and closed in one place.

    modules -> Kernel -> faces, commands, tests
                 opened: lock and journal, services, fleet
                 closed: fleet, answers that wait for the disk, journal, lock

Its services are its fields: there from its opening on, in this order, each made of those before.
Requests go through `begin`. Virtual time is the clock of the event loop: deadlines, intervals and
backoffs follow it. `clock` stamps what outlives the daemon. `bounds` and `times` hold what tests
make small.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec
import structlog
import trio

from protocol.version import VERSION
from supervisor.kernel.assets.files import ASSET_CHECK_S, DIGEST_S, AssetChecks
from supervisor.kernel.assets.registry import Assets
from supervisor.kernel.assets.store import AssetOptions, AssetStore
from supervisor.kernel.catalogue import Catalogue
from supervisor.kernel.chronicle import Chronicle
from supervisor.kernel.descriptions import KeptNotes, RememberedDescriptions
from supervisor.kernel.durability import FLUSH_S, Durability
from supervisor.kernel.effects import Effects
from supervisor.kernel.grants.grants import Answers, Grants
from supervisor.kernel.grants.operator_policy import OperatorPolicy
from supervisor.kernel.hooks.approvals import Approvals
from supervisor.kernel.hooks.registry import Gates, Hooks
from supervisor.kernel.local_user import LocalClients
from supervisor.kernel.logins import Logins
from supervisor.kernel.operations.long_answers import LongAnswers
from supervisor.kernel.operations.modules import FollowedLogs
from supervisor.kernel.parties import Begin, Client, Handle, Lineage, Party, RefusedError
from supervisor.kernel.prompts import Prompts
from supervisor.kernel.recorder import Recorder
from supervisor.kernel.reloads import Reloads
from supervisor.kernel.requests import Requests
from supervisor.kernel.resource_updates import ResourceUpdates
from supervisor.kernel.sessions.registry import Sessions
from supervisor.kernel.status import DaemonFacts
from supervisor.kernel.store.settings import JournalOptions
from supervisor.kernel.tokens import PageCodes, Tokens
from supervisor.kernel.ui_events import UiBounds, UiEvents
from supervisor.policy.findings import Found
from supervisor.policy.lifecycle import State
from supervisor.policy.mcp_views import McpOptions
from supervisor.runtime.containment.data_dir import DataInUseError
from supervisor.runtime.containment.file_limit import FileLimit
from supervisor.runtime.containment.process_registry import holding
from supervisor.runtime.containment.reaping import tracer_of
from supervisor.runtime.files.directory import UnreadableSourceError, shown
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.sources import LentDescriptors, Sources
from supervisor.runtime.held_bytes import FREE_BYTES, HeldBounds
from supervisor.runtime.stalls import Stalls
from supervisor.runtime.supervision.call import Congestion
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host
from supervisor.runtime.threads import Threads

if TYPE_CHECKING:
    from supervisor.kernel.event_feed import EventFeed
    from supervisor.kernel.journal import Journal

__all__ = [
    "AssetOptions",  # where assets are copied, and when
    "Capacity",
    "Client",  # what gets a request's events and its response
    "Congestion",  # whether a client has room for events
    "DataInUseError",
    "Handle",  # an open request, for its client
    "HeldBounds",
    "JournalOptions",
    "Kernel",
    "LentDescriptors",  # modules that somebody lends a kernel for a while
    "OperatorPolicy",  # what modules may call the daemon for
    "Party",  # the principal of one connection, on whose behalf requests are made
    "RefusedError",  # an op's failure
    "Sources",  # where descriptors are read from
    "Times",
    "UiBounds",
    "UnreadableSourceError",  # raised by a source that cannot be read
]
"""What those who open a kernel and make requests need to speak to it."""

CALM_TASKS = 500
"""So many tasks, of clients and of the daemon, are collected as garbage without a delay for
anybody. A process has up to 8 of its own (tests/budget/test_idle.py)."""

log = structlog.get_logger()


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long the kernel waits (s)."""

    flush_s: float = FLUSH_S
    """For the disk to store what an answer acknowledges."""
    asset_check_s: float = ASSET_CHECK_S
    """For a look at a file that a module names, or for its bytes to be written."""
    digest_s: float = DIGEST_S
    """For the hash of an asset before its event goes on without one."""
    hurry_after_s: float = 30.0
    """The longest a shutdown lets modules take, whatever their own timeouts say."""
    killed_within_s: float = 5.0
    """For killed modules to end; the log names those that are left."""


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """How much the kernel holds for its parties."""

    held: HeldBounds = HeldBounds()
    """Bytes, for a party and for all."""
    ui: UiBounds = UiBounds()
    """`ui_event`s that subscribers have not read, and subscriptions."""


class Kernel:
    """A running daemon without faces: `async with Kernel(modules, data_dir=...) as kernel`."""

    nursery: trio.Nursery
    """For tasks of the daemon's own; it ends with the kernel."""
    recorder: Recorder
    feed: EventFeed | None
    """None without a journal."""
    host: Host
    fleet: Fleet
    facts: DaemonFacts
    reloads: Reloads
    durability: Durability
    effects: Effects
    sessions: Sessions
    tokens: Tokens
    catalogue: Catalogue
    approvals: Approvals
    grants: Grants
    gates: Gates
    requests: Requests
    begin: Begin
    prompts: Prompts
    hooks: Hooks
    updates: ResourceUpdates
    page_codes: PageCodes
    local_clients: LocalClients
    logins: Logins
    long_answers: LongAnswers
    followed_logs: FollowedLogs

    def __init__(
        self,
        modules: Found,
        *,
        data_dir: Path,
        directories: Sequence[Path] = (),
        environment: Mapping[str, str] = os.environ,
        sources: Sources | None = None,
        containment: str | None = None,
        whole_process: bool = False,
        file_limit: FileLimit | None = None,
        memory_ceiling_bytes: int | None = None,
        recorder: Recorder | None = None,
        with_sessions: bool = True,
        memory: JournalOptions | None = None,
        asset_options: AssetOptions | None = None,
        operator: OperatorPolicy | None = None,
        stalls: Stalls | None = None,
        threads: Threads | None = None,
        mcp: McpOptions | None = None,
        modules_are_users: bool = False,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
        bounds: Capacity | None = None,
        times: Times | None = None,
    ) -> None:
        """Prepare a kernel; nothing is started, locked or written before it is entered.

        `sources` are the directories as `modules` was read from them, so that a reload reads only
        what changed since. `containment` forces a level (`cgroup2`, `subreaper`, `process_group`):
        without it entering fails. `whole_process` says that this process does nothing else, so that
        every child it did not spawn is an orphan of a module; then `file_limit` may be a raised
        one. `memory_ceiling_bytes` bounds all modules together: above it the biggest is ended
        first. With `memory` there is a journal in `data_dir`; without, `recorder` takes its place,
        or nothing outlives the daemon. Without sessions a `session_id` is passed on to the module
        and means nothing here. `operator` says what modules may call the daemon for; without it,
        nothing. `stalls` is told by the clock of the event
        loop when it does not come round, `threads` of what threads are at. `mcp` is about MCP
        clients. With `modules_are_users`, a process of a module that connects to a socket may do
        what its user may. `clock` gives Unix time (s), `draw` a number in [0, 1): jitter, ids.
        Entering raises `ContainmentError`, and `DataInUseError` if another daemon has `data_dir`.
        """
        self.mcp = mcp or McpOptions()
        self.cause = ""
        """What began the end."""
        self.by: msgspec.Raw | None = None
        """The principal who asked for it, if a client did."""
        self._modules = modules
        self._data_dir = data_dir
        self._directories = directories
        self._environment = environment
        self._sources = sources or Sources.of_directories(directories)
        self._containment = containment
        self._whole_process = whole_process
        self._file_limit = file_limit
        self._memory_ceiling_bytes = memory_ceiling_bytes
        self._recorder = recorder
        self._with_sessions = with_sessions
        self._memory = memory
        self._asset_options = asset_options or AssetOptions()
        self._operator = operator or OperatorPolicy()
        self._stalls = stalls or Stalls()
        self._threads = threads or Threads()
        self._modules_are_users = modules_are_users
        self._clock = clock
        self._draw = draw
        self._bounds = bounds or Capacity()
        self._times = times or Times()
        self._ending = trio.Event()
        self._hurry = trio.Event()
        self._fleet_stopped = trio.Event()
        self._opened = self._open()

    async def __aenter__(self) -> Self:
        await self._opened.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, traceback)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        """Run the fleet around the block; at its end all modules are stopped."""
        log_files = LogFiles(self._data_dir / "logs", self._threads)
        try:
            async with (
                holding(
                    self._data_dir,
                    containment=self._containment,
                    whole_process=self._whole_process,
                    file_limit=self._file_limit,
                    threads=self._threads,
                ) as registry,
                _memory(self._data_dir, self._memory, self._threads, self._clock) as (
                    journal,
                    feed,
                ),
                trio.open_nursery() as nursery,
            ):
                self.nursery, self.feed = nursery, feed
                self.recorder = recorder = journal or self._recorder or Recorder()
                notes = KeptNotes(recorder)
                self.host = host = Host(
                    self._environment,
                    log_files,
                    registry,
                    memory_ceiling_bytes=self._memory_ceiling_bytes,
                    wall_clock=self._clock,
                    draw=self._draw,
                    observer=Chronicle(self),
                    notes=notes,
                    held_bounds=self._bounds.held,
                )
                for part in (host.sampler.run, host.deadlines.run, host.containers.sweep):
                    nursery.start_soon(part)
                self.fleet = Fleet(host, nursery)
                self.facts = DaemonFacts(
                    pid=os.getpid(),
                    version=VERSION,
                    started_at=trio.current_time(),
                    registry=registry,
                    left_containers=host.containers.left,
                    data_dir=shown(self._data_dir),
                    directories=[shown(directory) for directory in self._directories],
                    log_files=log_files,
                    ledger=host.ledger,
                    journal=journal,
                    stalls=self._stalls,
                )
                recorder.record(
                    "daemon:start",
                    data={
                        "version": VERSION,
                        "pid": self.facts.pid,
                        "containment": registry.rung.name,
                    },
                )
                self.reloads = Reloads(self, self._sources, self._modules)
                checks = AssetChecks(
                    AssetStore(self._data_dir / "assets", self._asset_options),
                    self._threads,
                    copy=self._asset_options.copy,
                    check_s=self._times.asset_check_s,
                    digest_s=self._times.digest_s,
                )
                self.durability = Durability(recorder, host.deadlines, self._times.flush_s)
                self.sessions = Sessions(recorder, self._clock)
                self.tokens = Tokens(recorder, self._clock, host.deadlines)
                self.effects = effects = Effects(
                    recorder=recorder,
                    durability=self.durability,
                    sessions=self.sessions,
                    assets=Assets(recorder, nursery, checks, self._clock),
                    ui=UiEvents(host.ledger, self._bounds.ui),
                    answers=Answers(recorder, self._clock),
                    tokens=self.tokens,
                    descriptions=RememberedDescriptions(recorder, self._clock),
                    notes=notes,
                    lineage=Lineage(),
                    with_sessions=self._with_sessions,
                )
                await effects.assets.open(complete=recorder.is_complete)
                self.catalogue = Catalogue(self.fleet, effects.descriptions, host.deadlines)
                self.approvals = Approvals(recorder)
                self.grants = Grants(
                    self._operator,
                    recorder,
                    effects.answers,
                    self._environment,
                    self.approvals,
                    threads=self._threads,
                )
                self.gates = Gates()
                self.requests = Requests(self)
                self.begin, invoke = self.requests.begin, self.requests.invoke
                self.prompts = Prompts(self.fleet, self.sessions, effects.ui, invoke)
                self.hooks = Hooks(
                    host, self.fleet, effects, self.gates, invoke=invoke, nursery=nursery
                )
                self.updates = ResourceUpdates(self.catalogue, invoke)
                self.page_codes = PageCodes()
                self.local_clients = LocalClients(
                    registry, modules_are_users=self._modules_are_users
                )
                self.logins = Logins(self)
                self.long_answers = LongAnswers()
                self.followed_logs = FollowedLogs(host.ledger)
                try:
                    self.fleet.admit(self._modules)
                    self.reloads.warn()
                    yield
                    if not self.ending:
                        self.shut_down("the end")
                    await self.stop_fleet()
                    self.sessions.save()
                finally:
                    self._threads.begin_end()
                    await self.fleet.abandon()
                    self.hooks.end()
                    recorder.record(
                        "daemon:stop", data={"cause": self.cause or "a failure"}, by=self.by
                    )
                    checks.end()
                nursery.cancel_scope.cancel()
        finally:
            log_files.close()
            self._threads.close()

    async def wait_ready(self) -> None:
        await self.fleet.wait_until(
            lambda: all(module.state is State.READY for module in self.fleet.eager()) or None
        )

    def shut_down(self, cause: str, by: msgspec.Raw | None = None) -> None:
        """Begin the end; the second time, hurry.

        `by` is the principal who asked for it, for the journal.
        """
        if self._ending.is_set():
            log.warning("hurrying", cause=cause)
            self._hurry.set()
        else:
            log.info("stopping", cause=cause)
            self.cause, self.by = cause, by
            self._ending.set()

    @property
    def ending(self) -> bool:
        return self._ending.is_set()

    def is_calm(self) -> bool:
        """Whether few requests and tasks are open, and few bytes are held.

        Tasks of processes do not count. Looks at each module.
        """
        modules = self.fleet.all()
        processes = sum(len(module.instances()) for module in modules)
        requests = sum(module.in_flight + module.queued for module in modules)
        tasks = trio.lowlevel.current_statistics().tasks_living
        few = max(requests, tasks - 8 * processes) <= CALM_TASKS
        return few and self.facts.ledger.total <= FREE_BYTES

    async def wait_ending(self) -> None:
        await self._ending.wait()

    @property
    def fleet_stopped(self) -> bool:
        return self._fleet_stopped.is_set()

    async def wait_fleet_stopped(self) -> None:
        """Return when all modules have been stopped: nothing is served any more."""
        await self._fleet_stopped.wait()

    async def reload(self, cause: str) -> None:
        """Apply what changed in the descriptors; at the daemon's end, do nothing."""
        try:
            await self.reloads.reload(cause)
        except RefusedError as error:
            log.info("not reloaded", cause=cause, words=error.failure.message)

    async def watch(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reload whenever a descriptor or a watched program changes, until cancelled."""
        with contextlib.suppress(RefusedError):  # the end has begun
            await self.reloads.watch.run(self._reload_for_watch, task_status)

    async def _reload_for_watch(self, *, if_needed: bool) -> None:
        await self.reloads.reload("a change of the files", if_needed=if_needed)

    async def stop_fleet(self) -> None:
        """Stop all modules in order, within a bound; then kill the rest, within another."""
        with trio.move_on_after(self._times.hurry_after_s + self._times.killed_within_s) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hurry_fleet)
                self.requests.stop()
                self.approvals.stop()
                await self.fleet.stop()
                # No gate serves any more, so open calls of gates have an answer in a moment.
                await self.requests.wait_none_guarded()
                nursery.cancel_scope.cancel()
        if scope.cancelled_caught:
            self._name_survivors()
        # All invocations have an answer now, and it may wait for the disk.
        since = trio.current_time()
        if not await self.durability.wait_told():
            self.facts.registry.threads.begin_end(trio.current_time() - since)
        self._fleet_stopped.set()

    async def _hurry_fleet(self) -> None:
        with trio.move_on_after(self._times.hurry_after_s):
            await self._hurry.wait()
        self.fleet.hurry()

    def _name_survivors(self) -> None:
        for module in self.fleet.all():
            for instance, _ in module.instances():
                known = {"module": module.name, "instance": instance.id, "pid": instance.pid}
                tracer = tracer_of(instance.pid)
                if tracer is not None:
                    known["traced_by"] = tracer.words
                log.error("left behind", **known)


@asynccontextmanager
async def _memory(
    data_dir: Path,
    options: JournalOptions | None,
    threads: Threads,
    clock: Callable[[], float],
) -> AsyncIterator[tuple[Journal | None, EventFeed | None]]:
    if options is None:
        yield None, None
        return
    # Only here: invoking a module without a daemon must not wait for SQLite.
    from supervisor.kernel.event_feed import EventFeed  # noqa: PLC0415
    from supervisor.kernel.journal import remembering  # noqa: PLC0415

    async with remembering(data_dir, options, clock, threads) as journal:
        feed = EventFeed(journal, threads)
        try:
            yield journal, feed
        finally:
            feed.close()
