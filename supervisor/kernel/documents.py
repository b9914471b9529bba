"""The documents of one kind, such as tokens: in memory, and as they are now in the journal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TypeVar

import msgspec

from supervisor.kernel.recorder import Recorder

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class KeptDocuments(Mapping[str, T]):
    """The documents by name, the oldest first.

    Those that an earlier daemon kept are there from the beginning. When the journal has lost what
    was kept, all are kept again, as they are then.
    """

    def __init__(
        self,
        recorder: Recorder,
        kind: str,
        type_: type[T],
        *,
        named_by: str = "",
        order: str = "",
        most: int = sys.maxsize,
        most_bytes: int = sys.maxsize,
    ) -> None:
        """Restore the documents of a kind in the order of the field `order`, or by name.

        `named_by` is the field that has the name of a document, if one has. Beyond `most` documents
        or `most_bytes` of JSON the oldest are removed.
        """
        self._recorder = recorder
        self._kind = kind
        self._most, self._most_bytes = most, most_bytes
        self._documents: dict[str, T] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        found = list(recorder.restored.take(kind, type_, named_by))
        if order:
            found.sort(key=lambda one: attrgetter(order)(one[1]))
        for name, document, size in found:
            self._insert(name, document, size)
        self._remove_surplus()
        recorder.on_loss.append(self._keep_all)

    def __getitem__(self, name: str) -> T:
        return self._documents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)

    def size(self, name: str) -> int:
        """Return the bytes of a document, as JSON."""
        return self._sizes[name]

    def put(self, name: str, document: T) -> None:
        """Keep a document as it is now; one that is there already keeps its place."""
        self._insert(name, document, self._keep(name, document))
        self._remove_surplus()

    def remove(self, name: str) -> T | None:
        """Remove a document, here and from the journal; returns it if it is known."""
        self._bytes -= self._sizes.pop(name, 0)
        self._recorder.keep(self._kind, name, None)
        return self._documents.pop(name, None)

    def _insert(self, name: str, document: T, size: int) -> None:
        self._bytes += size - self._sizes.get(name, 0)
        self._documents[name], self._sizes[name] = document, size

    def _remove_surplus(self) -> None:
        while len(self._documents) > self._most or self._bytes > self._most_bytes:
            self.remove(next(iter(self._documents)))

    def _keep(self, name: str, document: T) -> int:
        body = _encode(document)
        # The patches of a session that its document has are not needed any more.
        self._recorder.keep(self._kind, name, body, getattr(document, "revision", 0))
        return len(body)

    def _keep_all(self) -> None:
        for name, document in self._documents.items():
            self._keep(name, document)
