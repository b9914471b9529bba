"""The report of a soak: everything that is counted, and all that must not be."""

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
"""So many faults are shown to people."""
FAULTS: Final = {
    "lost": "lost",
    "processes_left": "process left",
    "files_left": "descriptor left",
    "errors": "error",
}
"""Lists of the report that have to be empty, and what is said of their entries."""


@dataclass
class Report:
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
    """As the daemons told them."""
    unhurried: int = 0
    """Requests in flight when the daemon was suspended, that had time enough."""
    refused_connections: int = 0
    """Of crowds."""
    longest_stall: dict[str, Any] | None = None
    """Of all daemons, as they told it."""
    lost: list[str] = field(default_factory=list)
    """Requests that had no outcome, or more than one."""
    late: list[str] = field(default_factory=list)
    """Unhurried requests that ended by their deadline."""
    processes_left: list[str] = field(default_factory=list)
    files_left: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What the daemon itself logged as an error, or how it ended if not in order."""

    def note(self, daemon: dict[str, Any], peak_bytes: int) -> None:
        """Take what a daemon says of itself before its end, and its memory."""
        held = daemon["held_bytes"]["most"]
        if peak_bytes - held > self.peak_bytes - self.held_bytes:
            self.peak_bytes, self.held_bytes = peak_bytes, held
        self.suspensions += daemon["suspensions"]["count"]
        self.refused_connections += daemon["connections"]["refused"]
        stalls = filter(None, (self.longest_stall, daemon["longest_stall"]))
        self.longest_stall = max(stalls, key=lambda one: float(one["ms"]), default=None)

    def faults(self) -> list[str]:
        """Return all that must not be, in words."""
        found = [f"{words}: {one}" for name, words in FAULTS.items() for one in getattr(self, name)]
        own_bytes = self.peak_bytes - self.held_bytes
        if own_bytes > OWN_BYTES:
            words = f"{own_bytes >> 20} MB beside what it held for others"
            found.append(f"the daemon's memory had {words}; {OWN_BYTES >> 20} are expected")
        if not self.patient:
            found += [f"late by a suspension alone: {one}" for one in self.late]
            if self.longest_stall is not None and self.longest_stall["ms"] > STALL_MS:
                found.append(f"the event loop did not come round for {self._stall()}")
        if self.suspensions < (made := self.actions["suspend"]):
            found.append(f"of {made} suspensions, {self.suspensions} were told by the daemon")
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
        faults = self.faults()
        rows = dict(vars(self)) | {"longest_stall": self._stall()}
        lines = [f"{name.replace('_', ' '):20}{_shown(value)}" for name, value in rows.items()]
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
