"""A start that the kernel refuses is an ordinary failure, the first time and any later time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import AT_ONCE, MISBEHAVE, PYTHON, descriptor, misbehaving

TOOL = '#!/bin/sh\necho \'{"version":"0","type":"done","ok":true}\'\n'
LATER = {"backoff": {"initial_s": 3600, "max_s": 3600, "jitter": 0}}


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.fault(20)
def test_a_program_that_is_being_written_is_named_and_runs_once_it_is_closed(
    start_daemon: StartDaemon, folder: Path
) -> None:
    path = program(folder / "tool", TOOL)
    daemon = start_daemon(descriptor("tool", [str(path)], protocol="narratoria"))
    assert daemon.invoke("tool").ok
    with path.open("ab"):
        answer = daemon.invoke("tool")
        assert answer.verdict == "unreachable/spawn_failed"
        assert "being written" in answer.error["message"]
    assert daemon.usable("tool").ok


@pytest.mark.fault(20)
@pytest.mark.parametrize("loss", ["program", "permission", "folder", "interpreter"])
def test_a_persistent_module_whose_respawn_fails_stays_supervised_and_comes_back(
    start_daemon: StartDaemon, folder: Path, loss: str
) -> None:
    home = folder / "home"
    home.mkdir()
    text = f"#!{folder}/python\nimport runpy\nrunpy.run_path({str(MISBEHAVE)!r})\n"
    path = program(folder / "run", text)
    python = folder / "python"
    python.symlink_to(PYTHON[0])
    one = descriptor(
        "one", [str(path)], cwd=str(home), supervision={"intensity": 1000, "backoff": AT_ONCE}
    )
    daemon = start_daemon(one, misbehaving("witness"))
    assert daemon.invoke("one", word="hello").result == {"word": "hello"}
    match loss:
        case "program":
            path.unlink()
        case "permission":
            path.chmod(0o644)
        case "folder":
            home.rmdir()
        case _:
            python.unlink()
    assert daemon.invoke("one", fault="exit").verdict == "unreachable/exited"
    daemon.wait_state("one", "backoff")
    refused = daemon.status("one")["last_exit"]
    assert refused["reason"] == "spawn_failed"
    assert refused["exit_code"] is None
    match loss:
        case "program":
            program(path, text)
        case "permission":
            path.chmod(0o755)
        case "folder":
            home.mkdir()
        case _:
            python.symlink_to(PYTHON[0])
    daemon.op("wait", modules=["one"])
    assert daemon.usable("one").ok
    assert daemon.invoke("witness").ok
