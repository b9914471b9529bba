"""What is measured and what it has to reach: the rows, as data, and the verdict on their samples.

A row has samples of ours and of its peers, by contender, one per round. A target holds the median
of the rounds' ratios ours/peer (both sides of a ratio were measured next to each other), or the
median of ours alone where the unit says it all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import NamedTuple

OURS = "stdiod"
RAW = "raw pipe + orjson.loads"
C = "C"
NODE = "Node"
COLD = "cold"


class Sample(NamedTuple):
    """One figure of one round."""

    row: str
    contender: str
    value: float


@dataclass(frozen=True)
class Target:
    """A bound on the ratio to a peer, or on our own figure if there is no peer."""

    bound: float
    at_least: bool
    peer: str | None = None

    def __str__(self) -> str:
        """Say it in a few words."""
        words = f"at {'least' if self.at_least else 'most'} {self.bound:g}"
        return words if self.peer is None else f"{words} x {self.peer}"

    def met_by(self, figure: float) -> bool:
        """Tell whether a median reaches it."""
        return figure >= self.bound if self.at_least else figure <= self.bound


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    title: str
    unit: str
    targets: tuple[Target, ...] = ()
    not_measured: tuple[str, ...] = ()
    """Peers that a target names and that are not part of this run."""


class Verdict(StrEnum):
    """What became of a target."""

    MET = "met"
    SHORT = "falls short"
    UNKNOWN = "peer not measured here"


@dataclass(frozen=True)
class Figures:
    """The samples of one contender."""

    median: float
    spread: float
    """Largest minus smallest, as a share of the median."""
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    """A row and what was found."""

    row: Row
    figures: Mapping[str, Figures]
    ratios: Mapping[str, float]
    """Of ours to each peer: the median of the rounds' ratios."""

    def verdicts(self) -> list[tuple[Target, Verdict]]:
        """Judge each target."""
        judged: list[tuple[Target, Verdict]] = []
        for target in self.row.targets:
            if target.peer is None:
                figure = self.figures[OURS].median if OURS in self.figures else None
            else:
                figure = self.ratios.get(target.peer)
            if figure is None:
                judged.append((target, Verdict.UNKNOWN))
            else:
                judged.append((target, Verdict.MET if target.met_by(figure) else Verdict.SHORT))
        return judged


STREAM = Row(
    "event stream of one module, validated, to one subscriber",
    "events/s",
    (Target(0.5, at_least=True, peer=RAW),),
    ("Node readline", "asyncio"),
)
PATCHES = Row("state patches of one module, merged in a session, told and durable", "patches/s")
PATCHES_MEMORY = Row("state patches: memory that they leave", "MB", (Target(8.0, at_least=False),))
PATCHES_SIZE = Row("state patches: 100,000 of them in the journal", "MB")
PATCHES_READ = Row("state patches: read back with `events`", "entries/s")
INVOKE_ONE = Row(
    "invoke, one at a time, in process",
    "calls/s",
    (Target(1.0, at_least=True, peer=NODE),),
    ("MCP SDK (5 x)",),
)
INVOKE_MANY = Row(
    "invoke, 64 at a time, in process",
    "calls/s",
    (Target(0.5, at_least=True, peer=NODE),),
    ("MCP SDK (15 x)",),
)
SOCKET_ONE = Row(
    "invoke, one at a time, over the control socket",
    "calls/s",
    not_measured=("MCP SDK (1 x)",),
)
SOCKET_MANY = Row(
    "invoke, 64 at a time, over the control socket",
    "calls/s",
    not_measured=("MCP SDK (5 x)",),
)
TOOL = Row(
    "per-invocation native tool",
    "ms",
    (Target(1.5, at_least=False, peer=C),),
    ("trio.run_process", "Node spawn"),
)
WARM = Row(
    "per-invocation Python tool, warm",
    "ms",
    (Target(0.1, at_least=False, peer=COLD),),
)
WARM_SHUTDOWN = Row("the same, the interpreter's shutdown included", "ms")
CRASH = Row(
    "crash (SIGKILL) to ready again",
    "ms",
    (Target(15.0, at_least=False),),
    ("supervisord", "s6", "circus"),
)
FLEET_START = Row(
    "200 persistent modules: start (`stdiod up`)",
    "s",
    (Target(1.5, at_least=False),),
    ("supervisord", "circus"),
)
FLEET_IDLE = Row("200 persistent modules: idle CPU", "%", (Target(0.5, at_least=False),))
FLEET_MEMORY = Row("200 persistent modules: daemon RSS", "MB", (Target(60.0, at_least=False),))
FLEET_STOP = Row(
    "200 persistent modules: stop (`stdiod down`)", "s", (Target(1.5, at_least=False),)
)
VERSION = Row("`stdiod --version`", "ms", (Target(80.0, at_least=False),))
STATUS = Row("`stdiod status`", "ms", (Target(150.0, at_least=False),))
JOURNAL_WRITE = Row("journal: 1,000,000 entries written, durable", "entries/s")
JOURNAL_READ = Row("journal: the same read back with `events`", "entries/s")
JOURNAL_SIZE = Row("journal: the same on disk", "MB")
JOURNAL_MEMORY = Row("journal: memory grown meanwhile", "MB", (Target(64.0, at_least=False),))

ROWS = (
    STREAM,
    PATCHES,
    PATCHES_MEMORY,
    PATCHES_SIZE,
    PATCHES_READ,
    INVOKE_ONE,
    INVOKE_MANY,
    SOCKET_ONE,
    SOCKET_MANY,
    TOOL,
    WARM,
    WARM_SHUTDOWN,
    CRASH,
    FLEET_START,
    FLEET_IDLE,
    FLEET_MEMORY,
    FLEET_STOP,
    VERSION,
    STATUS,
    JOURNAL_WRITE,
    JOURNAL_READ,
    JOURNAL_SIZE,
    JOURNAL_MEMORY,
)


def results(rounds: Sequence[Sequence[Sample]]) -> list[Result]:
    """Sum the rounds up, row by row; a row without a sample is left out."""
    found: list[Result] = []
    for row in ROWS:
        by_round = [
            {sample.contender: sample.value for sample in samples if sample.row == row.title}
            for samples in rounds
        ]
        contenders = list(dict.fromkeys(name for values in by_round for name in values))
        if not contenders:
            continue
        figures = {
            name: _figures([values[name] for values in by_round if name in values])
            for name in contenders
        }
        ratios = {
            name: median(
                values[OURS] / values[name]
                for values in by_round
                if OURS in values and values.get(name)
            )
            for name in contenders
            if name != OURS
        }
        found.append(Result(row, figures, ratios))
    return found


def _figures(samples: Sequence[float]) -> Figures:
    middle = median(samples)
    spread = (max(samples) - min(samples)) / middle if middle else 0.0
    return Figures(middle, spread, tuple(samples))
