"""A daemon whose data directory has died under it ends within one bound for all that is there."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from supervisor.kernel.daemon import running
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.findings import Found
from supervisor.runtime import blocking
from supervisor.runtime.blocking import BlockingWork
from tests.system.dead_mount import dead_mount


class Asked(BlockingWork):
    """Notes who waits at the daemon's end, and asks how long it may."""

    def __init__(self) -> None:
        super().__init__()
        self.by: list[str] = []

    def end_left_s(self) -> float:
        self.by.append(sys._getframe(1).f_code.co_qualname)
        return super().end_left_s()


@pytest.mark.fault(36)
async def test_whoever_waits_for_it_at_the_end_has_what_the_others_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "END_S", 0.0)
    asked, data = Asked(), tmp_path / "data"
    with contextlib.ExitStack() as mounted:
        async with running(
            Found(),
            data_dir=data,
            containment="process_group",
            memory=JournalOptions(),
            blocking=asked,
        ) as daemon:
            mounted.enter_context(dead_mount(data))
            daemon.facts.log_files.append("m", b"a line\n")
    waited = [one for one in asked.by if one != "BlockingWork.run"]  # who was cancelled by then
    assert waited == ["Journal.end", "LedgerFile.close", "leave", "LogFiles.close"]
