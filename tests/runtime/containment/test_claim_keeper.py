"""A data directory that is deleted under the daemon is taken again, or it says who was faster."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.containment import custody, ground, survivors
from supervisor.runtime.containment.survivors import (
    LOCK_FILE,
    RECORD_FILE,
    Claim,
    ClaimKeeper,
    DataInUseError,
    claim,
)
from supervisor.runtime.files.inotify import Event, Inotify
from supervisor.runtime.files.lock_file import open_lock
from tests.runtime.containment.lifelines import PATIENCE_S


class Renewed:
    """Writes a ledger like a daemon's, and lets the test wait for it."""

    def __init__(self, held: Claim) -> None:
        self._held = held
        self._author = held.author(str(uuid.uuid4()), -1)
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
async def kept(data_dir: Path) -> AsyncIterator[tuple[ClaimKeeper, Renewed]]:
    held = claim(data_dir)
    try:
        renewed = Renewed(held)
        watched = trio.Event()

        class Queue(Inotify):
            async def events(self) -> list[Event]:
                watched.set()
                return await super().events()

        keeper = ClaimKeeper(
            held, renewed, BlockingWork(), open_queue=Queue, settle_s=0, retry_s=0.01
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            await watched.wait()
            yield keeper, renewed
            nursery.cancel_scope.cancel()
    finally:
        held.close()


def said(keeper: ClaimKeeper) -> str:
    return keeper.problem or ""


def assert_held(data_dir: Path) -> None:
    with pytest.raises(DataInUseError, match="is in use by the daemon with pid"):
        claim(data_dir)


async def test_a_deleted_directory_is_taken_again_before_another_daemon_starts_in_it(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    async with kept(data_dir) as (keeper, renewed):
        assert said(keeper) == ""
        for _ in range(3):
            # Moved first, so that it goes at once, as whoever deletes has it once they are done.
            data_dir.rename(tmp_path / "gone")
            shutil.rmtree(tmp_path / "gone")
            await renewed.wait()
            assert_held(data_dir)
            assert f"{data_dir} was deleted while the daemon ran, with what was" in said(keeper)
    claim(data_dir).close()


async def test_a_deleted_lock_file_is_made_again_and_nothing_is_lost(tmp_path: Path) -> None:
    async with kept(tmp_path) as (keeper, renewed):
        (tmp_path / LOCK_FILE).unlink()
        await renewed.wait()
        assert_held(tmp_path)
        assert keeper.problem is None


async def test_a_moved_directory_stays_the_daemons_too(tmp_path: Path) -> None:
    data_dir, moved = tmp_path / "data", tmp_path / "moved"
    async with kept(data_dir) as (_, renewed):
        data_dir.rename(moved)
        await renewed.wait()
        assert_held(data_dir)
        assert (moved / RECORD_FILE).exists()


class Faster:
    """A claim whose directory somebody else holds twice as often as it is asked for."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.tries = 0
        self.keeper: ClaimKeeper | None = None
        self.said: list[str | None] = []

    def lost(self) -> bool:
        return self.tries < 3

    def retake(self) -> bool:
        assert self.keeper is not None
        self.said.append(self.keeper.problem)
        self.tries += 1
        if self.tries < 3:
            raise DataInUseError("it is in use by the daemon with pid 7")
        return True


async def test_who_was_faster_is_named_until_the_directory_is_free(tmp_path: Path) -> None:
    faster = Faster(tmp_path)
    renewed = trio.Event()

    async def renew() -> None:
        renewed.set()

    keeper = ClaimKeeper(
        faster,  # type: ignore[arg-type]
        renew,
        BlockingWork(),
        settle_s=0,
        retry_s=0,
    )
    faster.keeper = keeper
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        with trio.fail_after(PATIENCE_S):
            await renewed.wait()
        nursery.cancel_scope.cancel()
    first, second, third = faster.said
    assert first is None
    assert second is not None
    assert "in use by the daemon with pid 7; stop one of the daemons" in second
    assert third == second
    assert keeper.problem is not None
    assert "made anew and locked" in keeper.problem


class Slow:
    """A claim on a directory that does not answer for long."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.answers = threading.Event()
        self._taken = False

    def lost(self) -> bool:
        return not self._taken

    def retake(self) -> bool:
        assert self.answers.wait(PATIENCE_S)
        self._taken = True
        return False


async def test_a_directory_that_does_not_answer_is_named_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survivors, "LATE_S", 0.0)
    slow, renewed = Slow(tmp_path), trio.Event()

    async def renew() -> None:
        renewed.set()

    keeper = ClaimKeeper(slow, renew, BlockingWork(), settle_s=0)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        with trio.fail_after(PATIENCE_S):
            while not said(keeper):
                await trio.lowlevel.checkpoint()
            assert f"{tmp_path} does not answer" in said(keeper)
            slow.answers.set()
            await renewed.wait()
            while said(keeper):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


def test_one_that_is_taken_again_while_it_is_closed_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = tmp_path / "data"
    held = claim(data_dir)
    shutil.rmtree(data_dir)
    clear_up = held._clear_up_others

    def closed_meanwhile() -> None:
        clear_up()
        held.close()

    monkeypatch.setattr(held, "_clear_up_others", closed_meanwhile)
    held.retake()
    claim(data_dir).close()


def test_what_cannot_be_taken_again_leaves_the_claim_as_it_was(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    held = claim(data_dir)
    shutil.rmtree(data_dir)
    other = claim(data_dir)
    for _ in range(3):
        with pytest.raises(DataInUseError):
            held.retake()
        assert held.lost()
        assert not other.lost()
    other.close()
    assert held.retake()
    assert not held.lost()
    beside = open_lock(data_dir / LOCK_FILE)
    assert not survivors._try_lock(beside)
    os.close(beside)
    held.close()
    claim(data_dir).close()


def test_a_pipe_in_the_place_of_the_record_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / RECORD_FILE)
    claim(tmp_path).close()


async def test_data_that_does_not_answer_is_not_waited_for_and_left_if_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers, left = threading.Event(), threading.Event(), threading.Event()

    class Late(Claim):
        def close(self) -> None:
            super().close()
            left.set()

    def late(data_dir: Path) -> Claim:
        asked.set()
        answers.wait(PATIENCE_S)
        return Late(os.open(data_dir, os.O_RDONLY), data_dir)

    monkeypatch.setattr(ground, "claim", late)
    monkeypatch.setattr(ground, "TAKEN_WITHIN_S", 0.01)
    try:
        with pytest.raises(DataInUseError, match="does not answer"):
            async with custody.holding(tmp_path):
                pytest.fail("nobody holds it")
    finally:
        answers.set()
    # On a busy machine its thread may begin after the bound has passed, and then asks nothing.
    assert not asked.is_set() or left.wait(PATIENCE_S)


class Dropping(BlockingWork):
    """Does the work, and is cancelled before anybody has what came of it."""

    async def run(self, doing: str, function: Callable[[], Any], **_: Any) -> NoReturn:
        function()
        await trio.sleep_forever()
        raise AssertionError


async def test_data_that_answers_as_it_is_given_up_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ground, "TAKEN_WITHIN_S", 0.01)
    with pytest.raises(DataInUseError, match="does not answer"):
        async with custody.holding(tmp_path, blocking=Dropping()):
            pytest.fail("nobody holds it")
    claim(tmp_path).close()
