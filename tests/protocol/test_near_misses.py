"""Warnings for fields that are ignored but were probably meant."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from protocol.descriptor.rules import near_misses
from tests.protocol.descriptor_documents import COMPLETE, changed, spoilt_documents


def test_ignored_fields_that_were_probably_meant_are_warned_about() -> None:
    document = changed("/transport/comand", [])
    document = changed("/transport/passEnv", [], document)
    document = changed("/descripton", "", document)
    document = changed("/timeouts", {}, document)
    document = changed("/restart", "never", document)
    document = changed("/command", [], document)
    document = changed("/comment", "mine", document)
    document = changed("/names", "not name: that is there", document)
    document = changed("/$schema", "https://stdiod.dev/schemas/stdiod-descriptor.v1", document)
    del document["transport"]["command"]
    assert [str(warning) for warning in near_misses(document)] == [
        "/command: unknown field, ignored; did you mean '/transport/command'?",
        "/descripton: unknown field, ignored; did you mean 'description'?",
        "/restart: unknown field, ignored; did you mean '/supervision/restart'?",
        "/timeouts: unknown field, ignored; did you mean '/supervision/timeouts'?",
        "/transport/comand: unknown field, ignored; did you mean 'command'?",
        "/transport/passEnv: unknown field, ignored; did you mean 'pass_env'?",
    ]


def test_a_field_of_a_hook_that_is_misplaced_is_pointed_at_its_place_in_hooks_only() -> None:
    misplaced = changed("/on_failure", "open")
    assert near_misses(misplaced) == []
    assert [str(warning) for warning in near_misses(changed("/kind", "hook", misplaced))] == [
        "/on_failure: unknown field, ignored; did you mean '/hook/on_failure'?"
    ]


def test_a_right_descriptor_has_no_warnings() -> None:
    assert near_misses(COMPLETE) == []


@settings(max_examples=100, deadline=None)
@given(spoilt_documents())
def test_near_misses_are_found_in_any_document(document: dict[str, Any]) -> None:
    warnings = near_misses(document)
    assert warnings == sorted(warnings)
