"""A daemon whose data directory has died under it ends within one bound for all that is there."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

import pytest
import trio

from protocol.errors import Failure, Reason
from supervisor.kernel.assets.files import AssetChecks
from supervisor.kernel.assets.store import AssetStore
from supervisor.kernel.kernel import AssetOptions, JournalOptions, Kernel
from supervisor.kernel.recorder import Kept
from supervisor.policy.findings import Found
from supervisor.runtime import threads
from supervisor.runtime.threads import Threads
from tests.bounds import WAIT_S, wait_until
from tests.system.dead_mount import dead_mount


class Asked(Threads):
    """Notes who waits at the daemon's end, and asks how long it may."""

    def __init__(self) -> None:
        super().__init__(lambda: self.now)
        self.now = 0.0
        self.by: list[str] = []
        self.told: list[float] = []

    def end_left_s(self) -> float:
        self.by.append(sys._getframe(1).f_code.co_qualname)
        self.told.append(super().end_left_s())
        return self.told[-1]


@pytest.mark.fault(36)
async def test_whoever_waits_for_it_at_the_end_has_what_the_others_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "END_S", 0.0)
    asked, data, before = Asked(), tmp_path / "data", threading.enumerate()
    with contextlib.ExitStack() as mounted:
        async with Kernel(
            Found(),
            data_dir=data,
            containment="process_group",
            memory=JournalOptions(),
            threads=asked,
        ) as daemon:
            mounted.enter_context(dead_mount(data))
            daemon.facts.log_files.append("m", b"a line\n")
    waited = [one for one in asked.by if one != "Threads.run"]  # who was cancelled by then
    assert waited == ["Journal.end", "LedgerFile.close", "_release", "LogFiles.close"]
    # The journal is read after the test; nobody has waited for its thread to close it.
    journals = [one for one in threading.enumerate() if one not in before and one.name == "journal"]
    await wait_until(
        lambda: not any(one.is_alive() for one in journals), "the end of the journal's thread"
    )


@pytest.mark.fault(36)
@pytest.mark.parametrize("failure", [None, Failure.because(Reason.STORAGE, "too slow")])
async def test_only_what_did_not_answer_has_had_its_time_before_the_clients_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Failure | None
) -> None:
    """Else what only the memory has, such as histories, had 0.5 s after clients that read late."""
    asked, waiting = Asked(), list[Kept]()
    async with Kernel(
        Found(),
        data_dir=tmp_path / "data",
        containment="process_group",
        memory=JournalOptions(),
        threads=asked,
    ) as daemon:
        assert daemon.facts.journal is not None
        monkeypatch.setattr(daemon.facts.journal, "flush", waiting.append)
        daemon.durability.confirm(lambda _: None)
        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(daemon.stop_fleet)
                while not daemon.durability._none_waits:  # the end waits for the disk
                    await trio.lowlevel.checkpoint()
                waiting.pop()(failure)
        asked.now = 2 * threads.END_S  # clients take their last answers
    assert asked.told[0] == (threads.END_S if failure is None else threads.LEAST_S)


@pytest.mark.fault(36)
async def test_a_copy_of_an_asset_that_cannot_be_removed_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("END_S", "LEAST_S"):
        monkeypatch.setattr(threads, bound, 0.0)
    store, begun, goes_on = AssetStore(tmp_path, AssetOptions()), trio.Event(), threading.Event()
    waited: list[bool] = []
    token = trio.lowlevel.current_trio_token()

    def stuck(_: str) -> None:
        token.run_sync_soon(begun.set)
        waited.append(goes_on.wait(WAIT_S))

    monkeypatch.setattr(store, "release", stuck)
    work = Threads()
    work.begin_end()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(AssetChecks(store, work, copy=True).release, ["0"])
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert not waited
    goes_on.set()
