"""The system gives a daemon no further thread or process (`ulimit -u`): it waits, and serves."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.runtime.containment.lifelines import PATIENCE_S
from tests.system.daemon import command
from tests.system.daemon_process import DaemonProcess
from tests.system.descriptors import misbehaving, write
from tests.system.other_user import BECOME, interpreter

LIMIT = """
import resource, sys
pid, soft = map(int, sys.argv[1:])
_, hard = resource.prlimit(pid, resource.RLIMIT_NPROC)
resource.prlimit(pid, resource.RLIMIT_NPROC, (soft, hard))
"""


def as_limited_user() -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return a Python, who runs it, and its environment: the limit holds everybody but root."""
    if os.geteuid() != 0:
        return sys.executable, {}, {}
    uid = pwd.getpwnam("nobody").pw_uid
    python, paths = interpreter(uid)
    return python, {"user": uid, "group": uid, "extra_groups": []}, paths


class Scene:
    """A daemon of a user whom the limit holds."""

    def __init__(self, home: Path) -> None:
        self.modules = home / "modules"
        self._python, self._user, paths = as_limited_user()
        prefix: list[str] = []
        if self._user:
            uid = self._user["user"]
            prefix = [sys.executable, "-c", BECOME, str(uid), ""]
            os.chown(home, uid, uid)
        self.write(misbehaving("one"), misbehaving("two"))
        self.daemon = DaemonProcess(
            self.modules,
            home,
            "process_group",
            prefix=prefix,
            python=self._python,
            environment=paths,
        )

    def write(self, *documents: dict[str, Any]) -> None:
        """Write descriptors with programs that the daemon's user may run."""
        for document in documents:
            document["transport"]["command"][0] = self._python
            write(self.modules, document)

    @contextlib.contextmanager
    def no_more(self) -> Iterator[None]:
        """Give the daemon no further thread and no further process within the block."""
        found = Path(f"/proc/{self.daemon.popen.pid}/limits").read_text()
        (line,) = [one for one in found.splitlines() if one.startswith("Max processes")]
        self._limit("1")
        try:
            yield
        finally:
            if self.daemon.popen.poll() is None:
                self._limit(line.split()[2].replace("unlimited", "-1"))

    def _limit(self, soft: str) -> None:
        pid = str(self.daemon.popen.pid)
        # Who has no capability for it may limit whoever runs as the same user.
        subprocess.run([self._python, "-c", LIMIT, pid, soft], check=True, cwd="/", **self._user)

    def module(self, name: str) -> dict[str, Any]:
        modules: list[dict[str, Any]] = self.daemon.status()["modules"]
        return next((one for one in modules if one["name"] == name), {})

    def is_served(self, name: str) -> bool:
        return bool(self.daemon.ask(name, "go")["ok"])


@pytest.fixture
def scene(folder: Path) -> Iterator[Scene]:
    made = Scene(folder)
    yield made
    made.daemon.close()


@pytest.mark.fault(21)
def test_changed_descriptors_and_dead_modules_wait_for_a_thread_and_the_daemon_ends_in_order(
    scene: Scene,
) -> None:
    scene.daemon.ask("supervisor", "wait", modules=["one", "two"])
    with scene.no_more():
        os.kill(scene.module("one")["instances"][0]["pid"], signal.SIGKILL)
        scene.write(misbehaving("new"))
        until(lambda: scene.module("one")["state"] == "backoff", "a module that cannot be started")
        until(lambda: scene.module("new").get("state") == "backoff", "another one")
        assert scene.daemon.ask("two", "go", word="on")["result"]["word"] == "on"
    for name in ("one", "new"):
        until(partial(scene.is_served, name), f"{name} being served")
    with scene.no_more():
        scene.daemon.popen.terminate()
        assert scene.daemon.popen.wait(PATIENCE_S) == 0, scene.daemon.log.read_text()
    assert '"level": "error"' not in scene.daemon.log.read_text()


@pytest.mark.fault(21)
def test_modules_of_which_each_needs_a_further_thread_to_start_are_told_why_they_do_not(
    scene: Scene,
) -> None:
    names = [f"lazy{number}" for number in range(4)]
    scene.write(*(misbehaving(name, start="lazy") for name in names))
    scene.daemon.ask("supervisor", "reload")
    with scene.no_more(), contextlib.ExitStack() as begun:
        asked = [begun.enter_context(scene.daemon.begin(name, "go")) for name in names]
        for one in asked:
            answer = json.loads(begun.enter_context(one.makefile("rb")).readline())
            assert answer["error"]["details"]["reason"] == "spawn_failed", answer
            assert "ulimit -u" in answer["error"]["message"]
    for name in names:
        until(partial(scene.is_served, name), f"{name} being served")


@pytest.mark.parametrize("soft", [1, 4])
def test_a_daemon_that_would_have_too_few_threads_refuses_to_start_in_words(
    folder: Path, soft: int
) -> None:
    run = ["sh", "-c", f'ulimit -S -u {soft} 2>/dev/null || ulimit -S -p {soft}; exec "$@"', "sh"]
    words = command(folder / "modules", folder / "socket", folder / "data")
    write(folder / "modules")
    python, user, paths = as_limited_user()
    os.chown(folder, *[user.get("user", -1)] * 2)
    done = subprocess.run(
        [*run, python, *words[1:]],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **paths},
        timeout=PATIENCE_S,
        **user,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("stdiod: the system gives fewer than ")
