"""What the kernel refuses for a moment is an ordinary failure: told in words, and tried again."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.policy.lifecycle import State
from tests.factories import actor
from tests.runtime.conftest import Running
from tests.runtime.supervision.test_persistent import submit

SOON = {"initial_s": 0.001, "factor": 1, "max_s": 0.001, "jitter": 0}


@pytest.mark.fault(20)
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EAGAIN, "ulimit -u"),
        (errno.ENOMEM, "no memory"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "ulimit -n"),
    ],
)
async def test_a_respawn_that_the_kernel_refuses_is_told_and_tried_again(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    supervision = {"backoff": SOON, "intensity": 1000}
    module = await running.ready(actor(tmp_path, supervision=supervision))
    popen, refusals = subprocess.Popen, 3
    told: list[str] = []

    def refuse(*args: Any, **options: Any) -> Any:
        if module.last_exit is not None and module.last_exit.reason == "spawn_failed":
            told.append(module.last_exit.message)
        if len(told) < refusals:
            raise OSError(code, os.strerror(code))
        return popen(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", refuse)
    failure = await submit(module, "exit", code=1).failure()
    assert failure.details["reason"] == "exited"
    await running.until(lambda: len(told) == refusals and module.state is State.READY)
    assert all(words in one for one in told)
    assert (await submit(module, "echo", n=1).success()).result == {"n": 1}
    await running.down()
