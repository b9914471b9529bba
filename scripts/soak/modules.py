"""The modules of a soak: well-behaved samples, and the tests' misbehaving one in several forms."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from scripts.checkout import ROOT

MISBEHAVE: Final = ROOT / "tests" / "system" / "misbehave.py"
DICE: Final = ROOT / "modules" / "dice"

SUPERVISION: Final = {
    # Lazy, so that a daemon without clients has no process, and its descriptors can be compared.
    "start": "lazy",
    "timeouts": {"exit_s": 0.3, "stop_s": 0.5, "health_s": 1, "start_s": 20, "invoke_s": 5},
    "backoff": {"initial_s": 0.05, "factor": 2, "max_s": 1},
    "intensity": 20,
    "period_s": 10,
    "retry_failed_s": 1,
    "queue": 64,
}
POOL: Final = {"min": 0, "max": 3, "idle_stop_s": 1, "max_requests": 20, "max_age_s": 5}
FORMS: Final[dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]]] = {
    # name: words of the command line, transport, supervision
    "plain": ([], {}, {}),
    "many": ([], {}, {"concurrency": 8}),
    "nameless": (["ids=no"], {}, {}),
    "slow_start": (["starting=3"], {}, {}),
    "stubborn": (["start=ignore_sigterm"], {}, {}),
    "talker": (["start=stderr", "bytes=100000"], {}, {}),
    "leaf": ([], {}, {"depends_on": ["plain"]}),
    "crasher": (["start=exit", "code=7"], {}, {}),
    "once": ([], {"lifecycle": "per-invocation"}, {"concurrency": 4}),
    "tool": (["speaks=events"], {"protocol": "narratoria"}, {"concurrency": 4}),
    "warm": (["speaks=events"], {"protocol": "narratoria"}, {"concurrency": 4, "warm": 2}),
    "pool": ([], {}, {"concurrency": 4, "instances": POOL}),
    "picky": ([], {}, {"concurrency": 4}),
}
PICKY: Final = "picky"
"""The module whose schema backtracks."""
BACKTRACKS: Final = {"go": {"properties": {"word": {"type": "string", "pattern": "^(a+)+$"}}}}
CALM: Final = "calm"
"""A module that nobody kills, holds or changes."""
EXTRAS: Final = 1000
"""Modules that nobody calls, but for those who misspell their names."""

MANY_VALUES: Final = 450_000
FLOOD: Final = {"fault": "flood", "events": 20_000}
BIG_ANSWER: Final = {"fault": "big_answer", "bytes": 4 << 20}
CALLS: Final[tuple[tuple[int, dict[str, Any]], ...]] = (
    # how often, and the arguments
    (30, {"word": "hello"}),
    (10, {"fault": "event+event"}),
    (5, {"fault": "not_ok"}),
    (3, FLOOD),
    (3, {"fault": "stderr", "bytes": 5_000_000}),
    (1, {"fault": "long_line", "bytes": 20_000_000}),
    (2, {"fault": "hang"}),
    (2, {"fault": "silent"}),
    (3, {"fault": "exit", "code": 3}),
    (3, {"fault": "die", "signal": 11}),
    (1, {"fault": "close_stdout+hang"}),
    (1, {"fault": "close_stdin+hang"}),
    (1, {"fault": "ignore_sigterm+hang"}),
    (2, {"fault": "grandchild"}),
    (2, {"fault": "escapee"}),
    (2, {"fault": "headless"}),
    (1, {"fault": "stop_self"}),
    (1, {"fault": "done+spin"}),
    (2, {"fault": "banner+bad_utf8+nul"}),
    (1, {"fault": "half_line+exit"}),
    (1, {"fault": "two_done"}),
    (1, {"fault": "many_values", "values": MANY_VALUES}),
)


class Modules:
    """The descriptors in a folder, and what may be asked of their modules."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder, self.draw = folder, draw
        self._variants = dict.fromkeys(FORMS, 0)
        folder.mkdir()
        self.write(*FORMS)
        self._describe(CALM, "many")
        for number in range(EXTRAS):
            self._describe(f"extra-{number:03}", "plain")
        # A sample with its own program, in its own folder, as an operator would install it.
        sample = json.loads((DICE / "module.json").read_text())
        sample["transport"]["cwd"] = str(DICE)
        sample["supervision"] = {"start": "lazy"}
        (folder / "dice.json").write_text(json.dumps(sample))

    def any_name(self) -> str:
        """Return one that may be killed, held and changed."""
        return self.draw.choice(list(FORMS))

    def write(self, *names: str, changed: bool = False) -> None:
        """Write descriptors again, as they are or changed."""
        for name in names:
            self._variants[name] += changed
            self._describe(name, name)

    def replace(self, name: str, make: Callable[[Path], Any]) -> None:
        """Put something in the place of a descriptor, in one step: it may be a pipe."""
        new = self.folder / f".{name}.new"
        make(new)
        new.replace(self.folder / f"{name}.json")

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def call(self) -> tuple[str, str, dict[str, Any]]:
        if self.draw.random() < 0.1:  # noqa: PLR2004 - one in ten
            return "dice", "roll", {"dice": "3d6"}
        weights, calls = zip(*CALLS, strict=True)
        return self.any_name(), "go", self.draw.choices(calls, weights)[0]

    def _describe(self, name: str, form: str) -> None:
        words, transport, supervision = FORMS[form]
        document = {
            "name": name,
            "kind": "tool",
            "capabilities": [],
            "inputs": BACKTRACKS if form == PICKY else {},
            "transport": {
                "type": "stdio",
                "command": [sys.executable, "-I", "-S", str(MISBEHAVE), *words],
                "env": {"VARIANT": str(self._variants[form])},
                **transport,
            },
            "supervision": {**SUPERVISION, **supervision},
        }
        self.replace(name, lambda new: new.write_text(json.dumps(document)))


def half_written(path: Path) -> None:
    """Leave half a descriptor, as an editor might."""
    path.write_text('{"name": ')
