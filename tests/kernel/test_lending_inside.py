"""Of `test_lending.py`, what is bound to the structure."""

from __future__ import annotations

from pathlib import Path

import trio

from supervisor.runtime.files.directory import DescriptorFiles
from tests.kernel.lending import (
    cause,
    daemon_over,
    serving,
    text,
)


async def test_the_files_of_a_source_that_came_are_watched(tmp_path: Path) -> None:
    further = tmp_path / "further"
    further.mkdir()
    async with daemon_over(tmp_path, "a") as daemon, trio.open_nursery() as nursery:
        await nursery.start(daemon.watch)
        async with daemon.reloads.lend(DescriptorFiles(further)):
            (further / "x.json").write_bytes(text("x"))
            await serving(daemon, "a", "x")
            assert cause(daemon) == "a change of the files"
        await serving(daemon, "a")
        nursery.cancel_scope.cancel()
