"""Which files are read, how often, and which paths lead to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.descriptor.loading import DescriptorError
from supervisor.runtime.files import directory, file_digest
from supervisor.runtime.files.directory import read_bytes
from supervisor.runtime.files.sources import Sources
from supervisor.runtime.files.watched_paths import Interest, on_the_way
from tests.runtime.watching import document


def test_a_file_is_watched_where_its_path_says_and_where_it_is(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "real").mkdir()
    (root / "real" / "file").touch()
    (root / "link").symlink_to("real/file")
    (root / "loop").symlink_to("loop")
    assert set(on_the_way(f"{root}/link")) == {
        Interest(str(root), "link"),
        Interest(f"{root}/real", "file"),
    }
    assert Interest(str(root), "loop", content=False) in set(on_the_way(f"{root}/loop/x"))


def test_of_folders_that_are_missing_the_first_one_is_watched(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    way = {Interest(str(root), "some", content=False)}
    assert set(on_the_way(f"{root}/some/deep/file")) == way
    (root / "some").mkdir()
    assert set(on_the_way(f"{root}/some/file")) == {Interest(f"{root}/some", "file")}


class Counted:
    """How often a file's bytes are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        read_bytes = directory.read_bytes

        def counted(path: Path) -> bytes:
            self.paths.append(path.name)
            return read_bytes(path)

        monkeypatch.setattr(directory, "read_bytes", counted)

    def since(self) -> list[str]:
        paths, self.paths = self.paths, []
        return paths


HOUR_NS = 3600 * 10**9


def test_a_file_whose_signature_is_the_same_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(document(name))
    files = Sources.of_directories([tmp_path])
    first = files.read({})
    assert counted.since() == ["a.json", "b.json"]
    files.read({})
    assert counted.since() == ["a.json", "b.json"]  # written too short a time ago to be trusted
    monkeypatch.setattr(file_digest, "SETTLED_NS", -HOUR_NS)
    files.read({})
    counted.since()
    assert files.read({}).descriptors == first.descriptors
    assert counted.since() == []
    os.utime(tmp_path / "a.json")
    second = files.read({})
    assert counted.since() == ["a.json"]
    assert second.descriptors[0] is first.descriptors[0]  # equal bytes are not parsed again


def test_a_file_that_makes_its_readers_wait_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    # /proc/kmsg is a regular file, and has nothing for a second reader.
    reading, writing = os.pipe2(os.O_NONBLOCK)
    regular = os.stat(__file__)  # noqa: PTH116
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda *_: reading)
        patched.setattr(os, "fstat", lambda _: regular)
        with pytest.raises(DescriptorError, match="it has nothing to read now"):
            read_bytes(Path("kmsg.json"))
    os.close(writing)


def test_a_pipe_or_a_loop_in_the_directory_is_bad_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to("b.json")
    (tmp_path / "c.json").symlink_to("nowhere")
    (tmp_path / "d").mkdir()
    reading = Sources.of_directories([tmp_path]).read({})
    assert [Path(one.descriptor).name for one in reading.bad] == ["a.json", "b.json", "c.json"]
