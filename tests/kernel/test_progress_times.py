"""How long a call of a server may take that tells of progress, on a virtual clock."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from tests.kernel.conftest import Asker, ask
from tests.kernel.test_mcp_servers import served
from tests.kernel.test_supervision_times import error_of
from tests.kernel.virtual import Clock, Story, story

TIMEOUTS = {"invoke_s": 10, "total_s": 35, "health_s": 1000}
MOST = "gave no answer in 35 s, which is the most that a call may take with progress"


async def tells(world: Story, asker: Asker) -> None:
    """Let the server tell of progress, and wait until the client has it."""
    (one,) = (await world.status("server"))["instances"]
    heard = len(asker.events)
    os.kill(one["pid"], signal.SIGUSR1)
    await asker.heard(heard + 1)


@pytest.mark.parametrize(
    ("pauses_s", "last_s", "words"),
    [
        ([], 10, "gave no answer in 10 s"),
        ([9], 10, "gave no answer in 19 s, and told of no progress in the last 10 s"),
        ([9, 9, 9], 8, f"{MOST} (supervision.timeouts.total_s)"),
        ([9, 9, 7], 10, f"{MOST} (supervision.timeouts.total_s)"),
        ([9, 9, 6], 10, "gave no answer in 34 s, and told of no progress in the last 10 s"),
    ],
)
async def test_each_progress_gives_a_call_as_much_time_again_up_to_the_most(
    tmp_path: Path, mock_clock: Clock, pauses_s: list[float], last_s: float, words: str
) -> None:
    made = served(tmp_path, "legacy", "wait", supervision={"timeouts": TIMEOUTS, "concurrency": 1})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready", "server")
        asker = ask(world.kernel, "server", "wait")
        waiting = ask(world.kernel, "server", "draw", args={"n": 1})
        await trio.testing.wait_all_tasks_blocked()
        for pause_s in pauses_s:
            await world.passes(pause_s)
            await tells(world, asker)
        await world.passes(last_s - 0.02)
        assert not asker.responses
        await world.passes(0.03)
        code, said, details = await error_of(asker)
        assert (code, details["reason"]) == ("timeout", "deadline")
        assert said.startswith(f"server.wait {words}"), said
        code, said, details = await error_of(waiting)
        turn = "it waits for wait of server, concurrency 1 (10 s so far)"
        begun = "server.draw was not begun in 10 s; it was still waiting for its turn"
        assert (code, said) == ("timeout", f"{begun}: {turn}")
        assert (details["state"], details["waits_for_op"]) == ("ready", "wait")


async def test_an_answer_after_much_progress_is_an_answer(
    tmp_path: Path, mock_clock: Clock
) -> None:
    made = served(tmp_path, "legacy", "wait", supervision={"timeouts": TIMEOUTS})
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready", "server")
        asker = ask(world.kernel, "server", "wait")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            await world.passes(9)
            await tells(world, asker)
        (one,) = (await world.status("server"))["instances"]
        os.kill(one["pid"], signal.SIGUSR2)
        document = await asker.document()
        assert document["result"] == {"content": [{"type": "text", "text": "3"}]}
