"""The journal's own table of fields against the kernel's events registry, v1."""

from __future__ import annotations

import json
from pathlib import Path

from protocol.journal_event import OURS, TAXONOMY

VECTOR = Path(__file__).parent / "vectors" / "events_registry.json"


def test_each_stable_name_asks_for_the_fields_that_the_registry_requires() -> None:
    events = json.loads(VECTOR.read_bytes())["events"]
    assert {name: list(fields) for name, fields in TAXONOMY.items()} == {
        name: rule["required"] for name, rule in events.items()
    }


def test_no_name_of_ours_is_one_of_the_registry() -> None:
    assert not OURS.keys() & TAXONOMY.keys()
