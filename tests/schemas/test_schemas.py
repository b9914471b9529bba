"""The schema documents: each is valid, and draws the line where its specification draws it."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import schemas
from protocol.descriptor.model import Kind
from protocol.dialects.registry import DIALECTS
from protocol.events import TYPES
from tests.schemas.local_registry import validator


def test_every_file_has_a_name_and_a_provenance() -> None:
    folder = resources.files("schemas")
    files = {file.name for file in folder.iterdir() if file.name.endswith(".json")}
    assert files == {f"{name}.json" for name in schemas.NAMES}
    provenance = folder.joinpath("PROVENANCE.md").read_text(encoding="utf-8")
    assert not [file for file in files if f"`{file}`" not in provenance]


@pytest.mark.parametrize("name", schemas.NAMES)
def test_every_document_is_a_valid_schema_with_its_own_id_and_title(name: str) -> None:
    document = schemas.load(name)
    Draft202012Validator.check_schema(document)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert document["$id"] == f"https://stdiod.dev/schemas/{name}"
    assert document["title"]


@pytest.mark.parametrize("name", ["nothing", "../schemas/error.v1", "error.v1.json"])
def test_no_other_document_can_be_loaded(name: str) -> None:
    with pytest.raises(KeyError):
        schemas.load(name)


def test_a_document_is_read_once() -> None:
    assert schemas.load("error.v1") is schemas.load("error.v1")


def test_importing_the_package_imports_no_validator() -> None:
    program = "import schemas, sys; assert not {'jsonschema', 'referencing'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_schemas_and_the_code_know_the_same_words() -> None:
    base = schemas.load("module-descriptor.v1")["properties"]
    ours = schemas.load("stdiod-descriptor.v1")["properties"]
    events = schemas.load("narratoria-event.v0")
    assert base["kind"]["enum"] == list(Kind)
    assert ours["transport"]["properties"]["protocol"]["enum"] == list(DIALECTS)
    assert events["properties"]["type"]["enum"] == list(TYPES)
    assert set(events["$defs"]) == set(TYPES)


BASE_DESCRIPTOR = {
    "name": "dice",
    "kind": "tool",
    "transport": {"type": "stdio", "command": ["python3", "dice.py"]},
    "capabilities": [],
}
EVENT = {"id": "e1", "ts": 1.5, "event": "module:invoke", "component": "stdiod"}
LOG = {"version": "0", "type": "log", "level": "info", "message": "Starting"}
PATCH = {"version": "0", "type": "state_patch", "patch": {"flags": {"torchLit": True}}}
ASSET = {"version": "0", "type": "asset", "assetId": "a", "kind": "image", "mediaType": "image/png", "path": "a.png"}  # fmt: skip # noqa: E501
UI = {"version": "0", "type": "ui_event", "event": "toast"}
ERROR = {"version": "0", "type": "error", "errorCode": "E1", "errorMessage": "no torch"}
DONE = {"version": "0", "type": "done", "ok": True, "summary": "Torch lit."}
INPUT = {"requestId": "r1", "tool": "dice", "operation": "roll", "input": {"sides": 6}}
DESCRIBE = {"name": "d", "version": "1", "kind": "tool", "capabilities": [], "inputs": {}, "outputs": {}}  # fmt: skip # noqa: E501
FAILED = {"ok": False, "error": {"code": "bad_request", "message": "no sides"}}
RESPONSE: dict[str, Any] = {
    "ok": True, "result": None, "request_id": "r3", "module": "dice", "op": "roll",
    "duration_ms": 12, "warnings": [],
}  # fmt: skip
FAILED_RESPONSE = {
    **FAILED, "request_id": "r3", "module": "dice", "op": "roll", "session_id": "s-1",
    "duration_ms": 12, "warnings": [],
}  # fmt: skip

GOOD: list[tuple[str, Any]] = [
    ("module-descriptor.v1", BASE_DESCRIPTOR),
    ("module-descriptor.v1", {**BASE_DESCRIPTOR, "later": 1, "version": "1.0"}),
    ("module-descriptor.v1", {**BASE_DESCRIPTOR, "transport": {"type": "http", "url": "http://x"}}),
    ("stdiod-descriptor.v1", BASE_DESCRIPTOR),
    ("stdiod-descriptor.v1", {**BASE_DESCRIPTOR, "later": 1}),
    ("stdiod-descriptor.v1", {**BASE_DESCRIPTOR, "supervision": {"timeouts": {"silence_s": None}}}),
    ("event.v1", EVENT),
    ("event.v1", {**EVENT, "duration_ms": None, "data": {}, "error": None, "later": 1}),
    ("error.v1", {"code": "mine", "message": "m", "details": {"reason": "r"}, "later": 1}),
    ("plan.v1", {"goal": "g", "inputs": {}, "later": 1}),
    ("health-reply.v1", {"status": "ok", "uptime": 3}),
    ("health-reply.v1", {"status": "overloaded"}),
    ("describe-reply.v1", DESCRIBE),
    ("describe-reply.v1", {**DESCRIBE, "version": None, "features": ["cancel"]}),
    ("describe-reply.v1", {"name": "d", "kind": "tool"}),
    ("describe-reply.v1", {}),
    ("invoke-reply.v1", {"ok": True, "result": None}),
    ("invoke-reply.v1", {"ok": True}),
    ("invoke-reply.v1", FAILED),
    *(("narratoria-event.v0", event) for event in (LOG, PATCH, ASSET, UI, ERROR, DONE)),
    ("narratoria-event.v0", {**UI, "payload": {"text": "hi"}, "later": None}),
    ("narratoria-event.v0", {**LOG, "requestId": "r1", "timestamp": "2025-11-20T17:00:00Z"}),
    ("narratoria-event.v0", {**DONE, "result": 3, "error": None}),
    ("narratoria-event.v0", {**LOG, "fields": None, "requestId": None}),
    ("narratoria-event.v0", {**UI, "level": 3}),
    ("narratoria-input.v0", {**INPUT, "later": 1}),
    ("response.v1", RESPONSE),
    ("response.v1", FAILED_RESPONSE),
    ("response.v1", {**FAILED_RESPONSE, "request_id": None, "module": None, "op": None}),
]

BAD: list[tuple[str, Any]] = [
    ("module-descriptor.v1", {**BASE_DESCRIPTOR, "kind": "toll"}),
    ("module-descriptor.v1", {**BASE_DESCRIPTOR, "transport": {}}),
    ("stdiod-descriptor.v1", {**BASE_DESCRIPTOR, "kind": "toll"}),
    ("stdiod-descriptor.v1", {**BASE_DESCRIPTOR, "transport": {"type": "stdio"}}),
    ("stdiod-descriptor.v1", {**BASE_DESCRIPTOR, "transport": {"type": "http"}}),
    ("stdiod-descriptor.v1", {**BASE_DESCRIPTOR, "supervision": {"timeouts": {"invok_s": 1}}}),
    ("stdiod-descriptor.v1", {**BASE_DESCRIPTOR, "inputs": {"roll": {"type": "strin"}}}),
    ("event.v1", {**EVENT, "duration_ms": 1.5}),
    ("event.v1", {**EVENT, "ts": "now"}),
    ("error.v1", {"message": "m"}),
    ("error.v1", {"code": "c", "message": "m", "details": None}),
    ("plan.v1", {"goal": "g"}),
    ("plan.v1", {"goal": "g", "inputs": []}),
    ("health-reply.v1", {}),
    ("health-reply.v1", {"status": 1}),
    ("describe-reply.v1", {**DESCRIBE, "capabilities": "fs.read"}),
    ("invoke-reply.v1", {"result": 1}),
    ("invoke-reply.v1", {"ok": 1}),
    ("invoke-reply.v1", {"ok": False}),
    ("invoke-reply.v1", {"ok": False, "error": "no"}),
    ("narratoria-event.v0", {**LOG, "version": "1"}),
    ("narratoria-event.v0", {**LOG, "version": 0}),
    ("narratoria-event.v0", {**LOG, "type": "telemetry"}),
    ("narratoria-event.v0", {**LOG, "level": "warning"}),
    ("narratoria-event.v0", {**LOG, "requestId": 1}),
    ("narratoria-event.v0", {**LOG, "timestamp": 1}),
    ("narratoria-event.v0", {**LOG, "message": None}),
    ("narratoria-event.v0", {**PATCH, "patch": []}),
    ("narratoria-event.v0", {**ASSET, "metadata": "m"}),
    ("narratoria-event.v0", {**UI, "payload": 1}),
    ("narratoria-event.v0", {**ERROR, "details": "d"}),
    ("narratoria-event.v0", {**DONE, "ok": "true"}),
    ("narratoria-event.v0", {**DONE, "summary": 1}),
    ("narratoria-input.v0", {**INPUT, "input": None}),
    ("response.v1", {**RESPONSE, "duration_ms": 1.5}),
    ("response.v1", {**RESPONSE, "error": {"code": "c", "message": "m"}}),
    ("response.v1", {**FAILED_RESPONSE, "result": None}),
    *(
        ("narratoria-event.v0", {key: value for key, value in event.items() if key != missing})
        for event in (LOG, PATCH, ASSET, UI, ERROR, DONE)
        for missing in event
        if missing != "summary"
    ),
    *(
        ("narratoria-input.v0", {key: value for key, value in INPUT.items() if key != missing})
        for missing in INPUT
    ),
]


@pytest.mark.parametrize(("name", "document"), GOOD)
def test_a_good_document_is_accepted(name: str, document: Any) -> None:
    validator(name).validate(document)


@pytest.mark.parametrize(("name", "document"), BAD)
def test_a_bad_document_is_refused(name: str, document: Any) -> None:
    assert not validator(name).is_valid(document)


@pytest.mark.parametrize("name", schemas.NAMES)
@pytest.mark.parametrize("document", [[], "text", 3, None, True])
def test_nothing_but_an_object_is_accepted(name: str, document: Any) -> None:
    assert not validator(name).is_valid(document)
