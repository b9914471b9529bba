from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.assets import files as asset_files
from supervisor.kernel.assets.files import AssetFileError, ChangedError, digest, opened
from tests.factories import open_files, opened_since


def always() -> bool:
    return True


def test_a_relative_path_starts_from_the_folder_of_the_module(tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_text("x")
    with opened("chart.png", str(tmp_path)) as file:
        assert (file.path, file.size) == (str(tmp_path / "chart.png"), 1)


def test_an_absolute_path_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_text("x")
    with opened(str(tmp_path / "chart.png"), "/elsewhere") as file:
        assert file.path == str(tmp_path / "chart.png")


def test_a_link_is_followed_and_where_it_leads_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    with opened("link", str(tmp_path)) as file:
        assert file.path == str(tmp_path / "link")
        assert file.real_path == os.path.realpath(tmp_path / "real")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("gone.png", "No such file"),
        (".", "not a regular file"),
        ("a\0b", "null"),
        ("x" * 5000, "too long"),
        ("loop", "symbolic links"),
        ("dangling", "No such file"),
        ("", "not a regular file"),
        ("file/below", "Not a directory"),
        ("fifo", "not a regular file"),
        ("/dev/zero", "leads into /dev, where the daemon would find its own"),
        ("/proc/self/environ", "leads into /proc"),
        ("/tmp/../proc/self/environ", "leads into /proc"),
        ("//proc/./version", "leads into /proc"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "leads into /sys"),
        ("/dev/fd/0", "leads into /dev"),
        ("own", "leads into /proc"),
        ("round/fd/0", "leads into /proc"),
        ("file/", "Not a directory"),
        ("bytes", "is not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").write_text("x")
    (tmp_path / "own").symlink_to("/proc/self/exe")
    (tmp_path / "round").symlink_to("near")
    (tmp_path / "near").symlink_to("/usr/../proc/self")
    os.mkfifo(tmp_path / "fifo")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("x")
    (tmp_path / "bytes").symlink_to(os.fsdecode(b"\xff"))
    before = open_files()
    with pytest.raises(AssetFileError, match=words) as caught, opened(path, str(tmp_path)):
        pass
    assert len(str(caught.value)) < 500
    assert not opened_since(before)


def test_files_in_shared_memory_are_everybodys(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        (tmp_path / "link").symlink_to(f"/dev//./shm/{Path(file.name).name}")
        with opened("link", str(tmp_path)) as found:
            assert found.real_path == os.path.realpath(file.name)


def test_a_path_is_resolved_as_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a" / "b" / "across").symlink_to(f"{tmp_path}//a/./up/a")
    (tmp_path / "a" / "file").write_text("x")
    for path in ("a/b/across/file", "a/up/a/b/../file", "a/b/across/up/a/up/a//file"):
        with opened(path, str(tmp_path)) as found:
            assert found.real_path == os.path.realpath(tmp_path / path)


def test_a_fifo_in_the_place_of_a_file_does_not_hold_up_who_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    # As if the file were exchanged between the look and the opening.
    checks = iter([lambda *_: None, asset_files._check_regular])

    def check(*given: Any) -> None:
        next(checks)(*given)

    monkeypatch.setattr(asset_files, "_check_regular", check)
    with pytest.raises(AssetFileError, match="not a regular file"), opened("fifo", str(tmp_path)):
        pass


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("x")

    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)  # root may read everything
        with (
            pytest.raises(AssetFileError, match="may not be read by the daemon"),
            opened("secret", str(tmp_path)),
        ):
            pass


@pytest.mark.parametrize("size", [0, 1, asset_files.CHUNK_BYTES, asset_files.CHUNK_BYTES + 1])
def test_the_digest_is_that_of_the_content(tmp_path: Path, size: int) -> None:
    content = b"ab" * (size // 2) + b"c" * (size % 2)
    (tmp_path / "file").write_bytes(content)
    with opened("file", str(tmp_path)) as file:
        assert digest(file, always) == hashlib.sha256(content).hexdigest()


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def _shorten(path: Path) -> None:
    os.truncate(path, 10)


def _write(path: Path) -> None:
    with path.open("rb+") as file:
        file.write(b"x")
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [_append, _shorten, _write])
def test_a_file_that_changes_while_it_is_read_is_noticed(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * (asset_files.CHUNK_BYTES * 2))
    asked = 0

    def then_change() -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            change(path)
        return True

    with pytest.raises(ChangedError), opened("file", str(tmp_path)) as file:
        digest(file, then_change)


def test_a_file_that_always_has_more_is_not_read_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * asset_files.CHUNK_BYTES)

    def grow() -> bool:
        with path.open("ab") as file:
            file.write(b"a" * asset_files.CHUNK_BYTES)
        return True

    with pytest.raises(ChangedError), opened("file", str(tmp_path)) as file:
        digest(file, grow)


def test_reading_stops_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with opened("file", str(tmp_path)) as file:
        assert digest(file, lambda: False) is None
