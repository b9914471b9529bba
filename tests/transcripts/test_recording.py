"""Recordings: attached to a module that runs, bounded, and never in its way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import trio

from protocol.errors import Success
from protocol.transcript import (
    Entry,
    EntrySource,
    Happened,
    Transcript,
    header_of,
    read_transcript,
)
from supervisor.runtime.held_bytes import Account, HeldBounds, HeldBytes
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.taps import Tap
from supervisor.transcripts.recording import ENTRY_BYTES, WAITING_BYTES, Recording, TranscriptFile
from tests.factories import PYTHON, actor, call, descriptor, script
from tests.runtime.conftest import Running

CALM = {"health": {"interval_s": 10_000}}
"""It is not probed meanwhile."""


class Kept:
    """A recording and what it held."""

    def __init__(self, room: int = 1 << 20, *, until_exit: bool = False) -> None:
        """Keep up to `room` bytes that are not taken."""
        ledger = HeldBytes(HeldBounds(all=2 * room, free=0, least_free=0))
        self.recording = Recording(Account(ledger, "the test"), until_exit=until_exit)

    def entries(self) -> list[Entry]:
        return [*self.recording.take()]


def said(entries: list[Entry], source: EntrySource) -> list[bytes]:
    return [one.content() for one in entries if one.source is source and one.is_line]


def events(entries: list[Entry]) -> list[Happened]:
    return [one.event for one in entries if one.event is not None]


def outcomes(entries: list[Entry]) -> list[str]:
    return [str(one.op or one.operation) for one in entries if one.outcome is not None]


async def ask(module: Module, op: str = "echo", **args: object) -> None:
    one, heard = call(op, **args)
    module.submit(one)
    await heard.outcome()


async def test_a_conversation_is_kept_from_spawn_to_exit(running: Running, tmp_path: Path) -> None:
    module = running(actor(tmp_path, supervision=CALM))
    kept = Kept(until_exit=True)
    module.taps.attach(kept.recording)
    module.start("the test")
    await running.until(module.is_ready)
    await ask(module, "echo", text="hi")
    await running.down()
    entries = kept.entries()
    assert [one for one in events(entries) if one is not Happened.EOF] == [
        Happened.SPAWNED, Happened.STDIN_CLOSED, Happened.EXITED, Happened.ENDED,
    ]  # fmt: skip
    assert outcomes(entries) == ["health", "describe", "echo"]
    assert [one.op or one.operation for one in entries if one.is_request] == outcomes(entries)
    assert [one.args for one in entries if one.is_request] == [None, None, {"text": "hi"}]
    assert len(said(entries, EntrySource.HOST)) == 3
    assert len(said(entries, EntrySource.MODULE)) == 3
    assert entries[-1].why == "a process ended"


async def test_it_is_attached_and_detached_while_the_process_runs(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path, supervision=CALM))
    await ask(module, "echo", text="before")
    assert not module.taps.listeners
    kept, other = Kept(), Kept()
    module.taps.attach(kept.recording)
    module.taps.attach(other.recording)
    await ask(module, "echo", text="during")
    module.taps.detach(kept.recording)
    module.taps.detach(kept.recording)
    await ask(module, "echo", text="after")
    module.taps.detach(other.recording)
    assert not module.taps.listeners
    entries, more = kept.entries(), other.entries()
    assert events(entries) == [Happened.ATTACHED]
    assert entries[0].mid_line is False
    assert b"during" in said(entries, EntrySource.HOST)[0]
    assert outcomes(entries) == ["echo"]
    assert outcomes(more) == ["echo", "echo"]
    assert module.restarts == 0
    await running.down()


async def test_from_the_spawn_on_means_only_new_processes(running: Running, tmp_path: Path) -> None:
    module = await running.ready(actor(tmp_path))
    kept = Kept()
    module.taps.attach(kept.recording, from_spawn=True)
    module.restart("the test")
    await running.until(lambda: module.is_ready() and module.workers[0].life is not None
                        and module.workers[0].life.instances()[0].id == "m#2")  # fmt: skip
    module.taps.detach(kept.recording)
    assert not module.taps.listeners
    entries = kept.entries()
    assert {one.instance for one in entries} == {"m#2"}
    assert events(entries) == [Happened.SPAWNED]
    await running.down()


async def test_stderr_and_the_end_of_a_tool_are_kept_before_its_outcome(
    running: Running, tmp_path: Path
) -> None:
    body = 'read line; echo oops >&2; printf \'{"version":"0","type":"done","ok":true}\'; exit 3'
    module = await running.ready(script(tmp_path, body))
    kept = Kept()
    module.taps.attach(kept.recording)
    await ask(module, "light")
    entries = kept.entries()
    assert said(entries, EntrySource.STDERR) == [b"oops"]
    (line,) = [one for one in entries if one.source is EntrySource.MODULE]
    assert not line.newline
    assert entries[-2].exit_code == 3
    assert outcomes(entries[-1:]) == ["light"]
    await running.down()


async def test_what_does_not_fit_is_counted_and_the_module_goes_on(
    running: Running, tmp_path: Path
) -> None:
    module = await running.ready(actor(tmp_path))
    kept = Kept(room=8 * ENTRY_BYTES)
    module.taps.attach(kept.recording)
    for _ in range(20):
        await ask(module, "echo", text="x" * 1000)
    entries = kept.entries()
    missing = [one for one in entries if one.event is Happened.MISSING]
    assert {one.stream for one in missing} >= {EntrySource.HOST, EntrySource.MODULE}
    assert kept.recording.missing_bytes == sum(one.size or 0 for one in missing) > 20_000
    # Taken, there is room again.
    await ask(module, "echo", text="last")
    assert any(b"last" in line for line in said(kept.entries(), EntrySource.MODULE))
    await running.down()


async def test_the_rest_of_a_line_whose_beginning_did_not_fit_is_missing_too() -> None:
    kept = Kept(room=4 * ENTRY_BYTES)
    kept.recording.said("m#1", EntrySource.MODULE, b"before\n")
    kept.recording.said("m#1", EntrySource.MODULE, b"x" * 10_000)
    before, gap = kept.entries()
    assert (before.line, gap.stream, gap.size, gap.lines) == ("before", "module", 10_000, 0)
    kept.recording.said("m#1", EntrySource.MODULE, b"rest\nwhole\npie")
    gap, whole, piece = kept.entries()
    assert (gap.size, gap.lines, whole.line, piece.newline) == (5, 1, "whole", False)
    assert kept.recording.missing_bytes == 10_005


async def test_of_a_process_in_the_middle_of_a_line_the_next_line_is_the_first() -> None:
    kept = Kept()
    kept.recording.happened("m#1", Happened.ATTACHED, pid=7, mid_line=True)
    kept.recording.said("m#1", EntrySource.MODULE, b'true}\n{"ok":true}\n')
    assert [one.line for one in kept.entries()] == [None, '{"ok":true}']
    assert kept.recording.missing_bytes == 0


CALLER = """
import json
print('{"status":"ok"}', input()[:0], flush=True)
described = {"name": "m", "kind": "tool", "capabilities": [], "features": ["host_call"]}
print(json.dumps(described), input()[:0], flush=True)
asked = json.loads(input())["requestId"]
call = {"call_id": "c1", "method": "log", "params": {}}
print(json.dumps({"version": "0", "type": "host_call", "requestId": asked, "payload": call}),
      flush=True)
