"""Nobody waits for the kernel to remove a cgroup."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.errors import Success
from supervisor.kernel.kernel import Kernel
from supervisor.policy.lifecycle import State
from supervisor.runtime.containment import cgroup_folder
from supervisor.runtime.containment.cgroup2 import Cgroup2Rung, own_folder
from supervisor.runtime.containment.orphans import Orphans
from supervisor.runtime.files.sources import scan
from tests.runtime.containment.conftest import why_not
from tests.runtime.containment.in_process import ask, cgroups, until, until_removed
from tests.runtime.containment.lifelines import PATIENCE_S, Lifelines, describe

pytestmark = pytest.mark.skipif(why_not("cgroup2") is not None, reason=str(why_not("cgroup2")))

TOOL = """
import sys
sys.stdin.readline()
print('{"version": "0", "type": "done", "ok": true, "result": {}}')
"""


@pytest.mark.fault(36)
async def test_a_kernel_that_holds_up_what_is_done_to_cgroups_holds_up_nobody(
    lifelines: Lifelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {"stubborn#1", "tool#1", "tool#2"}
    on_loop: list[str] = []
    goes_on = threading.Event()
    rmdir, write = os.rmdir, cgroup_folder.write

    def is_on_loop(what: str) -> bool:
        if threading.current_thread() is threading.main_thread():
            on_loop.append(what)
            return True
        return False

    def removed_late(path: Any, **more: Any) -> None:
        if not is_on_loop(f"rmdir {path}"):
            assert goes_on.wait(PATIENCE_S)
        rmdir(path, **more)

    def written(path: str, file: str, text: str) -> None:
        is_on_loop(f"{file} of {path}")
        write(path, file, text)

    modules = tmp_path / "modules"
    describe(modules, lifelines, "double", name="stubborn")
    command = [sys.executable, "-I", "-S", "-c", TOOL]
    transport = {"type": "stdio", "protocol": "narratoria", "command": command}
    document = {"name": "tool", "kind": "tool", "capabilities": [], "transport": transport}
    (modules / "tool.json").write_text(json.dumps(document))
    async with Kernel(
        scan([modules]), data_dir=tmp_path / "data", containment="cgroup2", whole_process=True
    ) as daemon:
        await until(daemon, State.READY)
        await until(daemon, State.READY, "tool")
        monkeypatch.setattr(os, "rmdir", removed_late)
        monkeypatch.setattr(cgroup_folder, "write", written)
        try:
            for _ in range(2):
                assert isinstance((await ask(daemon, "run", "tool").response()).outcome, Success)
            module = daemon.fleet.modules["stubborn"]
            module.restart("the test")
            with trio.fail_after(PATIENCE_S):
                await daemon.fleet.wait_until(lambda: module.last_exit)
            await until(daemon, State.READY)
            assert ended <= set(cgroups(daemon))
        finally:
            goes_on.set()
        await until_removed(daemon, "stubborn#2")
        assert not on_loop


def test_one_that_has_the_name_of_one_that_is_not_removed_yet_gets_a_folder_of_its_own() -> None:
    orphans = Orphans("d", whole_process=False)
    rung = Cgroup2Rung(own_folder(), "test-of-names", orphans, with_tools=True)
    try:
        made = [rung.new_folder("m#1") for _ in range(3)]
        assert [one.rpartition("/")[2] for one in made] == ["m#1", "m#1~2", "m#1~3"]
        assert all(map(cgroup_folder.is_empty, made))
    finally:
        rung.close()
    assert not Path(rung.folder).exists()
