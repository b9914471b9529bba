"""Each recorded conversation is read as it was when it was recorded: a reported bug stays mended.

A new case is a file in `transcripts/`, made by `stdiod record` or `stdiod invoke --record`: take
out what is nobody's business (`source`, secrets), and name the file after what it shows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.transcript import Transcript, descriptor_of
from supervisor.transcripts.replay import Replayed, replay_through_dialect
from tests.conformance.recorded import FILES, SERVERS, read
from tests.schemas.local_registry import validator

SHOWN = {"good", "error", "protocol_fault", "crash", "torch", "truncated_line"}

BY_HOST = {"deadline": 1}
"""How many requests the host ended for a reason of its own; all others are compared."""


def replayed(transcript: Transcript) -> Replayed:
    return replay_through_dialect(transcript, descriptor_of(transcript.header, "t"))


def test_the_ways_a_conversation_goes_are_there() -> None:
    assert {path.stem for path in FILES} >= SHOWN | SERVERS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_conversation_is_read_as_it_was(path: Path) -> None:
    transcript = read(path)
    assert transcript.flaws == ()
    outcomes = sum(entry.outcome is not None for entry in transcript.entries)
    result = replayed(transcript)
    assert result.differences == ()
    assert result.by_host == BY_HOST.get(path.stem, 0)
    assert result.compared + result.by_host == outcomes > 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_line_of_a_transcript_is_valid_and_names_nobodys_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        validator("transcript.v1").validate(json.loads(line))
    assert not re.search(r"/(home|root|tmp)/", text)
    assert "source" not in json.loads(text.splitlines()[0])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_outcome_that_is_another_one_is_seen(path: Path) -> None:
    transcript = read(path)
    if path.stem in BY_HOST:
        return  # what the host decided does not follow from what was said
    *_, last = [one for one in transcript.entries if one.outcome is not None]
    assert last.outcome is not None
    other: dict[str, Any] = {**last.outcome, "ok": not last.outcome["ok"]}
    changed = msgspec.structs.replace(last, outcome=other)
    entries = tuple(changed if one is last else one for one in transcript.entries)
    (difference,) = replayed(msgspec.structs.replace(transcript, entries=entries)).differences
    assert difference.request_id == last.request_id
    assert difference.recorded == other
    assert difference.replayed is not None
    assert difference.replayed["ok"] is last.outcome["ok"]
