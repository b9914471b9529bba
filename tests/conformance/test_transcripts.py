"""Each recorded conversation is read as it was when it was recorded: a reported bug stays mended.

A new case is a file in `transcripts/`, made by `stdiod record` or `stdiod invoke --record`: take
out what is nobody's business (`source`, secrets), and name the file after what it shows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.conformance.recorded import FILES, SERVERS, read
from tests.schemas.local_registry import validator

SHOWN = {"good", "error", "protocol_fault", "crash", "torch", "truncated_line"}

BY_HOST = {"deadline": 1}
"""How many requests the host ended for a reason of its own; all others are compared."""


def replayed(run: Run, path: Path) -> Any:
    """Return what `stdiod replay` tells of a transcript, which is read through its dialect."""
    return json.loads(run("replay", str(path), "--json").stdout)


def test_the_ways_a_conversation_goes_are_there() -> None:
    assert {path.stem for path in FILES} >= SHOWN | SERVERS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_conversation_is_read_as_it_was(run: Run, path: Path) -> None:
    outcomes = sum(entry.outcome is not None for entry in read(path).entries)
    result = replayed(run, path)
    assert (result["flaws"], result["differences"], result["same"]) == ([], [], True)
    assert result["by_host"] == BY_HOST.get(path.stem, 0)
    assert result["compared"] + result["by_host"] == outcomes > 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_line_of_a_transcript_is_valid_and_names_nobodys_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        validator("transcript.v1").validate(json.loads(line))
    assert not re.search(r"/(home|root|tmp)/", text)
    assert "source" not in json.loads(text.splitlines()[0])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_outcome_that_is_another_one_is_seen(run: Run, path: Path, tmp_path: Path) -> None:
    if path.stem in BY_HOST:
        return  # what the host decided does not follow from what was said
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    *_, last = [one for one in entries if one.get("outcome") is not None]
    recorded = last["outcome"]
    last["outcome"] = {**recorded, "ok": not recorded["ok"]}
    changed = tmp_path / path.name
    changed.write_text("".join(json.dumps(one) + "\n" for one in entries), encoding="utf-8")
    result = replayed(run, changed)
    (difference,) = result["differences"]
    assert not result["same"]
    assert difference["request_id"] == last["request_id"]
    assert difference["recorded"] == last["outcome"]
    assert difference["replayed"]["ok"] is recorded["ok"]
