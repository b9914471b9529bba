"""What was done, what came back, and what was lost: the report of a soak."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

OWN_BYTES: Final = 150 << 20
"""What the daemon's memory must stay under, beside what its ledger says that it held for others
(`supervisor.runtime.held_bytes`): itself, a thousand modules, and what one turn takes."""

STALL_MS: Final = 50.0
"""For so long the daemon's event loop may be held up by its own doing."""

SHOWN: Final = 20


@dataclass
class Tally:
    """Everything that is counted; what stands in one of the lists is a fault."""

    seed: int
    seconds: float = 0.0
    actions: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of the answered requests: `ok`, or code and reason."""
    asked: int = 0
    closed_by_us: int = 0
    """Requests whose client hung up."""
    closed_by_kill: int = 0
    """Requests that were open when the daemon was killed."""
    daemons: int = 0
    peak_bytes: int = 0
    """Of the daemon that had most beside what it held."""
    held_bytes: int = 0
    """The most that this one ever held for others."""
    patient: bool = False
    """Whether nothing that took long is a fault."""
    suspensions: int = 0
    unhurried: int = 0
    """How many requests were in flight when the daemon was suspended, and had time enough."""
    late: list[str] = field(default_factory=list)
    """Those of them that ended by their deadline."""
    refused_connections: int = 0
    """Of crowds."""
    deliberate_stall: dict[str, Any] | None = None
    """What the last daemon told of one."""
    longest_stall: dict[str, Any] | None = None
    """As the daemons told it; of all of them the longest."""
    lost: list[str] = field(default_factory=list)
    """Requests that had no outcome, or more than one."""
    processes_left: list[str] = field(default_factory=list)
    files_left: list[str] = field(default_factory=list)
    series: int = 0
    """In the last answer to a scrape."""
    metrics: list[str] = field(default_factory=list)
    """Where they differed from `status`."""
    errors: list[str] = field(default_factory=list)
    """What the daemon itself logged as an error, or how it ended if not in order."""

    @property
    def answered(self) -> int:
        """How many requests got their outcome."""
        return self.outcomes.total()

    @property
    def own_bytes(self) -> int:
        """What a daemon had beside what it held for others."""
        return self.peak_bytes - self.held_bytes

    def note(self, daemon: dict[str, Any], peak_bytes: int) -> None:
        """Take note of what a daemon says of itself before its end, and of its memory."""
        held = daemon["held_bytes"]["most"]
        if peak_bytes - held > self.own_bytes:
            self.peak_bytes, self.held_bytes = peak_bytes, held
        self.suspensions += daemon["suspensions"]["count"]
        self.refused_connections += daemon["connections"]["refused"]
        found = daemon["longest_stall"]
        if found is not None and found["ms"] > self._longest_ms:
            self.longest_stall = found

    def scraped(self, differences: list[str], text: str) -> None:
        """Take note of the metrics of an idle daemon, and of where they are not its status."""
        self.metrics += differences
        self.series = sum(not line.startswith("#") for line in text.splitlines())

    @property
    def _longest_ms(self) -> float:
        return 0.0 if self.longest_stall is None else float(self.longest_stall["ms"])

    @property
    def _stall(self) -> str:
        found = self.longest_stall
        if found is None:
            return "none"
        return f"{found['ms']:g} ms, {found['culprit'] or 'nobody known'} ({found['doing']})"

    @property
    def faults(self) -> list[str]:
        """All that must not be, in words."""
        found = [f"lost: {one}" for one in self.lost]
        if not self.patient:
            found += [f"late by a suspension alone: {one}" for one in self.late]
        found += [f"process left: {one}" for one in self.processes_left]
        found += [f"descriptor left: {one}" for one in self.files_left]
        found += [f"error: {one}" for one in self.errors]
        found += [f"metrics: {one}" for one in self.metrics]
        if self.own_bytes > OWN_BYTES:
            words = f"{self.own_bytes >> 20} MB beside what it held for others"
            found.append(f"the daemon's memory had {words}; {OWN_BYTES >> 20} are expected")
        if self._longest_ms > STALL_MS and not self.patient:
            found.append(f"the event loop did not come round for {self._stall}")
        away = self.closed_by_us + self.closed_by_kill
        if not self.lost and self.asked != self.answered + away:
            found.append(f"of {self.asked} requests, {self.answered + away} are accounted for")
        return found

    def document(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        made = dict(vars(self))
        made |= {"answered": self.answered, "faults": self.faults, "clean": not self.faults}
        return made

    def text(self) -> str:
        """Return the report as people read it."""
        rows = [
            ("seed", str(self.seed)),
            ("time", f"{self.seconds:.0f} s"),
            ("actions", f"{self.actions.total()}: {_counted(self.actions)}"),
            ("requests", f"{self.asked}, answered {self.answered}"),
            ("", f"open when their client hung up: {self.closed_by_us}"),
            ("", f"open when the daemon was killed: {self.closed_by_kill}"),
            ("outcomes", _counted(self.outcomes)),
            ("in time", f"{self.unhurried - len(self.late)} of {self.unhurried} while suspended"),
            ("lost", str(len(self.lost) or "nothing")),
            ("daemon", f"started {self.daemons} times"),
            ("memory", f"peak {self.peak_bytes >> 20} MB, {self.held_bytes >> 20} held for others"),
            ("stall", f"longest {self._stall}; suspended {self.suspensions} times"),
            ("crowds", f"{self.refused_connections} connections refused"),
            (
                "metrics",
                f"{self.series} series, {len(self.metrics) or 'none'} other than in status",
            ),
            ("left", f"{len(self.processes_left) or 'no'} processes,"),
            ("", f"{len(self.files_left) or 'no'} file descriptors"),
        ]
        lines = [f"{name:10}{value}" for name, value in rows]
        faults = self.faults
        lines += [f"FAULT     {one}" for one in faults[:SHOWN]]
        if len(faults) > SHOWN:
            lines.append(f"          and {len(faults) - SHOWN} more")
        return "\n".join([*lines, "clean" if not faults else f"NOT clean: {len(faults)} faults"])


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counter.most_common())
