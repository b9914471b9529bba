"""What a real process of a module costs the daemon: descriptors and threads."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path

from supervisor.runtime.containment import procfs
from tests import factories
from tests.bounds import until
from tests.kernel.conftest import daemon_with
from tests.system.daemon_process import DaemonProcess

DESCRIPTORS = 4
"""stdin, stdout, stderr, and the pidfd."""

KINDS = ("pipe:", "anon_inode:[pidfd", "pidfd:")
"""What the links in /proc/self/fd point to; the last one since Linux 6.9."""

MODULES = 24

THREADS = 14
"""The event loop, the journal, the module logs; eight that spawn; three for other waits on files,
of which there are at most as many at a time: the watch, a reload, the data directory."""


def pipes_and_pidfds() -> int:
    """Count what is held for processes: files come and go with the logs."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += str(link.readlink()).startswith(KINDS)
    return found


async def test_a_persistent_module_holds_four_descriptors(tmp_path: Path) -> None:
    held: list[int] = []
    for count in (1, 5):
        folder = tmp_path / str(count)
        folder.mkdir()
        modules = [factories.actor(folder, name=f"m{number}") for number in range(count)]
        async with daemon_with(folder, *modules):
            held.append(pipes_and_pidfds())
    assert held[1] - held[0] == 4 * DESCRIPTORS


async def test_modules_are_not_among_the_children_in_which_orphans_are_looked_for(
    tmp_path: Path,
) -> None:
    modules = [factories.actor(tmp_path, name=f"m{number}") for number in range(5)]
    async with daemon_with(tmp_path, *modules) as daemon:
        found = [one.instances() for one in daemon.fleet.modules.values()]
        pids = {instance.pid for ((instance, _),) in found}
        me = os.getpid()
        assert len(pids) == len(modules)
        assert pids.isdisjoint(procfs.children_of_thread(me, me) or ())
        spawners = [one.native_id for one in threading.enumerate() if one.name == "stdiod-work"]
        lists = [procfs.children_of_thread(me, one) or () for one in spawners if one is not None]
        assert pids.issubset(pid for listed in lists for pid in listed)


def test_threads_do_not_grow_with_modules(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    for number in range(MODULES):
        name = f"m{number}"
        content = factories.document([*factories.PYTHON, factories.ACTOR, name], name=name)
        (modules / f"{name}.json").write_text(json.dumps(content))
    home = tmp_path / "home"
    home.mkdir()
    daemon = DaemonProcess(modules, home)
    try:
        names = [f"m{number}" for number in range(MODULES)]
        assert daemon.ask("supervisor", "wait", modules=names, **{"for": "ready"})["ok"]
        tasks = Path(f"/proc/{daemon.popen.pid}/task")
        # One that nobody needs ends after a while, and as many as are needed at a time stay.
        until(lambda: len(list(tasks.iterdir())) <= THREADS, f"at most {THREADS} threads")
    finally:
        daemon.close()
