"""Strays: orphans that show nothing of whose they are.

It is not known which instance one of them came of, so each is named as a possible survivor of all
that may have started it. It dies with the daemon; or before, once no instance can own it any more.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog
import trio

from protocol.problem import without_password
from supervisor.policy.verdict import Suspect
from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment import hunt, procfs
from supervisor.runtime.containment.contained import Rung
from supervisor.runtime.containment.guardianship import Guardianship
from supervisor.runtime.containment.ledger import Adopted
from supervisor.runtime.containment.orphans import Orphans
from supervisor.runtime.containment.procfs import MISSED, Stat

TOLD = 10
"""So many new strays of one look have a line each in the log."""

log = structlog.get_logger()


class Stray(NamedTuple):
    process: Stat
    command: str


class Survey(NamedTuple):
    """The strays at one look."""

    number: float
    """That of the look (`orphans.Looked`); a half more for a look at the short list alone."""
    strays: dict[int, Stray]


class Strays:
    def __init__(
        self,
        orphans: Orphans,
        rung: Rung,
        guardianship: Guardianship | None,
        blocking: BlockingWork,
        *,
        whole_process: bool,
    ) -> None:
        """`guardianship` kills them should the daemon die."""
        self._orphans = orphans
        self._rung = rung
        self._guardianship = guardianship
        self._blocking = blocking
        self._whole_process = whole_process
        self._strays: dict[int, Stray] = {}
        self._number = -1.0
        """That of the newest survey."""
        self._ownerless = trio.Event()
        """Set when some have to be ended, since no instance can own them any more."""

    @property
    def may_be_any(self) -> bool:
        """Whether `look` has any process to look at; cheap."""
        return self._orphans.may_be_left()

    def possible_survivors(self, since: int = 0) -> tuple[Suspect, ...]:
        """Return the strays that lived at the last look.

        `since` leaves out those that started before (clock ticks since boot); left out are also
        those that are about to be killed.
        """
        if not self._strays:
            return ()
        ownerless = self._orphans.ownerless(one.process for one in self._strays.values())
        if ownerless:
            self._ownerless.set()
        return tuple(
            Suspect(pid, without_password(one.command))
            for pid, one in self._strays.items()
            if one.process.start >= since and one.process not in ownerless
        )

    async def look(self) -> None:
        """Find the instances of the orphans, and reap those that have ended; if there are any.

        There is no event for an adoption: called whenever a child has ended, and by status.
        """
        survey = self.nobody()
        if self.may_be_any:
            survey = await self._blocking.run("looking at orphans", self.survey, in_any_case=True)
        self.take_in(survey)

    async def run(self) -> None:
        """Look again whenever no instance can own some any more; until cancelled."""
        while True:
            await self._ownerless.wait()
            self._ownerless = trio.Event()
            await self.look()

    def survey(self) -> Survey:
        """Look at all, and kill those that no instance can own any more; for threads."""
        missed = MISSED.count
        looked = self._orphans.look()
        strays = [one for one in looked.strays if not self._rung.holds(one)]
        ownerless = self._orphans.ownerless(strays)
        if ownerless:
            everybody = procfs.every_process
            hunt.strike(lambda: hunt.with_descendants(ownerless, everybody()))
        self._orphans.collect()
        held = self._strays
        found: dict[int, Stray] = {}
        for one in strays:
            if one in ownerless:
                continue
            known = held.get(one.pid)
            if known is None or known.process.start != one.start:
                known = Stray(one, procfs.command(one.thread))
                self._rung.hold_stray(one)
            found[one.pid] = known
        if MISSED.count != missed:  # a process that was not seen is not gone
            self._orphans.put_off = self._whole_process
            found = {**held, **found}
        return Survey(looked.number, found)

    def nobody(self) -> Survey:
        """Return the survey of a short list without orphans: it is newer than all looks so far."""
        return Survey(self._orphans.looks_begun + 0.5, {})

    def take_in(self, survey: Survey) -> None:
        """Replace what is known by a survey, unless a newer one was faster."""
        if survey.number <= self._number:
            return
        self._number, strays = survey
        if not self._strays and not strays:
            return
        former, self._strays = self._strays, strays
        known = {(pid, one.process.start) for pid, one in former.items()}
        now = {(pid, one.process.start) for pid, one in strays.items()}
        new = [one for one in strays.values() if (one.process.pid, one.process.start) not in known]
        if self._guardianship is not None:
            for pid, _ in known - now:
                self._guardianship.unregister_stray(pid)
            for one in new:
                self._guardianship.register_stray(Adopted(one.process.pid, one.process.start))
        for one in new[:TOLD]:
            pid, command = one.process.pid, one.command
            log.warning("an orphan does not show which module started it", pid=pid, command=command)
        if len(new) > TOLD:
            log.warning("there are more such orphans", more=len(new) - TOLD)
