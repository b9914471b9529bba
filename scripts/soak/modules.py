"""The descriptors of a soak in their folder, and what may be asked of their modules."""

from __future__ import annotations

import json
import random
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from scripts.checkout import ROOT

MISBEHAVE: Final = ROOT / "tests" / "system" / "misbehave.py"
DICE: Final = ROOT / "modules" / "dice"
TABLE: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
FORMS: Final[dict[str, dict[str, Any]]] = TABLE["forms"]
CALM: Final = "calm"
"""A module that nobody kills, holds or changes."""
EXTRAS: Final = 1000
"""Modules that nobody calls, but for those who misspell their names."""


class Modules:
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
        calls = TABLE["calls"]
        [drawn] = self.draw.choices(calls, [call["often"] for call in calls])
        return self.any_name(), "go", drawn["args"]

    def _describe(self, name: str, form: str) -> None:
        own = FORMS[form]
        command = [sys.executable, "-I", "-S", str(MISBEHAVE), *own.get("words", [])]
        variant = {"VARIANT": str(self._variants[form])}
        transport = {"type": "stdio", "command": command, "env": variant}
        document = {
            "name": name,
            "kind": "tool",
            "capabilities": [],
            "inputs": own.get("inputs", {}),
            "transport": transport | own.get("transport", {}),
            "supervision": TABLE["usual"] | own.get("supervision", {}),
        }
        self.replace(name, lambda new: new.write_text(json.dumps(document)))


def half_written(path: Path) -> None:
    """Leave half a descriptor, as an editor might."""
    path.write_text('{"name": ')
