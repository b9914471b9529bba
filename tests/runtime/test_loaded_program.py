"""When a process that waits would not be the one that is started now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.descriptor.model import Descriptor
from supervisor.runtime.files.file_digest import FileDigests
from supervisor.runtime.process.program import LoadedProgram, find_loaded
from tests.factories import descriptor, program


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "here").mkdir()
    program(tmp_path / "bin" / "runner", "#!/bin/sh\n")
    (tmp_path / "here" / "tool.py").write_text("one")
    return tmp_path


def made(home: Path) -> Descriptor:
    return descriptor(home, ["runner", "-v", "tool.py", "word"], transport={"cwd": "here"})


def look(home: Path, path: str = "bin") -> LoadedProgram | None:
    return find_loaded(made(home), {"PATH": str(home / path)}, FileDigests())


def test_the_same_files_are_the_same_program_however_they_are_written(home: Path) -> None:
    before = look(home)
    assert before is not None
    (home / "here" / "tool.py").touch()
    (home / "here" / "new").write_text("one")
    (home / "here" / "new").replace(home / "here" / "tool.py")
    (home / "here" / "unnamed.py").write_text("anything")
    assert look(home) == before


def test_other_bytes_of_an_argument_are_another_program(home: Path) -> None:
    before = look(home)
    (home / "here" / "tool.py").write_text("two")
    assert look(home) != before


def test_an_argument_that_becomes_a_file_is_another_program(home: Path) -> None:
    before = look(home)
    (home / "here" / "word").write_text("")
    assert look(home) != before


def test_other_bytes_of_what_path_leads_to_are_another_program(home: Path) -> None:
    before = look(home)
    program(home / "bin" / "runner", "#!/bin/bash\n")
    assert look(home) != before


def test_another_place_in_path_is_another_program(home: Path) -> None:
    before = look(home)
    (home / "other").mkdir()
    program(home / "other" / "runner", "#!/bin/sh\n")
    assert look(home, "other") != before


def test_a_working_folder_in_the_place_of_another_is_another_program(home: Path) -> None:
    before = look(home)
    (home / "here").rename(home / "old")
    (home / "here").mkdir()
    (home / "here" / "tool.py").write_text("one")
    assert look(home) != before


@pytest.mark.parametrize("gone", ["bin/runner", "here"])
def test_what_could_not_be_started_now_is_no_program(home: Path, gone: str) -> None:
    os.rename(home / gone, home / "gone")  # noqa: PTH104 - a file, or a folder with files
    assert look(home) is None


def test_a_variable_that_is_not_set_makes_it_no_program(home: Path) -> None:
    one = descriptor(home, ["runner"], transport={"env": {"A": "${SURELY_NOT_SET}"}})
    assert find_loaded(one, {"PATH": str(home / "bin")}, FileDigests()) is None
