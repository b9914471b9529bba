"""The daemon as a whole: the fleet, the pipeline, the ops, and an orderly end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog
import trio

from protocol.version import VERSION
from supervisor.kernel.assets.checks import AssetChecks
from supervisor.kernel.assets.registry import Assets
from supervisor.kernel.assets.store import AssetOptions, AssetStore
from supervisor.kernel.catalogue import Catalogue
from supervisor.kernel.chronicle import Chronicle
from supervisor.kernel.descriptions import RememberedDescriptions
from supervisor.kernel.durability import Durability
from supervisor.kernel.grants.grants import ApprovalAsker, Grants
from supervisor.kernel.grants.operator_policy import OperatorPolicy
from supervisor.kernel.grants.remembered import Answers
from supervisor.kernel.hooks.approvals import Approvals
from supervisor.kernel.hooks.gates import Gates
from supervisor.kernel.hooks.observing import Observing
from supervisor.kernel.hooks.registry import Hooks
from supervisor.kernel.notes import KeptNotes
from supervisor.kernel.operations import Operations
from supervisor.kernel.operations.op import Parts, ShutDown
from supervisor.kernel.page_codes import PageCodes
from supervisor.kernel.parties import Lineage, RefusedError
from supervisor.kernel.recorder import Forgetful, Recorder, Restored
from supervisor.kernel.reloads import Reloads
from supervisor.kernel.requests import Deciding, Requests
from supervisor.kernel.resource_updates import ResourceUpdates
from supervisor.kernel.sessions.registry import Sessions
from supervisor.kernel.status import DaemonFacts
from supervisor.kernel.store.settings import JournalOptions
from supervisor.kernel.taking_effect import Effects
from supervisor.kernel.tokens import Tokens
from supervisor.kernel.ui_events import UiEvents
from supervisor.policy.findings import Found
from supervisor.policy.mcp_views import McpOptions
from supervisor.policy.reload_plan import Plan
from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment.custody import holding
from supervisor.runtime.files.directory import shown
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.files.source import Source
from supervisor.runtime.files.sources import Sources
from supervisor.runtime.held_bytes import FREE_BYTES
from supervisor.runtime.process.file_limit import FileLimit
from supervisor.runtime.process.reaping import tracer_of
from supervisor.runtime.stalls import Stalls
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.host import Host

HURRY_AFTER_S = 30.0
"""The longest a shutdown lets modules take, whatever their own timeouts say."""

KILLED_WITHIN_S = 5.0
"""How long the killed ones may take then; what is left is named in the log."""

CALM_TASKS = 500
"""As many do not delay anybody by being looked through for garbage: of clients, and of the daemon.
A process has up to 8 of its own (tests/budget/test_idle.py)."""

if TYPE_CHECKING:
    from supervisor.kernel.event_feed import EventFeed
    from supervisor.kernel.journal import Journal

log = structlog.get_logger()


class Daemon:
    """A running daemon; made by `running`."""

    def __init__(self, requests: Requests, make_parts: Callable[[ShutDown], Parts]) -> None:
        """Have the ops served on the parts; `make_parts` takes what begins the end."""
        parts = make_parts(self.shut_down)
        self.cause = ""
        """What began the end."""
        self.by: msgspec.Raw | None = None
        """Who asked for it, if somebody did."""
        self.fleet = parts.fleet
        self.sessions = parts.effects.sessions
        self.tokens = parts.effects.tokens
        self.page_codes = parts.page_codes
        self.catalogue = parts.catalogue
        self.mcp = parts.mcp
        self._durability = parts.effects.durability
        self.reloads = parts.reloads
        self.requests = requests
        requests.own.operations = Operations(parts)
        self.approvals = parts.approvals
        self.grants = parts.grants
        self.facts = parts.facts
        self._ending = trio.Event()
        self._hurry = trio.Event()
        self._fleet_stopped = trio.Event()

    def shut_down(self, cause: str, by: msgspec.Raw | None = None) -> None:
        """Begin the end; said again, hurry. `by` is who asked for it, for the journal."""
        if self._ending.is_set():
            log.warning("hurrying", cause=cause)
            self._hurry.set()
        else:
            log.info("stopping", cause=cause)
            self.cause, self.by = cause, by
            self._ending.set()

    @property
    def ending(self) -> bool:
        """Whether the end has begun."""
        return self._ending.is_set()

    def is_calm(self) -> bool:
        """Whether little is open that lives in memory: few requests, no args, and few tasks.

        Those of processes are no sign of that. Looks at each module.
        """
        modules = self.fleet.all()
        processes = sum(len(module.instances()) for module in modules)
        requests = sum(module.in_flight + module.queued for module in modules)
        tasks = trio.lowlevel.current_statistics().tasks_living
        few = max(requests, tasks - 8 * processes) <= CALM_TASKS
        return few and self.facts.ledger.total <= FREE_BYTES

    async def wait_ending(self) -> None:
        """Return when the end has begun."""
        await self._ending.wait()

    @property
    def fleet_stopped(self) -> bool:
        """Whether all modules have been stopped."""
        return self._fleet_stopped.is_set()

    async def wait_fleet_stopped(self) -> None:
        """Return when all modules have been stopped: nothing will be served any more."""
        await self._fleet_stopped.wait()

    async def reload(self, cause: str) -> None:
        """Apply what changed in the descriptors; at the daemon's end, do nothing."""
        try:
            await self.reloads.reload(cause)
        except RefusedError as error:
            log.info("not reloaded", cause=cause, words=error.failure.message)

    def lend(self, source: Source) -> AbstractAsyncContextManager[Callable[[], Awaitable[Plan]]]:
        """Have the modules of a source for as long as the block lasts (`Reloads.lend`)."""
        return self.reloads.lend(source)

    async def watch(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reload whenever a descriptor or a watched program changes, until cancelled."""
        with contextlib.suppress(RefusedError):  # the end has begun
            await self.reloads.watch.run(self._reload_for_watch, task_status)

    async def _reload_for_watch(self, *, if_needed: bool) -> None:
        await self.reloads.reload("a change of the files", if_needed=if_needed)

    async def stop_fleet(self) -> None:
        """Stop all modules in order, within a bound; then kill what is left, within another."""
        with trio.move_on_after(HURRY_AFTER_S + KILLED_WITHIN_S) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hurry_fleet)
                self.requests.guards.stop()
                self.approvals.stop()
                await self.fleet.stop()
                # No gate serves any more, so what is still asked has an answer in a moment.
                await self.requests.guards.wait_none_asks()
                nursery.cancel_scope.cancel()
        if scope.cancelled_caught:
            self._name_survivors()
        # Those who were in flight have an answer now, and it may wait for the disk.
        since = trio.current_time()
        if not await self._durability.wait_told():
            self.facts.custody.blocking.begin_end(trio.current_time() - since)
        self._fleet_stopped.set()

    async def _hurry_fleet(self) -> None:
        with trio.move_on_after(HURRY_AFTER_S):
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
async def running(
    found: Found,
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
    restored: Restored | None = None,
    with_sessions: bool = True,
    memory: JournalOptions | None = None,
    asset_options: AssetOptions | None = None,
    operator: OperatorPolicy | None = None,
    stalls: Stalls | None = None,
    blocking: BlockingWork | None = None,
    mcp: McpOptions | None = None,
) -> AsyncIterator[Daemon]:
    """Run a daemon around the block; at its end all modules are stopped and nothing is left.

    `sources` are the directories as `found` was read from them, so that a reload reads only what
    changed since. `containment` forces a rung (`cgroup2`, `subreaper`, `process_group`): without
    it the daemon does not start. `whole_process` says that this process does nothing else, so that
    every child it did not spawn is an orphan of a module; then `file_limit` may be a raised one.
    `memory_ceiling_bytes` bounds all modules together: above it the biggest is ended first. With
    `memory` there is a journal in `data_dir`; without, `recorder` takes its place, and `restored`
    what one before it kept, or nothing outlives the daemon. Without sessions a `session_id` is
    passed on to the module and means nothing here. `operator` says what modules may call the daemon
    for; without it, nothing. `stalls` is told by the clock of the event loop when it does not come
    round, `blocking` of what threads are at. `mcp` is about MCP clients.
    Raises `ContainmentError`, and `DataInUseError` if another daemon has `data_dir`.
    """
    if sources is None:
        sources = Sources.of_directories(directories)
    blocking = blocking or BlockingWork()
    log_files = LogFiles(data_dir / "logs", blocking)
    try:
        async with (
            holding(
                data_dir,
                containment=containment,
                whole_process=whole_process,
                file_limit=file_limit,
                blocking=blocking,
            ) as custody,
            _memory(data_dir, memory, blocking) as (journal, feed),
            trio.open_nursery() as nursery,
        ):
            recorder = journal or recorder or Forgetful()
            notes = KeptNotes(recorder)
            host = Host(
                environment,
                log_files,
                custody,
                memory_ceiling_bytes=memory_ceiling_bytes,
                notes=notes,
            )
            parts = (host.sampler.run, host.deadlines.run, host.checks.run, host.containers.sweep)
            for part in parts:
                nursery.start_soon(part)
            fleet = Fleet(host, nursery)
            facts = DaemonFacts(
                pid=os.getpid(),
                version=VERSION,
                started_at=trio.current_time(),
                custody=custody,
                left_containers=host.containers.left,
                data_dir=shown(data_dir),
                directories=[shown(directory) for directory in directories],
                log_files=log_files,
                ledger=host.ledger,
                journal=journal,
                stalls=stalls or Stalls(),
            )
            recorder.record(
                "daemon:start",
                data={"version": VERSION, "pid": facts.pid, "containment": custody.containment},
            )
            operator = operator or OperatorPolicy()
            reloads = Reloads(
                host, fleet, sources, found, operator, watched=facts.watch, nursery=nursery
            )
            options = asset_options or AssetOptions()
            checks = AssetChecks(
                AssetStore(data_dir / "assets", options), blocking, copy=options.copy
            )
            effects = Effects(
                recorder=recorder,
                durability=Durability(recorder, host.deadlines),
                sessions=Sessions(recorder, host.wall_clock),
                assets=Assets(recorder, nursery, checks, host.wall_clock),
                ui=UiEvents(host.ledger),
                answers=Answers(recorder, host.wall_clock),
                tokens=Tokens(recorder, host.wall_clock, host.deadlines),
                descriptions=RememberedDescriptions(recorder, host.wall_clock),
                notes=notes,
                lineage=Lineage(),
                with_sessions=with_sessions,
            )
            await _take_over(effects, journal, restored)
            catalogue = Catalogue(fleet, effects.descriptions, host.deadlines)
            gates, approvals = Gates(), Approvals(recorder)
            grants = Grants(
                operator,
                recorder,
                effects.answers,
                environment,
                ApprovalAsker(approvals),
                blocking=blocking,
            )
            requests = Requests(host, fleet, effects, Deciding(gates, approvals, grants), nursery)
            observing = Observing(host, fleet, effects, requests.invoke, nursery)
            hooks = Hooks(recorder, observing, gates)
            updates = ResourceUpdates(catalogue, requests.invoke)
            host.observer = Chronicle(recorder, hooks, effects.descriptions, catalogue, updates)
            daemon = Daemon(
                requests,
                lambda shut_down: Parts(
                    fleet=fleet,
                    facts=facts,
                    reloads=reloads,
                    effects=effects,
                    grants=grants,
                    hooks=hooks,
                    approvals=approvals,
                    prompts=requests.own.prompts,
                    refused=requests.refused,
                    catalogue=catalogue,
                    updates=updates,
                    page_codes=PageCodes(),
                    mcp=mcp or McpOptions(),
                    feed=feed,
                    shut_down=shut_down,
                    next_request_id=host.next_request_id,
                ),
            )
            try:
                fleet.admit(found)
                reloads.warn()
                yield daemon
                if not daemon.ending:
                    daemon.shut_down("the end")
                await daemon.stop_fleet()
                daemon.sessions.save()
            finally:
                blocking.begin_end()
                await fleet.abandon()
                hooks.end()
                recorder.record(
                    "daemon:stop", data={"cause": daemon.cause or "a failure"}, by=daemon.by
                )
                checks.end()
            nursery.cancel_scope.cancel()
    finally:
        log_files.close()


async def _take_over(effects: Effects, journal: Journal | None, restored: Restored | None) -> None:
    """Give the effects what was kept, and have them keep it anew should the journal lose it."""
    if journal is None:
        await effects.restore(restored, complete=True)
        return
    await effects.restore(journal.take_restored(), complete=journal.is_complete)
    journal.on_loss(effects.keep_all)


@asynccontextmanager
async def _memory(
    data_dir: Path, options: JournalOptions | None, blocking: BlockingWork
) -> AsyncIterator[tuple[Journal | None, EventFeed | None]]:
    if options is None:
        yield None, None
        return
    # Only here: who invokes a module without a daemon is not to wait for SQLite.
    from supervisor.kernel.event_feed import EventFeed  # noqa: PLC0415
    from supervisor.kernel.journal import remembering  # noqa: PLC0415

    async with remembering(data_dir, options, blocking=blocking) as journal:
        feed = EventFeed(journal, blocking)
        try:
            yield journal, feed
        finally:
            feed.close()
