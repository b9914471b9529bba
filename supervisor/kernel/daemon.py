"""The daemon as a whole: the fleet, the pipeline, the ops, and an orderly end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
import trio

from protocol.version import VERSION
from supervisor.kernel.invocations import Invocations
from supervisor.kernel.operations import Operations
from supervisor.kernel.refusal import RefusedError
from supervisor.kernel.reloads import Reloads
from supervisor.kernel.status import DaemonFacts
from supervisor.policy.findings import Found
from supervisor.runtime.custody import holding
from supervisor.runtime.directory import DescriptorFiles
from supervisor.runtime.fleet import Fleet
from supervisor.runtime.host import Host
from supervisor.runtime.log_files import LogFiles
from supervisor.runtime.watch import Watch

HURRY_AFTER_S = 30.0
"""The longest a shutdown lets modules take, whatever their own timeouts say."""

KILLED_WITHIN_S = 5.0
"""How long the killed ones may take then; what is left is named in the log."""

log = structlog.get_logger()


class Daemon:
    """A running daemon; made by `running`."""

    def __init__(
        self, fleet: Fleet, invocations: Invocations, facts: DaemonFacts, reloads: Reloads
    ) -> None:
        self.fleet = fleet
        self.reloads = reloads
        self.invocations = invocations
        self.facts = facts
        self.operations = Operations(fleet, invocations, facts, self.shut_down, reloads)
        self._ending = trio.Event()
        self._hurry = trio.Event()

    def shut_down(self, cause: str) -> None:
        """Begin the end; said again, hurry."""
        if self._ending.is_set():
            log.warning("hurrying", cause=cause)
            self._hurry.set()
        else:
            log.info("stopping", cause=cause)
            self._ending.set()

    @property
    def ending(self) -> bool:
        """Whether the end has begun."""
        return self._ending.is_set()

    async def wait_ending(self) -> None:
        """Return when the end has begun."""
        await self._ending.wait()

    async def reload(self, cause: str) -> None:
        """Apply what changed in the descriptors; at the daemon's end, do nothing."""
        try:
            await self.reloads.reload(cause)
        except RefusedError as error:
            log.info("not reloaded", cause=cause, words=error.failure.message)

    async def watch(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reload whenever a descriptor or a watched program changes, until cancelled."""
        watch = Watch(self.reloads.files, self.reloads.descriptors, self.facts.watch)
        with contextlib.suppress(RefusedError):  # the end has begun
            await watch.run(self._reload_for_watch, task_status)

    async def _reload_for_watch(self, *, if_needed: bool) -> None:
        await self.reloads.reload("a change of the files", if_needed=if_needed)

    async def stop_fleet(self) -> None:
        """Stop all modules in order, within a bound; then kill what is left, within another."""
        with trio.move_on_after(HURRY_AFTER_S + KILLED_WITHIN_S) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hurry_fleet)
                await self.fleet.stop()
                nursery.cancel_scope.cancel()
        if scope.cancelled_caught:
            self._name_survivors()

    async def _hurry_fleet(self) -> None:
        with trio.move_on_after(HURRY_AFTER_S):
            await self._hurry.wait()
        self.fleet.hurry()

    def _name_survivors(self) -> None:
        for module in self.fleet.all():
            life = module.slot.life
            for instance in [] if life is None else life.instances():
                log.error("left behind", module=module.name, instance=instance.id, pid=instance.pid)


@asynccontextmanager
async def running(
    found: Found,
    *,
    data_dir: Path,
    directories: Sequence[Path] = (),
    environment: Mapping[str, str] = os.environ,
    files: DescriptorFiles | None = None,
    containment: str | None = None,
    whole_process: bool = False,
    memory_ceiling_bytes: int | None = None,
) -> AsyncIterator[Daemon]:
    """Run a daemon around the block; at its end all modules are stopped and nothing is left.

    `files` are the directories as `found` was read from them, so that a reload reads only what
    changed since. `containment` forces a rung (`cgroup2`, `subreaper`, `process_group`): without
    it the daemon does not start. `whole_process` says that this process does nothing else, so that
    every child it did not spawn is an orphan of a module. `memory_ceiling_bytes` bounds all modules
    together: above it the biggest is ended first. Raises `ContainmentError`, and `DataInUseError`
    if another daemon has `data_dir`.
    """
    if files is None:
        files = DescriptorFiles(directories)
    log_files = LogFiles(data_dir / "logs")
    try:
        async with (
            holding(data_dir, containment=containment, whole_process=whole_process) as custody,
            trio.open_nursery() as nursery,
        ):
            host = Host(environment, log_files, custody, memory_ceiling_bytes=memory_ceiling_bytes)
            nursery.start_soon(host.sampler.run)
            nursery.start_soon(host.deadlines.run)
            fleet = Fleet(host, nursery)
            facts = DaemonFacts(
                pid=os.getpid(),
                version=VERSION,
                started_at=trio.current_time(),
                custody=custody,
                data_dir=str(data_dir),
                directories=[str(directory) for directory in directories],
                log_files=log_files,
            )
            reloads = Reloads(host, fleet, files, found)
            daemon = Daemon(fleet, Invocations(host, fleet.modules), facts, reloads)
            fleet.admit(found)
            try:
                yield daemon
                if not daemon.ending:
                    daemon.shut_down("the end")
                await daemon.stop_fleet()
            finally:
                fleet.abandon()
            nursery.cancel_scope.cancel()
    finally:
        log_files.close()
