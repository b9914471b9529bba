"""A daemon whose data directory has died under it ends within one bound for all that is there."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

import pytest
import trio

from supervisor.kernel.assets.checks import AssetChecks, Looked
from supervisor.kernel.assets.store import AssetOptions, AssetStore
from supervisor.kernel.daemon import running
from supervisor.kernel.store.settings import JournalOptions
from supervisor.policy.findings import Found
from supervisor.runtime import blocking
from supervisor.runtime.blocking import BlockingWork
from tests.bounds import WAIT_S
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


@pytest.mark.fault(36)
async def test_a_copy_of_an_asset_that_cannot_be_removed_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("END_S", "LEAST_S"):
        monkeypatch.setattr(blocking, bound, 0.0)
    store, begun, goes_on = AssetStore(tmp_path, AssetOptions()), trio.Event(), threading.Event()
    waited: list[bool] = []
    token = trio.lowlevel.current_trio_token()

    def stuck(_: str) -> None:
        token.run_sync_soon(begun.set)
        waited.append(goes_on.wait(WAIT_S))

    monkeypatch.setattr(store, "release", stuck)
    work = BlockingWork()
    work.begin_end()
    async with trio.open_nursery() as nursery:
        looked = Looked("a", "/a", 1, 1, sha256="0", copied=True)
        nursery.start_soon(AssetChecks(store, work, copy=True).release_later, looked)
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert not waited
    goes_on.set()
