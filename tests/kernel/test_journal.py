"""The journal, with its real thread and file: what is written is there, whatever goes wrong."""

from __future__ import annotations

from supervisor.kernel.store.batch import (
    ENTRY_BYTES,
)
from supervisor.kernel.store.writer import QUEUE_BYTES


def test_the_bound_of_what_waits_is_in_bytes() -> None:
    assert QUEUE_BYTES == 32 << 20
    assert ENTRY_BYTES < 1000
