"""docs/descriptor.md says exactly what protocol/descriptor/model.py and its shape say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec
import pytest

from protocol.descriptor import shape
from protocol.descriptor.loading import FETCH_S, parse_descriptor
from protocol.descriptor.model import Hook, Timeouts
from protocol.dialects.registry import DIALECTS
from protocol.shape import Fields, Map
from scripts import file_schemas
from tests.docs.markdown import Block, blocks, code, rows
from tests.schemas.local_registry import validator

DOCUMENT = "docs/descriptor.md"


def documented() -> dict[str, str]:
    """Return what the tables give as default, by field."""
    return {str(code(field)): default for field, default, *_ in rows(DOCUMENT, "Field")}


def shaped(fields: Fields = shape.DESCRIPTOR, at: str = "") -> Iterator[tuple[str, Fields, str]]:
    for name, rule in fields.fields.items():
        if isinstance(rule, Map) and isinstance(rule.member, Fields):
            yield f"{at}{name}", fields, name
            yield from shaped(rule.member, f"{at}{name}.*.")
        elif isinstance(rule, Fields):
            yield from shaped(rule, f"{at}{name}.")
        else:
            yield f"{at}{name}", fields, name


def test_the_tables_have_every_field_of_a_descriptor_and_no_other() -> None:
    names = [str(code(field)) for field, *_ in rows(DOCUMENT, "Field")]
    assert len(names) == len(set(names)), "a field stands twice"
    assert set(names) == {path for path, _, _ in shaped()}


def test_every_field_of_the_typed_descriptor_has_a_row() -> None:
    assert {path for path, _ in file_schemas.fields()} <= documented().keys()


def test_the_defaults_by_protocol_are_those_of_the_dialects() -> None:
    meanings = {str(code(field)): meaning for field, _, meaning in rows(DOCUMENT, "Field")}
    for name, dialect in DIALECTS.items():
        for path, default in (
            ("transport.lifecycle", dialect.lifecycles[0]),
            ("transport.stdout", dialect.stdout),
        ):
            # `word`: ... the default of `dialect`
            for word, rest in re.findall(r"`([a-z-]+)`: ([^.]*)", meanings[path]):
                if f"the default of `{name}`" in rest:
                    assert word == default, (name, path)
                    break
            else:
                pytest.fail(f"{path} does not say the default of {name}")


def test_the_rows_name_the_defaults_that_are_a_dialects_own() -> None:
    meanings = {str(code(field)): meaning for field, _, meaning in rows(DOCUMENT, "Field")}
    mcp, usual = DIALECTS["mcp"], Timeouts()
    assert f"{mcp.concurrency} for `mcp`" in meanings["supervision.concurrency"]
    for field, value in msgspec.structs.asdict(mcp.timeouts).items():
        if value != getattr(usual, field):
            assert f"For `mcp` {value:g}" in meanings[f"supervision.timeouts.{field}"], field
    assert f"{FETCH_S:g} where" in meanings["supervision.timeouts.start_s"]


def test_every_field_has_a_description_in_the_json_schema() -> None:
    whole = file_schemas.descriptor()
    for path, _, _ in shaped():
        assert file_schemas.at(whole, path)["description"], path


DESCRIPTORS = [
    (name, block)
    for name in (
        DOCUMENT,
        "docs/writing-a-module.md",
        "docs/mcp.md",
        "docs/operating.md",
        "docs/http.md",
        "docs/first-module.md",
        "docs/cookbook.md",
        "README.md",
    )
    for block in blocks(name)
    if "descriptor" in block.said
    or ((block.file or "").endswith("module.json") and "not-valid" not in block.said)
]


@pytest.mark.parametrize(
    ("name", "block"), DESCRIPTORS, ids=[f"{n}:{b.line}" for n, b in DESCRIPTORS]
)
def test_every_descriptor_that_is_shown_is_a_good_one(name: str, block: Block) -> None:
    parse_descriptor(block.text.encode(), f"/{name}")
    validator("stdiod-descriptor.v1").validate(json.loads(block.text))


def test_the_whole_hook_shows_every_field_with_its_default() -> None:
    text = next(block.text for name, block in DESCRIPTORS if '"kind": "hook"' in block.text)
    hook = parse_descriptor(text.encode(), "/gate.json").hook
    assert hook is not None
    assert msgspec.structs.replace(hook, observe=(), gate=()) == Hook()
    assert set(json.loads(text)["hook"]) == set(shape.HOOK.fields)
