"""What is remembered beyond the daemon's life: descriptions of modules, and notes on programs.

A description is for display only: a module that is down, or was never started by this daemon, is
listed with its last ops as long as its descriptor is the same. No request is refused or validated
by them: a request starts the module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from protocol.descriptor.model import Descriptor
from protocol.host_call import UNENCODABLE
from supervisor.kernel.documents import KeptDocuments
from supervisor.kernel.recorder import Recorder
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.notes import Notes

DESCRIPTION = "description"
"""Of the recorder's documents; the name of one is the module's."""

DESCRIPTION_BYTES = 256 << 10
"""A longer description, as JSON, is not remembered."""

KEPT_BYTES = 32 << 20
"""Bytes of all together; beyond that the oldest are forgotten."""

OPS_SHOWN = 256
"""How many ops of a module `status` names; it counts all."""

log = structlog.get_logger()


class RememberedDescription(msgspec.Struct, frozen=True):
    """A module's description under the descriptor of that digest; `ts` is Unix time (s)."""

    module: str
    digest: str
    ts: float
    ops: tuple[str, ...]
    description: msgspec.Raw


class RememberedDescriptions:
    def __init__(self, recorder: Recorder, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._all = KeptDocuments(
            recorder,
            DESCRIPTION,
            RememberedDescription,
            named_by="module",
            order="ts",
            most_bytes=KEPT_BYTES,
        )

    def add(self, descriptor: Descriptor, description: dict[str, Any]) -> None:
        try:
            body = _encoded(description)
        except UNENCODABLE as error:
            log.info("a description is not remembered", module=descriptor.name, error=repr(error))
            return
        self._all.remove(descriptor.name)  # the new one is the newest
        if body is None:
            return
        one = RememberedDescription(
            descriptor.name,
            descriptor.digest,
            round(self._wall_clock(), 3),
            tuple(ops_of(description)),
            msgspec.Raw(body),
        )
        self._all.put(one.module, one)

    def find(self, descriptor: Descriptor) -> RememberedDescription | None:
        """Return the last description of a module with this very descriptor."""
        found = self._all.get(descriptor.name)
        return found if found is not None and found.digest == descriptor.digest else None

    def ops(self, module: Module, *, inputs: bool = False) -> dict[str, Any] | None:
        """Return the ops of a module as `status` shows them; None if none are known.

        With `inputs`, the schema of each is included.
        """
        names, remembered = self._names(module)
        if not names:
            return None
        shown = {"names": list(names[:OPS_SHOWN]), "count": len(names), "remembered": remembered}
        return {**shown, "inputs": self._inputs(module)} if inputs else shown

    def knows(self, module: Module, op: str) -> bool:
        """Tell whether an op is one of those that `ops` counts."""
        return op in self._names(module)[0]

    def _names(self, module: Module) -> tuple[Sequence[str], bool]:
        """Return the ops of a module, and whether they are of its last run."""
        descriptor, current = module.descriptor, module.descriptions.current
        if descriptor.inputs:
            return list(descriptor.inputs), False
        if current is not None:
            return ops_of(current), False
        found = self.find(descriptor)
        return ((), False) if found is None else (found.ops, True)

    def _inputs(self, module: Module) -> Any:
        if module.descriptor.inputs:
            return module.descriptor.inputs
        if (said := module.descriptions.current) is None:
            found = self.find(module.descriptor)
            said = {} if found is None else msgspec.json.decode(found.description)
        return said.get("inputs")


def ops_of(description: dict[str, Any]) -> list[str]:
    inputs = description.get("inputs")
    return list(inputs) if isinstance(inputs, dict) else []


def _encoded(description: dict[str, Any]) -> bytes | None:
    """Encode a description; None as soon as it is too long: lists of a server may have 16 MB."""
    size = 0
    for value in description.values():
        parts = value.values() if isinstance(value, dict) else value
        for part in parts if isinstance(value, dict | list) else (value,):
            size += len(msgspec.json.encode(part))
            if size > DESCRIPTION_BYTES:
                return None
    body = msgspec.json.encode(description)
    return body if len(body) <= DESCRIPTION_BYTES else None


NOTE = "note"
"""The kind of the documents; the name of each is the digest of its program."""

NOTES_KEPT = 10_000
"""The oldest are forgotten beyond that; it is found out again then."""


class KeptNotes(Notes):
    """What was found out about programs."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._kept = KeptDocuments(recorder, NOTE, dict[str, Any], most=NOTES_KEPT)

    def find(self, digest: str) -> dict[str, Any] | None:
        return self._kept.get(digest)

    def put(self, digest: str, note: dict[str, Any] | None) -> None:
        """Note something, and keep it; None deletes the note."""
        self._kept.remove(digest)  # the new one is the newest
        if note is not None:
            self._kept.put(digest, note)
