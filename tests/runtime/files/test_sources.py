"""Sources of descriptors: each by itself, and all of them read as one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.policy.findings import QuarantinedFile, Reading
from supervisor.runtime.files.directory import DescriptorFiles, MissingDirectoryError
from supervisor.runtime.files.sources import LentDescriptors, Sources
from supervisor.runtime.files.watched_paths import Interest
from tests.runtime.watching import document


def lent(owner: str, folder: Path, **names: str) -> LentDescriptors:
    return LentDescriptors(
        owner, folder, {label: document(name).encode() for label, name in names.items()}
    )


def put(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document(name))
    return path


def places(reading: Reading) -> list[tuple[str, str]]:
    return [(one.name, one.source) for one in reading.descriptors]


def test_sources_are_read_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    second, first = put(tmp_path / "2" / "b.json", "b"), put(tmp_path / "1" / "a.json", "a")
    sources = Sources.of_directories([tmp_path / "2", tmp_path / "1"])
    sources.add(lent("the editor", tmp_path, one="d", other="c"))
    assert places(sources.read_first()) == [
        ("b", str(second)),
        ("a", str(first)),
        ("d", "the editor/one"),
        ("c", "the editor/other"),
    ]


def test_a_descriptor_says_whose_it_is_and_where_its_paths_start_from(tmp_path: Path) -> None:
    put(tmp_path / "a.json", "a")
    put(tmp_path / "b" / "module.json", "b")
    sources = Sources.of_directories([tmp_path])
    sources.add(lent("the editor", tmp_path / "project", one="c"))
    assert [(one.owner, one.folder) for one in sources.read({}).descriptors] == [
        (str(tmp_path), str(tmp_path)),
        (str(tmp_path), str(tmp_path / "b")),
        ("the editor", str(tmp_path / "project")),
    ]


def test_a_file_that_two_directories_have_is_one(tmp_path: Path) -> None:
    put(tmp_path / "a" / "module.json", "a")
    put(tmp_path / "a" / "b.json", "b")
    (tmp_path / "a" / "c.json").write_text("{")
    reading = Sources.of_directories([tmp_path, tmp_path / "a"]).read_first()
    assert [(one.name, one.owner) for one in reading.descriptors] == [
        ("a", str(tmp_path)),
        ("b", str(tmp_path / "a")),
    ]
    assert [one.descriptor for one in reading.bad] == [str(tmp_path / "a" / "c.json")]


def test_of_what_is_gone_nothing_is_read(tmp_path: Path) -> None:
    source = lent("the editor", tmp_path, one="a")
    sources = Sources([source, lent("another", tmp_path, one="b")])
    sources.remove(source)
    assert places(sources.read({})) == [("b", "another/one")]
    sources.remove(source)
    sources.add(source)


def test_the_first_reading_is_of_all_sources_and_a_later_one_of_those_that_can_be_read(
    tmp_path: Path,
) -> None:
    sources = Sources.of_directories([tmp_path / "gone"])
    sources.add(lent("the editor", tmp_path, one="a"))
    with pytest.raises(MissingDirectoryError, match="gone: No such file"):
        sources.read_first()
    reading = sources.read({})
    assert places(reading) == [("a", "the editor/one")]
    reason = "the directory is gone. What was last read stays in use."
    assert reading.bad == (QuarantinedFile(str(tmp_path / "gone"), reason),)
    assert Interest(str(tmp_path), "gone", content=False) in sources.interests  # it may come back


def test_a_bad_document_that_is_lent_says_what_a_bad_file_says(tmp_path: Path) -> None:
    document = json.dumps({"name": "a", "kind": "toll"})
    (tmp_path / "a.json").write_text(document)
    directory = DescriptorFiles(tmp_path).read(set())
    source = LentDescriptors("the editor", tmp_path, {"a": document.encode(), "b": b"{"})
    reading = source.read(set())
    assert reading.bad[0].reason == directory.bad[0].reason
    assert [one.descriptor for one in reading.bad] == ["the editor/a", "the editor/b"]
    assert reading.bad_names == directory.bad_names == {"a"}


def test_what_is_lent_is_parsed_once_and_watches_nothing(tmp_path: Path) -> None:
    source = lent("the editor", tmp_path, one="a")
    sources = Sources([source])
    (first,) = sources.read({}).descriptors
    (again,) = sources.read({}).descriptors
    assert again is first
    source.put({"one": document("b").encode()})
    assert places(sources.read({})) == [("b", "the editor/one")]
    assert sources.interests == set()


def test_an_owner_is_never_taken_for_a_directory_and_can_be_shown(tmp_path: Path) -> None:
    for owner in ("/home/me", "a/b", "", "two\nlines", "half \udc80"):
        with pytest.raises(ValueError, match=r"slash|shown"):
            lent(owner, tmp_path)
    for label in ("", "\t"):
        with pytest.raises(ValueError, match="cannot be shown"):
            lent("the editor", tmp_path, **{label: "a"})
