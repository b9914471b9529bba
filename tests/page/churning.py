"""Serve MODULES modules without processes, each of which changes its state ten times a second.

`python -m tests.page.churning FOLDER` writes the address of the page and a code to log in with, as
JSON, and goes on until it is killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import structlog
import trio
import trio.testing

from supervisor.daemon import gateway
from supervisor.faces import control_socket
from supervisor.faces.admission import Admission
from supervisor.kernel.kernel import JournalOptions, Kernel
from supervisor.policy.findings import Found
from supervisor.policy.http_exposure import Exposure
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


async def tell_address(daemon: Kernel, address: str) -> None:
    code = (await run_op(daemon, "page.login", {}, nothing))["code"]
    line = json.dumps({"address": address, "code": code})
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
            control = folder / "stdiod.sock"
            loopback = Exposure(host="127.0.0.1", port=0)
            with (
                control_socket.listening(control) as listener,
                gateway.listening(loopback, control) as listeners,
            ):
                # All modules of this process are fakes. It ends with its stdin.
                process = await trio.lowlevel.open_process(
                    gateway.command(listeners, control, "--supervised"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[one.fileno() for one in listeners.sockets],
                )
                async with trio.open_nursery() as nursery:
                    admission = Admission.of(daemon.facts)
                    nursery.start_soon(control_socket.serve, daemon, listener, admission)
                    nursery.start_soon(process.wait)
                    await tell_address(daemon, listeners.address)
                    await change(stage.lives)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
