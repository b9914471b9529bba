from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from protocol.descriptor.model import Descriptor
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.process import spawning
from supervisor.runtime.process.preflight import obstacle
from supervisor.runtime.process.program import SpawnError, explain, find_program
from supervisor.runtime.process.spawning import spawn
from tests.factories import children, descriptor, open_files, opened_since, program


async def refusal(made: Descriptor) -> str:
    """Return the words a spawn fails with, having left nothing behind."""
    before = open_files()
    with pytest.raises(SpawnError) as caught:
        await spawn(made, os.environ, "m#1", ProcessRegistry.bare())
    assert not opened_since(before)
    assert children() == []
    return str(caught.value)


async def of_file(folder: Path, content: str | bytes) -> str:
    program(folder / "run", content)
    return await refusal(descriptor(folder, ["./run"]))


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert await refusal(descriptor(tmp_path, ["./run"])) == f"{tmp_path}/run is not there"


async def test_a_name_that_is_not_in_the_path_is_named(tmp_path: Path) -> None:
    made = descriptor(tmp_path, ["no-such-program"], transport={"env": {"PATH": "/nowhere"}})
    assert await refusal(made) == "there is no program 'no-such-program' in its PATH"


async def test_a_file_without_the_executable_bit_is_told_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("#!/bin/sh\n")
    words = await refusal(descriptor(tmp_path, ["./run"]))
    assert words == f"{tmp_path}/run is not executable (chmod +x would make it so)"


async def test_a_dangling_link_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(tmp_path / "gone")
    words = await refusal(descriptor(tmp_path, ["./run"]))
    assert words == f"{tmp_path}/run is a dangling link"


async def test_a_link_to_itself_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(tmp_path / "run")
    assert "symbolic links" in await refusal(descriptor(tmp_path, ["./run"]))


async def test_a_folder_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert await refusal(descriptor(tmp_path, ["./run"])) == f"{tmp_path}/run is a folder"


@pytest.mark.fault(36)
async def test_a_pipe_in_the_place_of_a_program_is_refused_and_not_opened(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "run", 0o700)
    words = await refusal(descriptor(tmp_path, ["./run"]))
    assert words == f"{tmp_path}/run is not a regular file"


async def test_a_name_no_file_system_takes_is_no_crash(tmp_path: Path) -> None:
    assert "too long" in await refusal(descriptor(tmp_path, ["./" + "x" * 300]))


async def test_a_file_that_is_no_program_is_told_what_it_lacks(tmp_path: Path) -> None:
    words = await of_file(tmp_path, "echo hello\n")
    assert words == f"{tmp_path}/run has no #! line and is not a program for this machine"


async def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    words = await of_file(tmp_path, "#!/opt/none/bin/ruby -w\nputs 1\n")
    ruby = "/opt/none/bin/ruby"
    assert words == f"the #! line of {tmp_path}/run names {ruby}: {ruby} is not there"


async def test_an_interpreter_that_may_not_be_executed_is_named(tmp_path: Path) -> None:
    (tmp_path / "interpreter").write_text("")
    words = await of_file(tmp_path, f"#!{tmp_path}/interpreter\n")
    assert f"{tmp_path}/interpreter is not executable" in words


async def test_a_windows_line_ending_in_the_first_line_is_named(tmp_path: Path) -> None:
    words = await of_file(tmp_path, b"#!/bin/sh\r\necho hello\r\n")
    assert words.startswith(f"the #! line of {tmp_path}/run ends in a carriage return")


async def test_a_nul_in_the_first_line_is_no_crash(tmp_path: Path) -> None:
    assert await of_file(tmp_path, b"#!/bin/s\0h\n")


async def test_a_working_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    made = descriptor(tmp_path, ["sh"], transport={"cwd": "work"})
    assert await refusal(made) == f"its working folder {tmp_path}/work is not there"
    os.mkfifo(tmp_path / "work")
    assert await refusal(made) == f"its working folder {tmp_path}/work is not a folder"


async def test_an_environment_too_large_for_the_system_is_put_into_words(tmp_path: Path) -> None:
    made = descriptor(tmp_path, ["true"], transport={"env": {"BIG": "x" * 200_000}})
    words = await refusal(made)
    assert words == "its command and environment are larger than the system allows"


async def test_an_unset_variable_is_a_reason_not_to_start(tmp_path: Path) -> None:
    made = descriptor(tmp_path, ["true"], transport={"env": {"A": "${SURELY_NOT_SET}"}})
    assert "SURELY_NOT_SET" in await refusal(made)


@pytest.mark.fault(20)
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EAGAIN, "ulimit -u"),
        (errno.ENOMEM, "no memory"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "ulimit -n"),
        (errno.ETXTBSY, "is being written"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_what_the_system_refuses_is_put_into_words(code: int, words: str) -> None:
    assert words in explain(OSError(code, "x"), "/bin/sh")


@pytest.mark.fault(20)
async def test_a_program_that_is_being_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(tmp_path / "run", "#!/bin/sh\n")
    attempts: list[int | None] = []
    started = subprocess.Popen
    with path.open("ab") as writer:

        def attempt(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
            try:
                return started(*args, **options)
            except OSError as error:
                attempts.append(error.errno)
                writer.close()
                raise

        monkeypatch.setattr(subprocess, "Popen", attempt)
        running = await spawn(
            descriptor(tmp_path, ["./run"]), os.environ, "m#1", ProcessRegistry.bare()
        )
    await running.wait_exited()
    assert running.reap() == (0, None)
    assert attempts == [errno.ETXTBSY]


@pytest.mark.fault(20)
async def test_a_program_that_is_written_for_ever_is_given_up_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "BUSY_RETRIES_S", (0.0, 0.0))
    with program(tmp_path / "run", "#!/bin/sh\n").open("ab"):
        words = await refusal(descriptor(tmp_path, ["./run"]))
    assert words == f"{tmp_path}/run is being written by another process"


def test_a_relative_folder_in_the_path_gives_an_absolute_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "run", "#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    assert find_program(descriptor(tmp_path, ["run"]), {"PATH": "."}) == f"{tmp_path}/run"


def test_a_check_runs_nothing(tmp_path: Path) -> None:
    program(tmp_path / "run", "#!/bin/sh\ntouch ran\n")
    assert obstacle(descriptor(tmp_path, ["./run"]), os.environ) is None
    assert not (tmp_path / "ran").exists()
