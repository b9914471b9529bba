"""A recording has all that is said with a process, and what happens to it, in its order."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.events import Log, Progress
from tests.factories import actor, script
from tests.kernel.conftest import GONE, ask, begun, own, run_op
from tests.kernel.test_supervision_times import BACKOFF, NO_PROBES
from tests.kernel.virtual import TAIL, Clock, Story, story
from tests.principals import ADA

Talk = list[tuple[float, str]]


def words(record: dict[str, Any]) -> str:
    """Return what a record says, but for what differs from run to run."""
    if "line" in record:
        return f"{record['from']}: {record['line']}"
    if "outcome" in record:
        outcome = record["outcome"]
        ended = "ok" if outcome["ok"] else f"{outcome['error']['code']}"
        return f"{record['request_id']} {record.get('op', record['operation'])}: {ended}"
    if "operation" in record:
        return f"{record['request_id']} {record.get('op', record['operation'])}?"
    facts = {
        name: fact
        for name, fact in record.items()
        if name not in ("at_s", "from", "instance", "event", "pid")
    }
    return f"{record['event']} {json.dumps(facts)}" if facts else str(record["event"])


@asynccontextmanager
async def recorded(world: Story, **args: Any) -> AsyncIterator[Talk]:
    """Record the module until a process ends; the block goes on while it is recorded."""
    talk: Talk = []
    pieces: list[str] = []
    begun = trio.Event()

    async def take(event: Progress | None) -> None:
        assert isinstance(event, Log)
        assert isinstance(event.fields, dict)
        # The end of stdout may be seen, or the end of the process before it.
        if begun.is_set() and event.fields.get("event") != "eof":
            said = words(event.fields)
            if pieces:
                said = talk.pop()[1] + event.fields["line"]
            talk.append((round(event.fields["at_s"], 3), said))
            pieces[:] = [said] if event.fields.get("newline") is False else []
        begun.set()

    async with trio.open_nursery() as nursery:
        what = {"module": "m", "until_exit": True, **args}
        nursery.start_soon(lambda: run_op(world.kernel, "record", what, take))
        await begun.wait()
        yield talk


async def has(talk: Talk, said: str) -> None:
    while said not in [one for _, one in talk]:
        await trio.lowlevel.checkpoint()


def asked(number: int, operation: str, **content: Any) -> str:
    request = {
        "requestId": f"r{number}-{TAIL}",
        "tool": "m",
        "operation": operation,
        "input": content,
    }
    return f"host: {json.dumps(request, separators=(',', ':'))}"


def answered(number: int, **content: Any) -> str:
    return f"module: {json.dumps({'requestId': f'r{number}-{TAIL}', **content})}"


WELL = {"status": "ok"}
ENDED = 'ended {"missing_bytes": 0, "why": "a process ended"}'


async def test_a_process_is_recorded_from_its_spawn_to_its_end(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"health": NO_PROBES, "concurrency": 2, "start": "lazy"}
    made = actor(tmp_path, "cancel", supervision=supervision)
    describes: dict[str, Any] = {"name": "m", "version": "1", "kind": "tool", "capabilities": []}
    describes |= {"inputs": {}, "outputs": {}, "features": ["cancel"]}
    async with story(mock_clock, tmp_path, made) as world:
        async with recorded(world) as talk:
            await ask(world.kernel, "m", args={"text": "hi"}).document()
            handle, _ = begun(world.kernel, "m", "hang")
            await world.shows(in_flight=1)
            await world.passes(1)
            handle.cancel(GONE)
            await has(talk, f"r5-{TAIL} health: ok")
            await ask(world.kernel, "m", "events", args={"count": 1}).document()
            await own(world.kernel, ADA, "stop", module="m")
        log = {
            "version": "0",
            "type": "log",
            "requestId": f"r6-{TAIL}",
            "level": "info",
            "message": "0 ",
        }
        requests = [one for one in talk if one[1].endswith("?")]
        assert requests == [
            (0, f"r2-{TAIL} health?"),
            (0, f"r3-{TAIL} describe?"),
            (0, f"r1-{TAIL} echo?"),
            (0, f"r4-{TAIL} hang?"),
            (1, f"r5-{TAIL} health?"),
            (1, f"r6-{TAIL} events?"),
        ]
        assert [one for one in talk if one not in requests] == [
            (0, "spawned"),
            (0, asked(2, "health")),
            (0, answered(2, **WELL)),
            (0, f"r2-{TAIL} health: ok"),
            (0, asked(3, "describe")),
            (0, answered(3, **describes)),
            (0, f"r3-{TAIL} describe: ok"),
            (0, asked(1, "invoke", op="echo", args={"text": "hi"})),
            (0, answered(1, ok=True, result={"text": "hi"})),
            (0, f"r1-{TAIL} echo: ok"),
            (0, asked(4, "invoke", op="hang", args={})),
            (1, f"r4-{TAIL} hang: cancelled"),
            (1, f'host: {{"requestId":"r4-{TAIL}","operation":"cancel"}}'),
            (1, asked(5, "health")),
            (1, answered(4, ok=False, error={"code": "cancelled", "message": ""})),
            (1, answered(5, **WELL)),
            (1, f"r5-{TAIL} health: ok"),
            (1, asked(6, "invoke", op="events", args={"count": 1})),
            (1, f"module: {json.dumps(log)}"),
            (1, answered(6, ok=True, result={"count": 1})),
            (1, f"r6-{TAIL} events: ok"),
            (1, "stdin_closed"),
            (1, 'exited {"exit_code": 0, "stopped_by_host": true}'),
            (1, ENDED),
        ]
        async with recorded(world) as talk:
            await own(world.kernel, ADA, "start", module="m")
            await world.is_in("ready")
            await own(world.kernel, ADA, "stop", module="m")
        assert talk[0][1] == "spawned"


async def test_of_two_recordings_that_of_the_next_process_has_nothing_of_the_one_that_runs(
    tmp_path: Path, mock_clock: Clock
) -> None:
    supervision = {"health": NO_PROBES, "backoff": BACKOFF}
    made = actor(tmp_path, supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        async with recorded(world) as now, recorded(world, restart=True) as following:
            await world.has("m#2")
            await world.is_in("ready")
            await ask(world.kernel, "m", "exit", args={"code": 3}).document()
        assert [one for _, one in now] == [
            'attached {"mid_line": false}',
            "stdin_closed",
            'exited {"exit_code": 0, "stopped_by_host": true}',
            ENDED,
        ]
        said = [one for _, one in following]
        ends = [one for one in said if one.startswith("exited")]
        assert (said[0], ends) == ("spawned", ['exited {"exit_code": 3}'])


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_process_in_doubt_is_given_a_call_once_it_has_answered_if_it_serves_one_at_a_time(
    tmp_path: Path, mock_clock: Clock, concurrency: int
) -> None:
    supervision = {"health": NO_PROBES, "concurrency": concurrency}
    made = actor(tmp_path, supervision=supervision)
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        async with recorded(world) as talk:
            handle, _ = begun(world.kernel, "m", "hang")
            await world.shows(in_flight=1)
            handle.cancel(GONE)
            assert (await ask(world.kernel, "m").document())["ok"]
            await own(world.kernel, ADA, "stop", module="m")
        said = [one for _, one in talk]
        call = asked(4, "invoke", op="echo", args={})
        probe = next(one for one in said if '"operation":"health"' in one)
        well = next(one for one in said if one.endswith(" health: ok"))
        assert said.index(probe) < said.index(well)
        assert (said.index(call) < said.index(well)) is (concurrency == 2)


@pytest.mark.parametrize("size", [10, 200_000])
async def test_the_stdin_of_a_tool_is_closed_when_its_request_is_written(
    tmp_path: Path, mock_clock: Clock, size: int
) -> None:
    body = """cat > /dev/null; echo '{"version":"0","type":"done","ok":true}'; echo bye >&2"""
    async with story(mock_clock, tmp_path, script(tmp_path, body)) as world:
        await world.is_in("ready")
        async with recorded(world) as talk:
            await ask(world.kernel, "m", "go", args={"text": size * "h"}).document()
        request = {"requestId": f"r1-{TAIL}", "tool": "m", "operation": "go"}
        said = json.dumps({**request, "input": {"text": size * "h"}}, separators=(",", ":"))
        assert sorted(one for _, one in talk[4:-3]) == [
            'module: {"version":"0","type":"done","ok":true}',
            "stderr: bye",
        ]
        assert [one for _, one in (*talk[:4], *talk[-3:])] == [
            f"r1-{TAIL} go?",
            "spawned",
            f"host: {said}",
            "stdin_closed",
            'exited {"exit_code": 0}',
            f"r1-{TAIL} go: ok",
            ENDED,
        ]


@pytest.mark.parametrize(
    ("drawn", "tail"), [(1e-9, "000000"), (0.25, "400000"), (1 - 1e-16, "ffffff")]
)
async def test_the_request_ids_of_a_run_end_with_a_tail_that_is_drawn_once(
    tmp_path: Path, mock_clock: Clock, drawn: float, tail: str
) -> None:
    made = actor(tmp_path, supervision={"health": NO_PROBES, "start": "lazy"})
    async with story(mock_clock, tmp_path, made, draw=lambda: drawn) as world:
        answers = [await ask(world.kernel, "m").document() for _ in range(2)]
    # Between them, the module was asked for its health and its description.
    assert [one["request_id"] for one in answers] == [f"r1-{tail}", f"r4-{tail}"]
