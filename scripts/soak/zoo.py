"""The modules of a soak: well-behaved samples, and the tests' misbehaving one in several forms."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any, Final

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
MISBEHAVE: Final = CHECKOUT / "tests" / "system" / "misbehave.py"
SAMPLES: Final = CHECKOUT / "modules"

SHORT: Final = {"exit_s": 0.3, "stop_s": 0.5, "health_s": 1, "start_s": 20, "invoke_s": 5}
BACKOFF: Final = {"initial_s": 0.05, "factor": 2, "max_s": 1}
SUPERVISION: Final = {
    # Lazy, so that a daemon without clients has no process, and its descriptors can be compared.
    "start": "lazy",
    "timeouts": SHORT,
    "backoff": BACKOFF,
    "intensity": 20,
    "period_s": 10,
    "retry_failed_s": 1,
    "queue": 64,
}

CROWD: Final = {"min": 0, "max": 3, "idle_stop_s": 1, "max_requests": 20, "max_age_s": 5}

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
    "pool": ([], {}, {"concurrency": 4, "instances": CROWD}),
    "picky": ([], {}, {"concurrency": 4}),
}

INPUTS: Final = {
    "picky": {"go": {"properties": {"word": {"type": "string", "pattern": "^(a+)+$"}}}},
}

CALLS: Final[tuple[tuple[int, dict[str, Any]], ...]] = (
    # how often, and the arguments
    (30, {"word": "hello"}),
    (10, {"fault": "event+event"}),
    (5, {"fault": "not_ok"}),
    (3, {"fault": "flood", "events": 20_000}),
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
    (1, {"fault": "many_values", "values": 450_000}),
)

MANY_VALUES: Final = 450_000

EXTRAS: Final = 1000
"""Modules that nobody calls, but for those who misspell their names."""

CALM: Final = "calm"
"""A module that nobody kills, holds or changes."""

PICKY: Final = "picky"
"""The module whose schema backtracks."""

BIG_ANSWER: Final = {"fault": "big_answer", "bytes": 4 << 20}

FLOOD: Final = {"fault": "flood", "events": 20_000}


class Zoo:
    """The descriptors in a folder, and what may be asked of their modules."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        """Write all of them."""
        self.names = list(FORMS)
        self._folder = folder
        self._draw = draw
        self._variants = dict.fromkeys(FORMS, 0)
        folder.mkdir()
        for name in FORMS:
            self.write(name)
        self._write_document(self._document(CALM, "many"))
        # A sample with its own program, in its own folder, as an operator would install it.
        for number in range(EXTRAS):
            self._write_document(self._document(f"extra-{number:03}", "plain"))
        sample = json.loads((SAMPLES / "dice" / "module.json").read_text())
        sample["transport"]["cwd"] = str(SAMPLES / "dice")
        sample["supervision"] = {"start": "lazy"}
        (folder / "dice.json").write_text(json.dumps(sample))

    def write(self, name: str, *, changed: bool = False) -> None:
        """Write a descriptor again, as it is or changed, whole at once."""
        self._variants[name] += changed
        self._write_document(self._document(name, name))

    def _document(self, name: str, form: str) -> dict[str, Any]:
        words, transport, supervision = FORMS[form]
        return {
            "name": name,
            "kind": "tool",
            "capabilities": [],
            "inputs": INPUTS.get(form, {}),
            "transport": {
                "type": "stdio",
                "command": [sys.executable, "-I", "-S", str(MISBEHAVE), *words],
                "env": {"VARIANT": str(self._variants[form])},
                **transport,
            },
            "supervision": {**SUPERVISION, **supervision},
        }

    def _write_document(self, document: dict[str, Any]) -> None:
        name = document["name"]
        new = self._folder / f".{name}.new"
        new.write_text(json.dumps(document))
        new.replace(self._folder / f"{name}.json")

    def spoil(self, name: str) -> None:
        """Leave half a descriptor, as an editor might."""
        self.remove(name)  # it may be a pipe, which would be waited for
        (self._folder / f"{name}.json").write_text('{"name": ')

    def replace_by_fifo(self, name: str) -> None:
        """Have a pipe without a writer in the place of a descriptor."""
        new = self._folder / f".{name}.new"
        os.mkfifo(new)
        new.replace(self._folder / f"{name}.json")

    def remove(self, name: str) -> None:
        """Take a descriptor away."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def call(self) -> tuple[str, str, dict[str, Any]]:
        """Return a module, an op and arguments."""
        if self._draw.random() < 0.1:  # noqa: PLR2004 - one in ten
            return "dice", "roll", {"dice": "3d6"}
        weights, calls = zip(*CALLS, strict=True)
        return self._draw.choice(self.names), "go", self._draw.choices(calls, weights)[0]

    def misspelt(self) -> str:
        """Return a name that nobody has, and somebody nearly has."""
        return f"extra-{self._draw.randrange(EXTRAS):03}x"
