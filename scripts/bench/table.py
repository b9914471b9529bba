"""The rows of rows.toml, which says what stands there."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

OURS: Final = "stdiod"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    unit: str
    bounds: tuple[str, ...] = ()
    text: str = ""

    @property
    def heading(self) -> str:
        return self.title[0].upper() + self.title[1:]


class Module(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A module that is hosted, by us or by a peer."""

    program: str
    """Of programs/, with its arguments; or a sample in C."""
    protocol: str = "module"
    kind: str = "tool"
    supervision: dict[str, Any] = {}
    described: bool = False
    """Whether it has the `inputs` and `outputs` of `primes`."""
    times: int = 1
    """So many of them are meant, each with a number in its name."""


class Scene(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    rows: tuple[Row, ...]
    parties: dict[str, dict[str, Any]] | str
    modules: tuple[str, ...] = ()
    count: int = 1
    window: int = 1
    load: str = ""
    each: int = 1
    """How many units of work one call of the load is."""
    one_cpu: bool = False
    first: str = ""
    grows: bool = False
    """Whether its parties are daemons of ours of ever more modules."""
    once: bool = False

    def who(self) -> dict[str, dict[str, Any]]:
        """Return the parties by name, ours first."""
        return TABLE.parties[self.parties] if isinstance(self.parties, str) else self.parties


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    page: str
    shared_cpu: str
    growth: str
    modules: dict[str, Module]
    parties: dict[str, dict[str, dict[str, Any]]]
    scenes: tuple[Scene, ...]


TABLE: Final = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("rows.toml").read_text(encoding="utf-8")), Table
)
SCENES: Final = TABLE.scenes


def modules_named(*names: str) -> dict[str, Module]:
    """Return modules of the table, by name."""
    return {
        own: msgspec.structs.replace(module, program=module.program.format(name=own))
        for name in names
        for module in [TABLE.modules[name]]
        for own in ([f"{name}-{n}" for n in range(module.times)] if module.times > 1 else [name])
    }
