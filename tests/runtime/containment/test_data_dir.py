"""A data directory that is deleted under the daemon is taken again, or it says who was faster."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio

from supervisor.runtime.containment import process_registry
from supervisor.runtime.containment.data_dir import (
    LOCK_FILE,
    RECORD_FILE,
    DataDirLock,
    DataInUseError,
    lock_data_dir,
)
from supervisor.runtime.files.lock_file import open_lock
from supervisor.runtime.threads import Threads
from tests.runtime.containment.lifelines import PATIENCE_S


class Renewed:
    """Writes a ledger like a daemon's, and lets the test wait for it."""

    def __init__(self, held: DataDirLock) -> None:
        self._held = held
        self._author = held.author(-1)
        self._event = trio.Event()
        self._write()

    async def __call__(self) -> None:
        self._write()
        self._event.set()

    async def wait(self) -> None:
        with trio.fail_after(PATIENCE_S):
            await self._event.wait()
        self._event = trio.Event()

    def _write(self) -> None:
        self._held.record.write_bytes(self._author.line())


@asynccontextmanager
async def kept(data_dir: Path) -> AsyncIterator[tuple[DataDirLock, Renewed]]:
    held = lock_data_dir(data_dir)
    try:
        renewed = Renewed(held)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(held.keep, renewed, Threads(), look_s=0, settle_s=0))
            yield held, renewed
            nursery.cancel_scope.cancel()
    finally:
        held.close()


def assert_held(data_dir: Path) -> None:
    with pytest.raises(DataInUseError, match="is in use by the daemon with pid"):
        lock_data_dir(data_dir)


async def test_a_deleted_directory_is_taken_again_before_another_daemon_starts_in_it(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    async with kept(data_dir) as (held, renewed):
        assert held.problem is None
        for _ in range(3):
            # Moved first, so that it goes at once, as whoever deletes has it once they are done.
            data_dir.rename(tmp_path / "gone")
            shutil.rmtree(tmp_path / "gone")
            await renewed.wait()
            assert_held(data_dir)
            assert f"{data_dir} was deleted while the daemon ran, with what was" in str(
                held.problem
            )
    lock_data_dir(data_dir).close()


async def test_a_deleted_lock_file_is_made_again_and_nothing_is_lost(tmp_path: Path) -> None:
    async with kept(tmp_path) as (held, renewed):
        (tmp_path / LOCK_FILE).unlink()
        await renewed.wait()
        assert_held(tmp_path)
        assert held.problem is None


async def test_a_moved_directory_stays_the_daemons_too(tmp_path: Path) -> None:
    data_dir, moved = tmp_path / "data", tmp_path / "moved"
    async with kept(data_dir) as (_, renewed):
        data_dir.rename(moved)
        await renewed.wait()
        assert_held(data_dir)
        assert (moved / RECORD_FILE).exists()


async def test_a_copy_in_the_place_of_the_directory_is_told(tmp_path: Path) -> None:
    data_dir, copy = tmp_path / "data", tmp_path / "copy"
    async with kept(data_dir) as (held, renewed):
        shutil.copytree(data_dir, copy)
        data_dir.rename(tmp_path / "gone")
        copy.rename(data_dir)
        await renewed.wait()
        assert "with what was in it" in str(held.problem)


async def test_what_is_lost_is_told_for_as_long_as_the_daemon_lives(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with kept(data_dir) as (held, renewed):
        data_dir.rename(tmp_path / "gone")
        await renewed.wait()
        (data_dir / LOCK_FILE).unlink()
        await renewed.wait()
        assert "with what was in it" in str(held.problem)


async def test_another_daemon_that_was_faster_is_named_until_the_directory_is_free(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    async with kept(data_dir) as (held, renewed):
        (data_dir / LOCK_FILE).rename(tmp_path / "gone")
        with (data_dir / LOCK_FILE).open("w") as faster:
            fcntl.flock(faster, fcntl.LOCK_EX)
            with trio.fail_after(PATIENCE_S):
                while "stop one of the daemons" not in str(held.problem):
                    await trio.lowlevel.checkpoint()
            assert "cannot be locked again" in str(held.problem)
        await renewed.wait()
        assert_held(data_dir)
        assert held.problem is None


def test_one_that_is_taken_again_while_it_is_closed_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = tmp_path / "data"
    held = lock_data_dir(data_dir)
    shutil.rmtree(data_dir)
    clear_up = held._clear_up_others

    def closed_meanwhile() -> None:
        clear_up()
        held.close()

    monkeypatch.setattr(held, "_clear_up_others", closed_meanwhile)
    held.retake()
    lock_data_dir(data_dir).close()


def test_what_cannot_be_taken_again_leaves_the_lock_as_it_was(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    held = lock_data_dir(data_dir)
    shutil.rmtree(data_dir)
    other = lock_data_dir(data_dir)
    for _ in range(3):
        with pytest.raises(DataInUseError):
            held.retake()
        assert held.lost()
        assert not other.lost()
    other.close()
    assert held.retake()
    assert not held.lost()
    beside = open_lock(data_dir / LOCK_FILE)
    with pytest.raises(BlockingIOError):
        fcntl.flock(beside, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(beside)
    held.close()
    lock_data_dir(data_dir).close()


def test_a_pipe_in_the_place_of_the_record_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / RECORD_FILE)
    lock_data_dir(tmp_path).close()


async def test_data_that_does_not_answer_is_not_waited_for_and_left_if_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers, left = threading.Event(), threading.Event(), threading.Event()

    class Late(DataDirLock):
        def close(self) -> None:
            super().close()
            left.set()

    def late(data_dir: Path) -> DataDirLock:
        asked.set()
        answers.wait(PATIENCE_S)
        return Late(os.open(data_dir, os.O_RDONLY), data_dir)

    monkeypatch.setattr(process_registry, "lock_data_dir", late)
    monkeypatch.setattr(process_registry, "TAKEN_WITHIN_S", 0.01)
    try:
        with pytest.raises(DataInUseError, match="does not answer"):
            async with process_registry.holding(tmp_path):
                pytest.fail("nobody holds it")
    finally:
        answers.set()
    # On a busy machine its thread may begin after the bound has passed, and then asks nothing.
    assert not asked.is_set() or left.wait(PATIENCE_S)


class Dropping(Threads):
    """Does the work, and is cancelled before anybody has what came of it."""

    async def run(self, doing: str, function: Callable[[], Any], **_: Any) -> NoReturn:
        function()
        await trio.sleep_forever()
        raise AssertionError


async def test_data_that_answers_as_it_is_given_up_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_registry, "TAKEN_WITHIN_S", 0.01)
    with pytest.raises(DataInUseError, match="does not answer"):
        async with process_registry.holding(tmp_path, threads=Dropping()):
            pytest.fail("nobody holds it")
    lock_data_dir(tmp_path).close()
