"""The record of instances, on disks that are quick, slow and full."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.runtime import threads
from supervisor.runtime.containment.guardianship import RECORD_BYTES, LedgerFile
from supervisor.runtime.threads import Threads
from tests.factories import none_left


class Ledger:
    """Lines, of which some still hold."""

    def __init__(self) -> None:
        self.holds: list[bytes] = [b"daemon\n"]

    def lines(self) -> list[bytes]:
        return self.holds


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def file(tmp_path: Path, ledger: Ledger) -> LedgerFile:
    made = LedgerFile(tmp_path / "record", ledger.lines, Threads())
    made.begin()
    return made


@pytest.fixture
def answers() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def test_lines_are_written_in_their_order(file: LedgerFile) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.run)
        file.append(b"one\n")
        file.append(b"two\n")
        with trio.fail_after(60):
            while file.path.read_bytes() != b"daemon\none\ntwo\n":
                await trio.lowlevel.checkpoint()
        file.append(b"bye\n")
        await file.close()
        nursery.cancel_scope.cancel()
    assert file.path.read_bytes() == b"daemon\none\ntwo\nbye\n"


@pytest.mark.fault(36)
async def test_a_stalled_disk_has_nobody_wait_and_takes_no_memory(
    file: LedgerFile,
    ledger: Ledger,
    answers: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = threading.Event()
    append = LedgerFile._append

    def stall(self: LedgerFile, data: bytes) -> None:
        begun.set()
        answers.wait()
        append(self, data)

    monkeypatch.setattr(LedgerFile, "_append", stall)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.run)
        file.append(b"one\n")
        await trio.to_thread.run_sync(begun.wait, 60)
        for _ in range(3 * RECORD_BYTES // 100):
            file.append(b"x" * 99 + b"\n")
        assert len(file._waiting) <= RECORD_BYTES
        ledger.holds = [b"daemon\n", b"what holds\n"]
        answers.set()
        await file.close()
        nursery.cancel_scope.cancel()
    # What was dropped is made good: the whole was written anew.
    assert file.path.read_bytes().startswith(b"daemon\nwhat holds\n")


@pytest.mark.fault(36)
async def test_the_end_does_not_wait_for_a_disk_that_never_answers(
    file: LedgerFile, answers: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("END_S", "LEAST_S"):
        monkeypatch.setattr(threads, bound, 0.0)
    monkeypatch.setattr(LedgerFile, "_append", lambda _, data: answers.wait())
    file.append(b"bye\n")
    await file.close()
    answers.set()


async def test_one_that_grew_is_written_anew_with_what_holds(
    file: LedgerFile, ledger: Ledger
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.run)
        ledger.holds = [b"daemon\n", b"what holds\n"]
        for _ in range(2):
            file.append(b"x" * (RECORD_BYTES - 1) + b"\n")
            with trio.fail_after(60):
                while file._waiting:
                    await trio.lowlevel.checkpoint()
        await file.renew()
        await file.close()
        nursery.cancel_scope.cancel()
    assert file.path.read_bytes() == b"daemon\nwhat holds\n"


@pytest.mark.fault(36)
async def test_without_a_free_thread_the_end_is_not_held_up_by_the_disk(
    file: LedgerFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop waited for it: on a disk that never answers, the daemon never ended."""
    answers = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file._threads.run, "reading", answers.wait)
        await trio.testing.wait_all_tasks_blocked()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none_left)
            patch.setattr(threads, "END_S", 0)
            patch.setattr(threads, "LEAST_S", 0.001)
            file.append(b"one\n")
            await file.close()
        assert file.path.read_bytes() == b"daemon\n"
        answers.set()
    file._close()
