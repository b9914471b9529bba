"""What a daemon stands on is taken, swept and let go of beside its event loop, within bounds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.runtime.containment import hunt, ladder, process_registry, procfs
from supervisor.runtime.containment.data_dir import RECORD_FILE, DataDirLock, lock_data_dir
from supervisor.runtime.containment.guardianship import LedgerFile
from tests.factories import none_left
from tests.runtime.containment.lifelines import PATIENCE_S


class Noted:
    """Calls of functions that may wait for a disk or a process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.calls: list[str] = []
        self.on_loop: list[str] = []

    def note(self, where: object, name: str) -> None:
        function: Callable[..., Any] = getattr(where, name)

        def noted(*words: Any, **more: Any) -> Any:
            self.calls.append(name)
            if threading.current_thread() is threading.main_thread():
                self.on_loop.append(name)
            return function(*words, **more)

        self._monkeypatch.setattr(where, name, noted)


@pytest.mark.fault(36)
async def test_no_file_is_waited_for_on_the_loop_at_its_beginning_and_end(
    rung: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted(monkeypatch)
    noted.note(ladder, "choose")
    noted.note(DataDirLock, "author")
    noted.note(DataDirLock, "close")
    noted.note(LedgerFile, "_begin")
    noted.note(hunt, "exterminate")
    async with process_registry.holding(tmp_path, containment=rung):
        pass
    assert noted.calls == ["choose", "author", "_begin", "exterminate", "close"]
    assert noted.on_loop == []


async def test_of_who_began_before_the_daemon_the_last_sweep_reads_nothing_more(
    rung: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(process: int, *words: Any) -> Any:
            read.append(process)
            return function(process, *words)

        return noted

    older = {one.pid for one in procfs.every_process() if one.pid != os.getpid()}
    since = procfs.now_ticks()
    while procfs.now_ticks() == since:
        os.sched_yield()
    async with process_registry.holding(tmp_path, containment=rung):
        for name in ("brand", "has_variables"):
            monkeypatch.setattr(procfs, name, noting(getattr(procfs, name)))
    monkeypatch.undo()
    children = set(procfs.children(os.getpid()) or ())
    assert older - children
    assert not (older - children) & {*read}


@pytest.mark.fault(26)
async def test_a_last_sweep_that_is_held_up_is_left_to_the_guardian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def held_up(*_: object) -> list[int]:
        assert goes_on.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(hunt, "exterminate", held_up)
    monkeypatch.setattr(process_registry, "SWEEP_WITHIN_S", 0.01)
    async with process_registry.holding(tmp_path):
        pass
    goes_on.set()
    assert b"bye" not in (tmp_path / RECORD_FILE).read_bytes()
    monkeypatch.undo()
    lock_data_dir(tmp_path).close()


@pytest.mark.fault(36)
async def test_without_a_further_thread_one_that_there_is_lets_go_of_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process_registry.holding(tmp_path):
        monkeypatch.setattr(threading.Thread, "start", none_left)
    monkeypatch.undo()
    lock_data_dir(tmp_path).close()
