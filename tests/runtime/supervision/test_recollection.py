"""What a server agreed to is known of the same program again, and of an edited one no more."""

from __future__ import annotations

import shutil
from pathlib import Path

from protocol.descriptor.model import Descriptor
from supervisor.policy.lifecycle import State
from tests.factories import PYTHON, descriptor
from tests.runtime.conftest import Running

SERVER = Path(__file__).parents[2] / "kernel" / "mcp_server.py"
FUTURE = "from __future__ import annotations\n"
NEVER_AGAIN = {"backoff": {"initial_s": 1000, "max_s": 1000}}


def server(folder: Path, kind: str) -> Descriptor:
    """Make the descriptor of a server whose program can be edited."""
    program = folder / "server.py"
    if not program.exists():
        shutil.copy(SERVER, program)
    return descriptor(
        folder,
        [*PYTHON, "server.py", kind],
        transport={"protocol": "mcp"},
        supervision=NEVER_AGAIN,
    )


async def instance(running: Running, made: Descriptor) -> str:
    """Start it in a module of its own, as a daemon that follows would; return which one serves."""
    module = await running.ready(made)
    found = module.workers[0].instance
    await running.down()
    assert found is not None
    return found


async def test_a_server_that_ends_at_the_first_greeting_is_greeted_so_once(
    running: Running, tmp_path: Path
) -> None:
    made = server(tmp_path, "ends")
    assert await instance(running, made) == "m#2"
    assert await instance(running, made) == "m#1"
    (tmp_path / "server.py").write_text(SERVER.read_text() + "\n# edited\n")
    assert await instance(running, made) == "m#2"
    assert await instance(running, made) == "m#1"


async def test_a_start_that_fails_has_it_forgotten(running: Running, tmp_path: Path) -> None:
    text = "import os, sys\nif os.path.exists('broken'): sys.exit(3)\n"
    (tmp_path / "server.py").write_text(text + SERVER.read_text().replace(FUTURE, ""))
    made = server(tmp_path, "modern")
    await instance(running, made)
    (note,) = running.host.notes._all.values()
    assert note == {"memory": {"era": "modern"}}
    (tmp_path / "broken").touch()
    module = running(made)
    module.start("the test")
    await running.until(lambda: module.state is State.BACKOFF)
    assert running.host.notes._all == {}


async def test_a_module_of_another_dialect_is_not_looked_at(
    running: Running, tmp_path: Path
) -> None:
    program = descriptor(tmp_path, [*PYTHON, str(SERVER.parents[1] / "runtime/actor.py"), "m"])
    module = await running.ready(program)
    assert not module.setting.recollection.was_looked_for
    await running.down()
