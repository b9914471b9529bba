"""Serve MODULES modules without processes, each of which changes its state ten times a second.

`python -m tests.page.churning FOLDER` writes the address of the page and a code to log in with, as
JSON, and goes on until it is killed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import structlog
import trio
import trio.testing

from supervisor.kernel.kernel import JournalOptions, Kernel
from supervisor.policy.findings import Found
from tests.faces.http.in_process import LOOPBACK, served
from tests.kernel.conftest import nothing, run_op
from tests.runtime.fakes import FakeLife, Stage, staged

MODULES = 300
EVERY_S = 0.1


async def get_ready(stage: Stage) -> None:
    ready = 0
    while ready < MODULES:
        for life in stage.lives[ready:]:
            if life.begun:
                life.get_ready()
                ready += 1
        await trio.testing.wait_all_tasks_blocked()


async def change(lives: list[FakeLife]) -> None:
    """Have each be well and unwell by turns."""
    well = True
    while True:
        well = not well
        begun = trio.current_time()
        for at, life in enumerate(lives):
            life.probe(well=well)
            if at % 10 == 9:  # spread over the time there is
                await trio.sleep_until(begun + EVERY_S * at / len(lives))


async def address(daemon: Kernel, port: int) -> None:
    code = (await run_op(daemon, "page.login", {}, nothing))["code"]
    line = json.dumps({"address": f"http://127.0.0.1:{port}", "code": code})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(folder: Path) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    stage = Stage()
    modules = tuple(staged(folder, name=f"m{number:03}") for number in range(MODULES))
    with stage.known():
        options: dict[str, Any] = {"data_dir": folder / "data", "memory": JournalOptions()}
        async with Kernel(Found(modules), environment={}, **options) as daemon:
            await get_ready(stage)
            async with served(daemon, folder, LOOPBACK) as site:
                port = site.doors[-1].listener.getsockname()[1]
                await address(daemon, port)
                await change(stage.lives)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
