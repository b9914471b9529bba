"""Reload: read the descriptors, compare with what runs, apply; one at a time, each counted.

Sources of descriptors come and go by a reload, too. A lent source goes when its owner leaves the
block, in any way: at that moment it has no modules any more for readers of the sources, and the
reload that removes them is the daemon's own task, which no cancelling of the owner ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
import trio

from protocol.descriptor.model import Descriptor
from protocol.errors import Reason
from supervisor.kernel.parties import RefusedError
from supervisor.policy.findings import Found, QuarantinedFile
from supervisor.policy.hook_findings import hook_findings
from supervisor.policy.policy_file import PolicyError, PolicyFile
from supervisor.policy.reload_plan import ReloadPlan, Running, plan, runnable
from supervisor.runtime.files.sources import Source, Sources
from supervisor.runtime.files.watch import Watch
from supervisor.runtime.files.watched_paths import Interests, on_the_way
from supervisor.runtime.process.preflight import first_obstacle
from supervisor.runtime.supervision.succession import Succession

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

log = structlog.get_logger()


class LastReload(msgspec.Struct, frozen=True):
    """The numbers of the last reload, as `status` shows them; `ts` is Unix time (s)."""

    number: int
    ts: float
    cause: str
    duration_ms: int
    added: int
    removed: int
    changed: int
    unchanged: int
    quarantined: int


class Reloads:
    def __init__(self, kernel: Kernel, sources: Sources, found: Found) -> None:
        """Begin with what was `found`; the policy is read again with each reload."""
        self.count = 0
        self.last: LastReload | None = None
        self.sources = sources
        self._kernel = kernel
        self._host, self._fleet = kernel.host, kernel.fleet
        self._threads = self._host.registry.threads
        self.watch = Watch(sources, kernel.facts.watch, self._threads)
        self._programs: Mapping[str, Mapping[str, str]] = found.programs
        self._quarantined = found.quarantined
        self._one_at_a_time = trio.Lock()

    async def reload(
        self, cause: str, *, if_needed: bool = False, again: bool = False
    ) -> ReloadPlan:
        """Apply what changed and return it; raises `RefusedError` once the daemon is stopping.

        Returns when the modules have been told, not when they are ready: `wait` waits for that.
        With `if_needed`, a reload that finds nothing is not counted. With `again`, modules that
        failed are tried once more.
        """
        async with self._one_at_a_time:
            began = trio.current_time()
            policy = await self._look_at_policy()
            found = await self._plan(again=again)
            same = found.empty and not found.moved
            if if_needed and same and found.quarantined == self._quarantined:
                return found
            # Not cancelled from here on: all of it is done, however long that takes, and counted.
            self._kernel.grants.operator.take(policy)
            self._programs, self._quarantined = found.programs, found.quarantined
            await self._fleet.apply(found)
            self.count += 1
            self.last = LastReload(
                number=self.count,
                ts=self._host.wall_clock(),
                cause=cause,
                duration_ms=round((trio.current_time() - began) * 1000),
                added=len(found.added),
                removed=len(found.removed),
                changed=len(found.changed),
                unchanged=len(found.unchanged),
                quarantined=len(found.quarantined),
            )
            log.info("reloaded", **_shown(found), **msgspec.to_builtins(self.last))
            self.warn()
            self._fleet.notify()
            return found

    def warn(self) -> None:
        """Log what policy and hooks probably do not mean, given the modules."""
        self._kernel.grants.operator.warn(self._fleet.modules)
        modules = [one.descriptor for one in self._fleet.modules.values()]
        for descriptor in modules:
            for finding in hook_findings(descriptor, modules):
                log.warning("hook", module=descriptor.name, words=str(finding))

    @asynccontextmanager
    async def lend(self, source: Source) -> AsyncIterator[Callable[[], Awaitable[ReloadPlan]]]:
        """Add the modules of a source for as long as the block lasts.

        Yields the function that its owner calls after a change. Raises `RefusedError` once the
        daemon is stopping, `ValueError` if there is a source of this owner.
        """
        self._refuse_at_the_end()
        self.sources.add(source)
        try:
            await self.reload(f"{source.owner} came")
            yield partial(self.reload, f"{source.owner} changed")
        finally:
            self.sources.remove(source)
            if not self._host.shutting_down:  # then all modules are being stopped
                done = trio.Event()
                self._kernel.nursery.start_soon(self._reload_without, source, done)
                await done.wait()

    async def _reload_without(self, source: Source, done: trio.Event) -> None:
        try:
            with suppress(RefusedError):
                await self.reload(f"{source.owner} is gone")
        finally:
            done.set()

    async def rehearse(self) -> ReloadPlan:
        """Return what a reload would do; raises `RefusedError` once the daemon is stopping."""
        async with self._one_at_a_time:
            return await self._plan(again=True)

    async def policy_problem(self) -> str | None:
        """Return why the policy file in its current form is not in use."""
        seen = await self._look_at_policy()
        return str(seen) if isinstance(seen, PolicyError) else None

    async def wait_decided(self, applied: ReloadPlan) -> list[QuarantinedFile]:
        """Return which changed modules keep their old descriptor, once that is known of all."""
        modules = self._fleet.modules
        names = [one.descriptor.name for one in applied.changed]

        def of_those_there() -> list[Succession]:
            return [modules[name].succession for name in names if name in modules]

        await self._fleet.wait_until(
            lambda: None if any(one.undecided for one in of_those_there()) else True
        )
        return [one.refused for one in of_those_there() if one.refused is not None]

    async def _look_at_policy(self) -> PolicyFile | PolicyError:
        return await self._threads.run("reading the policy", self._kernel.grants.operator.look)

    async def wait_for(self, number: int) -> LastReload:
        """Return once so many reloads have been applied."""
        return await self._fleet.wait_until(lambda: self.last if self.count >= number else None)

    def descriptors(self) -> dict[str, Any]:
        """Return the last content of the modules' files, by name."""
        return {name: one.succession.offered for name, one in self._fleet.modules.items()}

    async def _plan(self, *, again: bool) -> ReloadPlan:
        self._refuse_at_the_end()
        descriptors = self.descriptors()
        modules = self._fleet.modules.items()
        current = {
            name: Running(
                one.descriptor,
                self._programs.get(name),
                one.succession.offered,
                again and one.succession.refused is not None,
            )
            for name, one in modules
        }

        def read_and_compare() -> ReloadPlan:
            return plan(current, self.sources.read(descriptors))

        # In a thread: ten thousand files, or one on a slow disk, are not to hold up the modules.
        # If it is cancelled, the next one waits until it is done.
        doing = "reading the descriptors and their programs"
        found = await self._threads.run(doing, read_and_compare)
        obstacles = await self._obstacles(found)
        hopeless = {name for name, one in self._fleet.modules.items() if one.succession.hopeless}
        words = {name: one for name, (one, _) in obstacles.items()}
        found = runnable(found, words, current, hopeless)
        self.sources.interests.update(*(interests for _, interests in obstacles.values()))
        self.watch.follow_anew()
        self._refuse_at_the_end()
        return found

    async def _obstacles(self, found: ReloadPlan) -> dict[str, tuple[str, Interests]]:
        """Return what keeps programs of new and changed modules from running, by module name.

        That is as far as the disk answers; with the words comes what to watch until they can run.
        """
        used = [*found.added, *(one.descriptor for one in found.changed)]
        looks = {
            one.name: (f"looking whether {one.name} can be run", partial(self._obstacle, one))
            for one in used
            if one.enabled
        }
        if not looks:
            return {}
        do = partial(self._threads.look_at_each, looks.values())
        seen = await self._threads.run("looking whether programs can be run", do)
        return {name: one for name, one in zip(looks, seen, strict=True) if isinstance(one, tuple)}

    def _obstacle(self, descriptor: Descriptor) -> tuple[str, Interests] | None:
        seen = first_obstacle(descriptor, self._host.environment)
        if seen is None:
            return None
        return seen.words, set() if seen.path is None else set(on_the_way(seen.path))

    def _refuse_at_the_end(self) -> None:
        if self._host.shutting_down:
            raise RefusedError.because(Reason.SHUTDOWN, "the daemon is stopping")


def _shown(found: ReloadPlan) -> dict[str, Any]:
    """Return the names for the log; values may be secrets, and stay out of it."""
    return {
        "modules_added": [one.name for one in found.added][:SHOWN],
        "modules_removed": [one.name for one in found.removed][:SHOWN],
        "modules_changed": [one.descriptor.name for one in found.changed][:SHOWN],
    }


SHOWN = 20
"""How many names a log line holds."""
