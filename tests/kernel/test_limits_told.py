"""Limits of processes, and what keeps them from being started, on a virtual clock."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import trio

from tests.factories import actor, descriptor, program, script
from tests.kernel.conftest import ask
from tests.kernel.test_supervision_times import BACKOFF, BEGAN, error_of
from tests.kernel.virtual import Clock, story

LOOK_S = 0.25
"""Between two looks at all processes."""

BEYOND = 1 << 30
"""More files than the kernel lets anybody have."""


async def test_a_process_has_the_limits_that_the_kernel_keeps(
    tmp_path: Path, mock_clock: Clock
) -> None:
    made = actor(tmp_path, supervision={"limits": {"cpu_s": 50, "open_files": 64}})
    async with story(mock_clock, tmp_path, made) as world:
        (one,) = (await world.is_in("ready"))["instances"]
        assert resource.prlimit(one["pid"], resource.RLIMIT_CPU) == (50, 51)
        assert resource.prlimit(one["pid"], resource.RLIMIT_NOFILE) == (64, 64)


async def test_a_limit_that_cannot_be_set_keeps_a_module_from_being_started(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"limits": {"open_files": BEYOND}, "backoff": BACKOFF}
    async with story(mock_clock, tmp_path, actor(tmp_path, supervision=supervision)) as world:
        status = await world.is_in("backoff")
        highest = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        words = f"the limit open_files of {BEYOND} cannot be set: Operation not permitted"
        words += f" (the daemon's own hard limit is {highest})"
        died = status["last_exit"]
        assert (died["reason"], died["message"]) == (
            "spawn_failed",
            f"could not be started: {words}",
        )
        assert status["instances"] == []


@pytest.mark.parametrize("limit", [3, 4])
async def test_a_tool_that_has_begun_too_many_processes_is_ended(
    tmp_path: Path, mock_clock: Clock, limit: int
) -> None:
    # Of the four, no one ends by itself when another is killed before it.
    body = "for one in 1 2 3; do sleep 1000 & done; echo up >&2; exec sleep 1000"
    supervision = {"limits": {"processes": limit}, "timeouts": {"invoke_s": 1000}}
    async with story(
        mock_clock, tmp_path, script(tmp_path, body, supervision=supervision)
    ) as world:
        await world.is_in("ready")
        asker = ask(world.kernel, "m")
        await world.says("up")
        looks = 0
        while (limit == 3 or looks < 3) and not asker.responses:
            if trio.lowlevel.current_statistics().seconds_to_next_deadline <= LOOK_S:
                await world.passes(LOOK_S)
                looks += 1
            await trio.lowlevel.checkpoint()
        if limit == 4:
            assert not asker.responses
            return
        code, words, details = await error_of(asker)
        assert (code, words) == (
            "internal",
            "m.echo: its process had 4 processes, and 3 is its limit, so it was ended",
        )
        assert details["limit"] == {
            "limit": "processes",
            "allowed": 3,
            "used": 4,
            "share": None,
            "by_kernel": False,
        }
        assert (details["reason"], details["signal"]) == ("signaled", 9)
        await world.shows(instances=[])


@pytest.mark.parametrize("tries", [3, 6])
async def test_a_program_that_is_being_written_is_waited_for(
    tmp_path: Path, mock_clock: Clock, tries: int
) -> None:
    path = program(tmp_path / "program", "#!/bin/sh\nexit 5\n")
    made = descriptor(tmp_path, ["./program"], supervision={"backoff": BACKOFF})
    writer = path.open("a")
    async with story(mock_clock, tmp_path, made) as world:
        for pause_s in (0.01, 0.02, 0.05, 0.1, 0.2)[:tries]:
            await world.is_at_rest(pause_s)
            if pause_s == 0.05 and tries == 3:
                writer.close()
            await world.rests(pause_s)
        died = (await world.is_in("backoff"))["last_exit"]
        busy = f"could not be started: {path} is being written by another process"
        at, words = (0.08, "exited with code 5") if tries == 3 else (0.38, busy)
        assert died["message"] == words
        assert await world.told() == [BEGAN, (at, "m#1", f"starting -> backoff: {words}")]
    writer.close()
