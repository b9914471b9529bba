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
class Report:
    """Everything that is counted; what stands in one of the lists is a fault."""

    seed: int
    patient: bool = False
    """Whether nothing that took long is a fault."""
    seconds: float = 0.0
    daemons: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of the answered requests: `ok`, or code and reason."""
    closed_by_us: int = 0
    """Requests whose client hung up."""
    closed_by_kill: int = 0
    """Requests that were open when the daemon was killed."""
    peak_bytes: int = 0
    """Of the daemon that had most beside what it held."""
    held_bytes: int = 0
    """The most that this daemon ever held for others."""
    suspensions: int = 0
    unhurried: int = 0
    """Requests in flight when the daemon was suspended, that had time enough."""
    refused_connections: int = 0
    """Of crowds."""
    deliberate_stall: dict[str, Any] | None = None
    """As the last daemon told it."""
    longest_stall: dict[str, Any] | None = None
    """Of all daemons, as they told it."""
    series: int = 0
    """In the last answer to a scrape."""
    lost: list[str] = field(default_factory=list)
    """Requests that had no outcome, or more than one."""
    late: list[str] = field(default_factory=list)
    """Unhurried requests that ended by their deadline."""
    processes_left: list[str] = field(default_factory=list)
    files_left: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    """Where they differed from `status`."""
    errors: list[str] = field(default_factory=list)
    """What the daemon itself logged as an error, or how it ended if not in order."""

    def note(self, daemon: dict[str, Any], peak_bytes: int) -> None:
        """Take what a daemon says of itself before its end, and its memory."""
        held = daemon["held_bytes"]["most"]
        if peak_bytes - held > self.peak_bytes - self.held_bytes:
            self.peak_bytes, self.held_bytes = peak_bytes, held
        self.suspensions += daemon["suspensions"]["count"]
        self.refused_connections += daemon["connections"]["refused"]
        stalls = [one for one in (self.longest_stall, daemon["longest_stall"]) if one is not None]
        self.longest_stall = max(stalls, key=lambda one: float(one["ms"]), default=None)

    def faults(self) -> list[str]:
        """Return all that must not be, in words."""
        found = [f"lost: {one}" for one in self.lost]
        found += [f"process left: {one}" for one in self.processes_left]
        found += [f"descriptor left: {one}" for one in self.files_left]
        found += [f"error: {one}" for one in self.errors]
        found += [f"metrics: {one}" for one in self.metrics]
        own_bytes = self.peak_bytes - self.held_bytes
        if own_bytes > OWN_BYTES:
            words = f"{own_bytes >> 20} MB beside what it held for others"
            found.append(f"the daemon's memory had {words}; {OWN_BYTES >> 20} are expected")
        if not self.patient:
            found += [f"late by a suspension alone: {one}" for one in self.late]
            if self.longest_stall is not None and self.longest_stall["ms"] > STALL_MS:
                found.append(f"the event loop did not come round for {self._stall()}")
        accounted = self.outcomes.total() + self.closed_by_us + self.closed_by_kill
        if not self.lost and self.asked != accounted:
            found.append(f"of {self.asked} requests, {accounted} are accounted for")
        return found

    def document(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        faults = self.faults()
        more = {"answered": self.outcomes.total(), "faults": faults, "clean": not faults}
        return dict(vars(self)) | more

    def text(self) -> str:
        """Return the report as people read it."""
        faults = self.faults()
        rows = {name.replace("_", " "): _shown(value) for name, value in vars(self).items()}
        rows["longest stall"] = self._stall()
        lines = [f"{name:20}{words}" for name, words in rows.items()]
        lines += [f"FAULT {one}" for one in faults[:SHOWN]]
        lines += [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        return "\n".join([*lines, f"NOT clean: {len(faults)} faults" if faults else "clean"])

    def _stall(self) -> str:
        found = self.longest_stall
        if found is None:
            return "none"
        return f"{found['ms']:g} ms, {found['culprit'] or 'nobody known'} ({found['doing']})"


def _shown(value: Any) -> str:
    match value:
        case Counter():
            most = ", ".join(f"{name} {number}" for name, number in value.most_common())
            return f"{value.total()}: {most}"
        case list():
            return str(len(value) or "none")
        case _:
            return str(value)
