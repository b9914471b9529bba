"""The schemas of the files that people write: made from code and manual, and as strict as both."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

import schemas
from protocol.descriptor.loading import parse_descriptor
from protocol.descriptor.rules import near_misses
from protocol.json_document import read_document
from protocol.transcript import read_transcript
from scripts import file_schemas
from supervisor.policy.policy_file import PolicyError, parse_policy
from tests.schemas.local_registry import validator

OF_FILES = ("stdiod-config.v1", "stdiod-descriptor.v1", "stdiod-policy.v1", "transcript.v1")


def undescribed(schema: Any, at: str = "") -> Iterator[str]:
    """Find the fields without a description; what only says when a rule applies defines none."""
    if isinstance(schema, dict):
        for name, field in schema.get("properties", {}).items():
            if not (isinstance(field, dict) and field.get("description")):
                yield f"{at}/{name}"
        for key, value in schema.items():
            if key not in ("if", "then", "else", "allOf", "anyOf", "dependentSchemas"):
                yield from undescribed(value, f"{at}/{key}")
    elif isinstance(schema, list):
        for one in schema:
            yield from undescribed(one, at)


@pytest.mark.parametrize("name", OF_FILES)
def test_every_field_of_a_file_has_a_description(name: str) -> None:
    assert list(undescribed(schemas.load(name))) == []


@pytest.mark.parametrize("name", file_schemas.SCHEMAS)
def test_the_file_is_as_it_is_made(name: str) -> None:
    made = file_schemas.written(file_schemas.SCHEMAS[name]())
    assert schemas.text(name) == made, "run -m scripts.file_schemas"


POLICIES = {
    "": True,
    '"$schema" = "./policy.schema.json"\nmode = "prompt"': True,
    'allow = ["log"]\n[modules.a]\ndeny = ["log"]': True,
    'mode = "lax"': False,
    "allow = [1]": False,
    'alow = ["log"]': False,
    "[modules]\na = 1": False,
    '[modules.a]\n"$schema" = "x"': False,
}


@pytest.mark.parametrize("text", POLICIES)
def test_a_policy_is_good_to_the_schema_as_it_is_to_the_daemon(text: str) -> None:
    assert validator("stdiod-policy.v1").is_valid(tomllib.loads(text)) is POLICIES[text]
    try:
        parse_policy(text, "policy.toml")
    except PolicyError:
        assert not POLICIES[text]
    else:
        assert POLICIES[text]


def test_a_descriptor_and_a_transcript_may_name_their_schema() -> None:
    document = {
        "$schema": "./descriptor.schema.json",
        "name": "dice",
        "kind": "tool",
        "transport": {"type": "stdio", "command": ["dice"]},
    }
    text = json.dumps(document).encode()
    assert parse_descriptor(text, "/dice.json").name == "dice"
    read = read_document(text)
    assert isinstance(read, dict)
    assert near_misses(read) == []
    validator("stdiod-descriptor.v1").validate(document)
    header = {
        "$schema": "./transcript.schema.json",
        "transcript": 1,
        "module": "dice",
        "protocol": "module",
        "lifecycle": "persistent",
        "descriptor": document,
        "recorded": "2026-11-20T20:13:28.000Z",
        "stdiod": "0.1.0",
    }
    assert read_transcript([json.dumps(header).encode() + b"\n"], "x").header.module == "dice"
    validator("transcript.v1").validate(header)
