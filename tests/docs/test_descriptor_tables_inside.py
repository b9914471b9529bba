"""Of `test_descriptor_tables.py`, what is bound to the structure."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from protocol.problem import Problem
from scripts import file_schemas
from tests.docs.markdown import code
from tests.docs.test_descriptor_tables import documented, shaped

BY_DIALECT = {"transport.expand", "transport.lifecycle", "transport.stdout"}
REQUIRED = "required"
ABSENT = "absent"


@pytest.mark.parametrize(
    ("path", "default"), list(file_schemas.fields()), ids=lambda value: str(value)[:60]
)
def test_a_row_gives_the_default_that_the_code_has(path: str, default: Any) -> None:
    said = documented()[path]
    required = {name for name, fields, key in shaped() if key in fields._required}
    if path in required or path == "transport.command":
        assert said == REQUIRED
    elif path in BY_DIALECT:
        assert said == "by protocol"
    elif said == ABSENT:
        assert default is None
        assert refuses_null(path)
    else:
        value = code(said)
        assert value is not None, said
        assert json.loads(value) == json.loads(msgspec.json.encode(default))
        assert default is not None or not refuses_null(path)


def refuses_null(path: str) -> bool:
    found: list[Problem] = []
    for name, fields, key in shaped():
        if name == path:
            fields.fields[key](None, "", found)
    return bool(found)