print(json.dumps({"ok": True, "requestId": asked, "result": input()}), flush=True)
input()
"""


async def test_an_answer_to_a_call_of_the_module_is_kept(running: Running, tmp_path: Path) -> None:
    made = descriptor(tmp_path, [*PYTHON, "-c", CALLER], supervision=CALM)
    module = await running.ready(made)
    kept = Kept()
    module.taps.attach(kept.recording)
    one, heard = call("go")
    module.submit(one)
    while not heard.called:
        await trio.lowlevel.checkpoint()
    ((asked, process),) = heard.called
    process.answer(asked, Success({"n": 1}))
    await heard.outcome()
    await running.down()
    (answer,) = [entry for entry in kept.entries() if entry.is_answer]
    assert (answer.request_id, answer.call_id) == (one.request.request_id, "c1")
    assert answer.outcome == {"ok": True, "result": {"n": 1}}


def written(path: Path) -> Transcript:
    with path.open("rb") as lines:
        return read_transcript(lines, str(path))


async def test_a_file_holds_the_whole_conversation_for_its_owner_alone(
    running: Running, tmp_path: Path
) -> None:
    made = actor(tmp_path)
    path = tmp_path / "t.jsonl"
    file = TranscriptFile(path, header_of(made, "2026-11-20T20:13:28.000Z"))
    async with file.written("the test is over"):
        module = running(made)
        module.taps.attach(file.recording)
        module.start("the test")
        await running.until(module.is_ready)
        for number in range(50):
            await ask(module, "echo", n=number)
        await running.down()
        module.taps.detach(file.recording)
    assert file.error is None
    transcript = written(path)
    assert transcript.flaws == ()
    assert transcript.header.module == "m"
    asked = outcomes(list(transcript.entries))
    assert asked.count("echo") == 50
    # It may have been probed meanwhile.
    assert {"health", "describe", "echo"} == set(asked)
    assert transcript.entries[-1].why == "the test is over"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
async def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        TranscriptFile(Path("/dev/full"), header_of(descriptor(tmp_path, ["true"]), ""))


async def test_a_file_that_cannot_be_written_any_more_is_an_error_in_the_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = TranscriptFile(path, header_of(descriptor(tmp_path, ["true"]), ""))
    os.close(reader)
    async with file.written("the test is over"):
        file.recording.said("m#1", EntrySource.MODULE, b"x\n")
    assert file.error == f"{path}: Broken pipe"


async def test_what_was_heard_is_written_however_the_recording_ends(tmp_path: Path) -> None:
    header = header_of(descriptor(tmp_path, ["true"]), "")
    failed, cancelled = (TranscriptFile(tmp_path / name, header) for name in ("a", "b"))

    async def fail() -> None:
        async with failed.written("it failed"):
            failed.recording.said("m#1", EntrySource.MODULE, b"x\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with trio.CancelScope() as scope:
        async with cancelled.written("it was cancelled"):
            cancelled.recording.said("m#1", EntrySource.MODULE, b"x\n")
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    for name, why in (("a", "it failed"), ("b", "it was cancelled")):
        *_, said, end = written(tmp_path / name).entries
        assert (said.instance, end.why) == ("m#1", why)


async def test_a_disk_that_stalls_costs_entries_and_no_waiting(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    del autojump_clock
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        file = TranscriptFile(path, header_of(descriptor(tmp_path, ["true"]), ""))
        piece = b"x" * 65535 + b"\n"
        async with file.written("the test is over"):
            for _ in range(WAITING_BYTES // len(piece) * 3):
                file.recording.said("m#1", EntrySource.MODULE, piece)
        assert file.error is not None
        assert "did not answer" in file.error
        assert file.recording.missing_bytes > WAITING_BYTES
    finally:
        os.close(reader)


def test_an_outcome_that_is_overheard_still_reaches_who_waits() -> None:
    one, heard = call("echo")
    one.taps = ((Tap(), "m#1"),)
    one.settle(Success(1))
    assert heard.outcomes == [Success(1)]
