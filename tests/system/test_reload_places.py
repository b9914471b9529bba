"""Hot reload of what stands elsewhere: folders, links, directories that go, programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import descriptor, write
from tests.system.reloading import A, B, pids, quarantined, reload_of, replace, text, touch


def test_a_folder_with_a_module_json_comes_and_goes(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    inside = daemon.modules / "b"
    with reload_of(daemon):
        inside.mkdir()
    with reload_of(daemon):
        (inside / "module.json").write_text(text(B))
    assert daemon.invoke("b").ok
    before = pids(daemon)
    with reload_of(daemon):
        (inside / "module.json").write_text(text(B, description="new"))
    assert daemon.invoke("b").ok
    assert pids(daemon)["a"] == before["a"]
    assert pids(daemon)["b"] != before["b"]
    with reload_of(daemon):
        inside.rename(daemon.folder / "away")
    assert list(pids(daemon)) == ["a"]


@pytest.mark.fault(22)
def test_a_links_target_is_watched(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    target = daemon.folder / "elsewhere" / "b.json"
    target.parent.mkdir()
    target.write_text(text(B))
    with reload_of(daemon):
        (daemon.modules / "b.json").symlink_to(target)
    assert daemon.invoke("b").ok
    before = pids(daemon)
    with reload_of(daemon):
        replace(target, text(B, description="new"))
    assert daemon.invoke("b").ok
    assert daemon.status("b")["description"] == "new"
    assert pids(daemon)["a"] == before["a"]


def test_a_directory_may_be_deleted_and_made_again(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(A)
    before = pids(daemon)
    with reload_of(daemon):
        daemon.modules.rename(daemon.folder / "old")
    assert pids(daemon) == before
    assert str(daemon.modules.name) in quarantined(daemon)
    gone = "the directory is gone. What was last read stays in use."
    assert quarantined(daemon) == {daemon.modules.name: gone}
    assert daemon.status("a")["quarantined"] == gone
    assert daemon.op("reload", dry_run=True)["quarantined"] == [
        {"descriptor": str(daemon.modules), "reason": gone}
    ]
    # What comes back is looked at from its first file on.
    new = daemon.folder / "new"
    write(new, A, B)
    with reload_of(daemon):
        new.rename(daemon.modules)
    assert daemon.invoke("b").ok
    assert pids(daemon)["a"] == before["a"]
    assert quarantined(daemon) == {}


PROGRAM = f"""
import sys
sys.path.append({str(Path(__file__).parents[2])!r})
import tests.system.misbehave
"""


def test_a_changed_program_replaces_its_module_if_that_is_wanted(
    start_daemon: StartDaemon,
) -> None:
    def with_program(name: str, *, watch: bool) -> dict[str, Any]:
        command = [sys.executable, "-I", "-S", "program.py"]
        return descriptor(name, command, supervision={"watch": watch})

    watched, other = with_program("a", watch=True), with_program("b", watch=False)
    daemon = start_daemon(A)
    (daemon.modules / "program.py").write_text(PROGRAM)
    with reload_of(daemon):
        write(daemon.modules, watched, other)
    daemon.op("wait", modules=["a", "b"])
    before = pids(daemon)
    with reload_of(daemon):
        touch(daemon.modules / "program.py")
    assert pids(daemon) == before
    with reload_of(daemon):
        (daemon.modules / "program.py").unlink()
    assert pids(daemon) == before
    with reload_of(daemon):
        replace(daemon.modules / "program.py", PROGRAM + "# new\n")
    assert daemon.invoke("a").ok
    assert pids(daemon)["a"] != before["a"]
    assert pids(daemon)["b"] == before["b"]
