"""Programs of another user than the one who runs the tests, who is root, and in a cgroup of his."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent

BECOME = """
import os, sys
user, cgroup, *words = sys.argv[1:]
if cgroup:
    with open(cgroup + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
os.execv(words[0], words)
"""
"""Become another user, in a cgroup that belongs to him."""


def interpreter(uid: int) -> tuple[str, dict[str, str]]:
    """Return a Python that another user may run, and the environment in which it finds us."""
    packages = [one for one in sys.path if one.endswith("site-packages")]
    paths = {"PYTHONPATH": os.pathsep.join([str(CHECKOUT), *packages])}
    for found in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")):
        words = [found or "", "-c", "import msgspec, trio, supervisor.daemon.serve"]
        with contextlib.suppress(OSError):
            done = subprocess.run(
                words, user=uid, group=uid, extra_groups=[], env=paths, check=False, cwd="/"
            )
            if done.returncode == 0:
                return str(found), paths
    pytest.skip("no other user may run this Python, or read this checkout")


def own_cgroup() -> Path:
    """Return the folder of this process's cgroup v2, where that is mounted."""
    cgroups = Path("/proc/self/cgroup").read_text().splitlines()
    (path,) = [one.removeprefix("0::") for one in cgroups if one.startswith("0::")]
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        root, mounted = line.split()[3:5]
        inside = os.path.relpath(path, root)
        if " - cgroup2 " in line and not inside.startswith(".."):
            return Path(mounted, inside)
    raise OSError("cgroup v2 is not mounted where this process can see it")
