"""The watch over descriptor files: which changes are noticed, and what is made of them.

A change counts as noticed when `reload` is called; nothing here waits for a time.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.runtime.watching import document, named, programs, wait_for, watching


async def test_files_that_come_change_and_go_are_noticed(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        assert watched.state.mode == "inotify"
        (tmp_path / "a.json").write_text(document("a"))
        await watched.until(named("a"))
        (tmp_path / "a.json").write_text(document("b"))
        await watched.until(named("b"))
        (tmp_path / "a.json").rename(tmp_path / "z.json")
        await watched.until(lambda one: one.descriptors[0].source == str(tmp_path / "z.json"))
        (tmp_path / "z.json").unlink()
        await watched.until(named())


async def test_many_files_are_one_change(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        for number in range(200):
            (tmp_path / f"{number:03}.json").write_text(document(f"m{number:03}"))
        reading = await watched.next()
        if len(reading.descriptors) < 200:  # a machine that is very slow may take two
            reading = await watched.next()
        assert len(reading.descriptors) == 200


async def test_a_file_that_becomes_readable_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(document("a"))
    async with watching(tmp_path) as watched:
        (tmp_path / "a.json").chmod(0o640)
        await watched.next()


@pytest.mark.parametrize("name", ["notes.txt", ".hidden.json", "core", ".a.json.swp"])
async def test_other_files_do_not_matter(tmp_path: Path, name: str) -> None:
    async with watching(tmp_path) as watched:
        (tmp_path / name).write_text("x")
        (tmp_path / name).unlink()
        (tmp_path / "a.json").write_text(document("a"))
        # The queue is in order: had the first one counted, its reading would be here, too.
        await watched.next()
        assert watched.names == ["a"]


async def test_a_new_folder_and_its_module_json_are_noticed(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "module.json").write_text(document("a"))
        await wait_for(watched, "a")
        (tmp_path / "a" / "module.json").write_text(document("b"))
        await wait_for(watched, "b")
        (tmp_path / "a" / "module.json").unlink()
        await wait_for(watched)


async def test_the_target_of_a_link_is_watched(tmp_path: Path) -> None:
    # As Kubernetes mounts a ConfigMap, a.json -> ..data/a.json and ..data -> ..1, and exchanges it.
    folder = tmp_path / "modules"
    for version in ("1", "2"):
        (folder / f"..{version}").mkdir(parents=True)
        (folder / f"..{version}" / "a.json").write_text(document(f"v{version}"))
    (folder / "..data").symlink_to("..1")
    (folder / "a.json").symlink_to("..data/a.json")
    async with watching(folder) as watched:
        assert watched.names == ["v1"]
        (folder / "..new").symlink_to("..2")
        (folder / "..new").rename(folder / "..data")
        shutil.rmtree(folder / "..1")
        await wait_for(watched, "v2")
        (folder / "..2" / "a.json").write_text(document("v3"))
        await wait_for(watched, "v3")


async def test_a_directory_behind_a_link_may_be_exchanged(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.json").write_text(document(f"v{version}"))
    (tmp_path / "current").symlink_to("1")
    async with watching(tmp_path / "current") as watched:
        (tmp_path / "next").symlink_to("2")
        (tmp_path / "next").rename(tmp_path / "current")
        await wait_for(watched, "v2")
        (tmp_path / "2" / "a.json").write_text(document("v3"))
        await wait_for(watched, "v3")


async def test_a_link_to_a_folder_is_a_folder(tmp_path: Path) -> None:
    folder, other = tmp_path / "modules", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "module.json").write_text(document("a"))
    async with watching(folder) as watched:
        (folder / "a").symlink_to(other)
        await wait_for(watched, "a")
        (other / "module.json").write_text(document("b"))
        await wait_for(watched, "b")
        (folder / "a").unlink()
        await wait_for(watched)


async def test_a_directory_that_is_deleted_is_missed_and_seen_again(tmp_path: Path) -> None:
    folder = tmp_path / "parent" / "modules"
    folder.mkdir(parents=True)
    async with watching(folder) as watched:
        folder.rmdir()
        folder.parent.rmdir()
        await watched.until(lambda one: bool(one.bad))
        folder.parent.mkdir()
        folder.mkdir()
        (folder / "a.json").write_text(document("a"))
        await wait_for(watched, "a")
        assert watched.reading.bad == ()


async def test_a_watched_program_is_one_more_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(document("a", watch=True))
    async with watching(tmp_path) as watched:
        assert (programs(watched.reading, "a"), len(watched.reading.programs)) == ({}, 1)
        (tmp_path / "run.sh").write_text("1")
        await watched.until(lambda one: str(tmp_path / "run.sh") in programs(one, "a"))
        before = programs(watched.reading, "a")
        (tmp_path / "run.sh").write_text("2")
        await watched.until(lambda one: programs(one, "a").keys() == before.keys())
        assert programs(watched.reading, "a") != before
        (tmp_path / "data.txt").write_text("3")
        await watched.until(lambda one: len(programs(one, "a")) == 2)
