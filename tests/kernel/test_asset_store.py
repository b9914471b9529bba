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


def test_a_copy_never_counts_twice_while_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seen = store_in(tmp_path, limit=10), list[int]()
    name = store.adopt

    def named(*args: Any) -> bool:
        is_new = name(*args)
        seen.append(store.total_bytes)
        return is_new

    monkeypatch.setattr(store, "adopt", named)
    add(store, tmp_path, b"123456")
    assert (seen, store.total_bytes) == ([6], 6)
    add(store, tmp_path, b"abcd")
    assert (seen, store.total_bytes) == ([6, 10], 10)


def test_the_same_content_is_kept_once_until_nobody_needs_it(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    sha256 = add(store, tmp_path, b"hello", "a")
    assert add(store, tmp_path, b"hello", "b") == sha256
    assert (len(files(tmp_path)), store.total_bytes) == (1, 5)
    store.release(sha256)
    assert len(files(tmp_path)) == 1
    store.release(sha256)
    assert (files(tmp_path), store.total_bytes) == ([], 0)


def test_what_is_too_much_is_refused_with_the_limit_and_the_figure(tmp_path: Path) -> None:
    store = store_in(tmp_path, limit=8)
    add(store, tmp_path, b"hello")
    (tmp_path / "big").write_bytes(b"bigger")
    words = "it has 6 bytes, and 5 of the 8 that asset_store_bytes allows are in use"
    with opened("big", str(tmp_path)) as file, pytest.raises(NotCopiedError, match=words):
        store.add(file, lambda: True)
    add(store, tmp_path, b"abc")  # there is room for as much as there was
    assert store.total_bytes == 8


def test_at_the_start_half_copies_and_what_nobody_needs_are_removed(tmp_path: Path) -> None:
    before = store_in(tmp_path)
    kept = add(before, tmp_path, b"kept")
    add(before, tmp_path, b"not needed")
    half = tmp_path / "assets" / "sha256" / ".half-abc"
    half.mkdir()
    (half / "content").write_bytes(b"ha")
    (tmp_path / "assets" / "sha256" / "ab").mkdir(exist_ok=True)
    (tmp_path / "assets" / "sha256" / "ab" / "odd").write_bytes(b"?")
    store = store_in(tmp_path)
    store.open([kept, kept, "0" * 64])
    assert files(tmp_path) == [f"sha256/{kept[:2]}/{kept[2:]}"]
    assert not half.exists()
    assert store.total_bytes == 4
    store.release(kept)
    assert len(files(tmp_path)) == 1
    store.release(kept)
    assert files(tmp_path) == []


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
