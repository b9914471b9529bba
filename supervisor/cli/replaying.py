"""Play a transcript to its module, run anew and contained; used by `stdiod replay --module`."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from protocol.descriptor.model import Descriptor
from protocol.transcript import Entry, Happened, Transcript
from supervisor.cli.exit_status import NoError
from supervisor.cli.one_module import log_from, scratch_folder
from supervisor.policy.verdict import Exit, telling_tail
from supervisor.runtime.containment.custody import holding
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.supervision.prepare_once import prepare_once
from supervisor.transcripts.compare import differences, heard, recorded_lines
from supervisor.transcripts.playback import Played, play

STDERR_LINES = 4
"""The last lines of stderr that are shown if the process answers otherwise than recorded."""


class Compared(msgspec.Struct, frozen=True):
    """The result of a process; `diff` and `notes` are empty if nothing differs."""

    instance: str
    lines: int
    diff: list[str]
    notes: list[str]


def replay_to_module(
    transcript: Transcript, descriptor: Descriptor, ignored: Sequence[str], timeout_s: float
) -> list[Compared]:
    """Run the module once per recorded process; raises `NoError` if it cannot be started."""
    log_from(logging.ERROR)
    with scratch_folder() as folder:
        return trio.run(_replay, transcript, descriptor, ignored, timeout_s, folder)


async def _replay(
    transcript: Transcript,
    descriptor: Descriptor,
    ignored: Sequence[str],
    timeout_s: float,
    folder: Path,
) -> list[Compared]:
    compared: list[Compared] = []
    log_files = LogFiles(folder / "logs")
    try:
        async with holding(folder) as custody:
            if descriptor.transport.prepare:
                wrong = await prepare_once(descriptor, os.environ, custody, log_files)
                if wrong is not None:
                    words = f"{descriptor.name} could not be prepared: {wrong.words}"
                    raise NoError("\n".join((words, *wrong.printed)))
            for instance, entries in transcript.instances().items():
                if not any(one.event in _BEGINNINGS for one in entries):
                    continue  # it could not be started when it was recorded
                played = await play(
                    entries, descriptor, os.environ, custody, log_files, timeout_s=timeout_s
                )
                compared.append(_compare(instance, entries, played, descriptor, ignored))
    except SpawnError as error:
        raise NoError(f"{descriptor.name} could not be started: {error}") from None
    finally:
        log_files.close()
    return compared


_BEGINNINGS = (Happened.SPAWNED, Happened.ATTACHED)


def _compare(
    instance: str,
    entries: Sequence[Entry],
    played: Played,
    descriptor: Descriptor,
    ignored: Sequence[str],
) -> Compared:
    line_bytes = descriptor.supervision.limits.line_bytes
    recorded = recorded_lines(entries, ignored, line_bytes)
    said = [heard(line, ignored) for line in played.lines]
    notes: list[str] = []
    if played.unsent:
        notes.append(f"{played.unsent} recorded lines were not sent: no answer before them came")
    if played.overdue:
        notes.append(
            "it was stopped when the time was over, before it had printed all that was recorded"
        )
    notes += _exit_notes(entries, played.exit)
    diff = differences(recorded, said)
    if diff or notes:
        tail = telling_tail(played.exit.stderr_tail, STDERR_LINES)
        notes += [f"stderr: {line}" for line in tail]
    return Compared(instance, len(said), diff, notes)


def _exit_notes(entries: Sequence[Entry], now: Exit) -> list[str]:
    """Compare the exits; an end by a signal of the host says nothing of the module."""
    ended = next((one for one in entries if one.event is Happened.EXITED), None)
    if ended is None:
        return []
    then: dict[str, Any] = {"exit_code": ended.exit_code, "signal": ended.signal}
    if (ended.exit_code, ended.signal) == (now.exit_code, now.signal):
        return []
    if ended.stopped_by_host and (ended.signal is not None or now.signal is not None):
        return []
    return [f"it {now.words}, and {Exit(**then).words} when it was recorded"]
