from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.assets import files as asset_files
from supervisor.kernel.assets.files import AssetChecks, ChangedError, NotCopiedError, opened
from supervisor.kernel.assets.store import AssetStore
from supervisor.kernel.kernel import AssetOptions
from supervisor.runtime.threads import Threads
from tests.bounds import WAIT_S


def store_in(folder: Path, limit: int = 1000, *, fsync: bool = False) -> AssetStore:
    return AssetStore(folder / "assets", AssetOptions(copy=True, store_bytes=limit, fsync=fsync))


def add(store: AssetStore, folder: Path, content: bytes, name: str = "file") -> str:
    (folder / name).write_bytes(content)
    with opened(name, str(folder)) as file:
        sha256 = store.add(file, lambda: True)
    assert sha256 == hashlib.sha256(content).hexdigest()
    return sha256


def files(folder: Path) -> list[str]:
    root = folder / "assets"
    return sorted(str(one.relative_to(root)) for one in root.rglob("*") if one.is_file())


@pytest.mark.parametrize("fsync", [False, True])
def test_a_copy_is_named_by_its_content(tmp_path: Path, fsync: bool) -> None:
    store = store_in(tmp_path, fsync=fsync)
    sha256 = add(store, tmp_path, b"hello")
    assert files(tmp_path) == [f"sha256/{sha256[:2]}/{sha256[2:]}"]
    assert store.path(sha256).read_bytes() == b"hello"
    assert store.total_bytes == 5


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_in(tmp_path)

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "file").write_bytes(b"x")
    with monkeypatch.context() as patch, opened("file", str(tmp_path)) as file:
        patch.setattr(os, "write", full)
        with pytest.raises(NotCopiedError, match="No space left on device"):
            store.add(file, lambda: True)
    assert store.total_bytes == 0
    assert list((tmp_path / "assets" / "sha256").iterdir()) == []


def test_a_file_that_changes_while_it_is_copied_has_no_copy(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(b"x")

    def grow() -> bool:
        with path.open("ab") as file:
            file.write(b"x")
        return True

    with opened("file", str(tmp_path)) as file, pytest.raises(ChangedError):
        store.add(file, grow)
    assert files(tmp_path) == []
    assert store.total_bytes == 0


def test_a_copy_that_is_stopped_is_none(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    (tmp_path / "file").write_bytes(b"x")
    with opened("file", str(tmp_path)) as file:
        assert store.add(file, lambda: False) is None
    assert files(tmp_path) == []


async def test_a_folder_of_copies_that_does_not_answer_holds_up_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, answers = store_in(tmp_path), threading.Event()
    monkeypatch.setattr(asset_files, "OPEN_STORE_S", 0.01)
    monkeypatch.setattr(store, "open", lambda *_, **__: answers.wait(WAIT_S))
    try:
        words = await AssetChecks(store, Threads()).open_store([], collect=True)
    finally:
        answers.set()
    assert words is not None
    assert words.startswith(f"{store.folder} does not answer")
