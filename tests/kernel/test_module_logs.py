"""The logs of modules: how much a module may fill, what is kept of it, and where; on its clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.events import Log, Progress
from tests.factories import script
from tests.kernel.conftest import ask, own, run_op
from tests.kernel.virtual import Clock, Story, story
from tests.principals import ADA

DONE = """echo '{"version":"0","type":"done","ok":true}'"""
NUMBERED = (
    'read -r x; first=${x#*first\\":}; first=${first%%[!0-9]*}; '
    f"seq -f %0990.0f $first $((first + 4999)) >&2; {DONE}"
)
"""Says 5,000 lines on stderr, of 990 characters each."""

BURST_BYTES, BYTES_S, FILE_BYTES, BATCH_BYTES = 4 << 20, 1 << 20, 5 << 20, 1 << 18


FILES = ["m.log", "m.log.1", "m.log.2"]


def files(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "logs").iterdir())


def lines_in(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


async def flood(world: Story, first: int) -> int:
    """Have it say more than it may; returns how many lines were left out."""
    before = (await world.status())["counters"]["left_out_log_lines"] if first else 0
    assert (await ask(world.kernel, "m", "say", args={"first": first}).document())["ok"]
    after: int = (await world.status())["counters"]["left_out_log_lines"]
    await world.told()  # by now, all is written
    return after - int(before)


async def test_a_module_may_fill_so_much_at_once_and_so_much_each_second(
    tmp_path: Path, mock_clock: Clock
) -> None:
    async with story(mock_clock, tmp_path, script(tmp_path, NUMBERED)) as world:
        await world.is_in("ready")
        allowed = left_out = 0
        for first, more in ((0, BURST_BYTES), (5000, BYTES_S), (10_000, BURST_BYTES)):
            before = left_out
            left_out = await flood(world, first)
            lines = [line for path in reversed(files(tmp_path)) for line in lines_in(path)]
            told = [line for line in lines if b"left out" in line]
            if before:
                words = f"m#{first // 5000 + 1} host {before} lines were left out: more than"
                assert told[-1].endswith(f" {words} {BYTES_S} bytes/s\n".encode())
            allowed += more
            of_it = [line for line in lines if line not in told]
            assert 0 <= allowed - sum(map(len, of_it)) < len(of_it[-1])
            assert of_it[-1].endswith(b"%d\n" % (first + 4999 - left_out))
            await world.passes(1 if first == 0 else 100)
        for first in range(15_000, 35_000, 5000):
            await flood(world, first)
            await world.passes(100)
        assert [path.name for path in files(tmp_path)] == FILES
        newest, *older = files(tmp_path)
        assert newest.stat().st_size <= FILE_BYTES
        for path in older:
            assert FILE_BYTES < path.stat().st_size <= FILE_BYTES + BATCH_BYTES
            assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("says", "tail"),
    [
        ("seq -f 'a%019.0f' 25", [f"a{number:019}" for number in range(7, 26)]),
        ("seq -f %0600.0f 25", [f"{number:0600}"[:500] for number in range(7, 26)]),
        # Of so much, the last 16,384 characters are kept, each line with its end.
        ("seq -f %01636.0f 25; printf 123", ["0" * 500] * 10),
        ("seq -f %01636.0f 25; printf 1234", ["0" * 500] * 9),
        ("printf 'one\\r\\n\\n\\377\\n'", ["one", "", "\ufffd"]),
        ("echo http://me:secret@there/", ["http://***@there/"]),
    ],
)
async def test_the_end_of_what_a_process_said_is_evidence(
    tmp_path: Path, mock_clock: Clock, says: str, tail: list[str]
) -> None:
    made = script(tmp_path, f"{{ {says}; printf unfinished; }} >&2; exit 3")
    async with story(mock_clock, tmp_path, made) as world:
        await world.is_in("ready")
        error = (await ask(world.kernel, "m", "x").document())["error"]
        *before, last = error["details"]["stderr_tail"]
        assert before == tail
        assert last.endswith("unfinished")


async def test_a_long_line_is_cut_into_pieces_and_a_long_event_is_cut_off(
    tmp_path: Path, mock_clock: Clock
) -> None:
    event = json.dumps({"version": "0", "type": "log", "level": "info", "message": "x" * 9000})
    body = f"printf '%08192d\\n%08193d\\n' 0 0 >&2; echo '{event}'; {DONE}"
    async with story(mock_clock, tmp_path, script(tmp_path, body)) as world:
        await world.is_in("ready")
        await ask(world.kernel, "m", "x").document()
        said = [(len(words), words[:7]) for _, _, words in (await world.told())[2:]]
    assert sorted(said) == [(1, "0"), (8192, "0000000"), (8192, "0000000"), (8192, "info: x")]


NAMES = {
    "m": "m",
    "a #1 host b": "a %231 host b",
    ".m": "%2Em",
    "nn" + "é" * 33: "nn" + "%C3%A9" * 33,
    "nnn" + "é" * 33: "nnn" + "%C3%A9" * 32 + "%C3%A",
}


async def test_each_line_of_a_log_has_its_time_and_where_it_comes_from(
    tmp_path: Path, mock_clock: Clock
) -> None:
    said = {"version": "0", "type": "log", "level": "warn", "message": "a\nb"}
    lines = [{**said, "fields": {"n": 1}}, said]
    error = {"version": "0", "type": "error", "errorCode": "bad", "errorMessage": "no"}
    lines.append({**error, "details": {"x": 2}})
    lines.append({"version": "0", "type": "done", "ok": False})
    text = "\n".join(json.dumps(one) for one in lines)
    body = f"echo oops >&2; printf '%s\\n' '{text}'"
    made = [script(tmp_path, body, name=name) for name in NAMES]
    async with story(mock_clock, tmp_path, *made) as world:
        for name in NAMES:
            await world.is_in("ready", name)
            await ask(world.kernel, name, "x").document()
            heard: list[tuple[str, str, str]] = []

            async def take(event: Progress | None) -> None:
                assert isinstance(event, Log)
                assert isinstance(event.fields, dict)
                assert event.fields["ts"] == 1000
                place = event.fields["instance"].removeprefix(name)  # noqa: B023
                heard.append((place, event.fields["stream"], event.message))  # noqa: B023

            await run_op(world.kernel, "logs", {"module": name}, take)
            assert sorted(heard) == [
                ("", "host", "down -> starting: the daemon started"),
                ("", "host", "starting -> ready: its command can be run"),
                ("#1", "event", 'error: bad: no {"x":2}'),
                ("#1", "event", "warn: a b"),
                ("#1", "event", 'warn: a b {"n":1}'),
                ("#1", "stderr", "oops"),
            ]
        # The name of one that is too long ends with a digest.
        found = [path.name.removesuffix(".log") for path in files(tmp_path)]
        assert [one.partition("~")[0] for one in found] == sorted(NAMES.values())
        assert [len(one) for one in found if "~" in one] == [217]
        assert lines_in(tmp_path / "data" / "logs" / "m.log")[0] == (
            b"1970-01-01T00:16:40.000Z m host down -> starting: the daemon started\n"
        )


async def test_a_log_that_cannot_be_written_is_told_until_it_is(
    tmp_path: Path, mock_clock: Clock
) -> None:
    async with story(mock_clock, tmp_path, script(tmp_path, f"echo oops >&2; {DONE}")) as world:

        async def shown() -> tuple[Any, Any]:
            await ask(world.kernel, "m", "x").document()
            await world.told()  # by now, the line has been tried
            daemon = (await own(world.kernel, ADA, "status"))["daemon"]
            return daemon["log_error"], daemon["dropped_log_bytes"]

        await world.is_in("ready")
        assert await shown() == (None, 0)
        (log,) = files(tmp_path)
        log.rename(tmp_path / "kept")
        log.mkdir()
        line = lines_in(tmp_path / "kept")[-1]
        assert await shown() == (f"{log}: Is a directory", len(line))
        assert await shown() == (f"{log}: Is a directory", 2 * len(line))
        log.rmdir()
        assert await shown() == (None, 2 * len(line))
        assert lines_in(log) == [line.replace(b"#1", b"#4")]
