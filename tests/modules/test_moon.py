"""The sample MCP server, spoken with through the dialect in both eras, without a process."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from protocol.connection import Ready
from protocol.descriptor.model import EraPin
from tests.modules.samples import MODULES
from tests.protocol.mcp_process import Served

ANSWER = runpy.run_path(str(MODULES / "moon" / "moon.py"))["answer"]


def talk(served: Served) -> None:
    """Have the sample answer all that was written, and what that leads to."""
    while asked := served.unread():
        for one in asked:
            said = ANSWER(one)
            if said is not None:
                served.hear(said)


@pytest.fixture(params=[EraPin.MODERN, EraPin.LEGACY])
def served(request: pytest.FixtureRequest) -> Served:
    found = Served(pin=request.param)
    found.start()
    talk(found)
    assert [one for one in found.events if isinstance(one, Ready)], found.events
    return found


@pytest.mark.parametrize(
    ("op", "args", "field", "value"),
    [
        ("phase", {"date": "2024-01-25"}, "phase", "full moon"),
        ("phase", {"date": "2024-01-11"}, "phase", "new moon"),
        ("resources/read", {"uri": "moon://phases"}, "contents", None),
        ("resources/templates", {}, "resourceTemplates", []),
        ("prompts/get", {"name": "tonight", "arguments": {"date": "x"}}, "messages", None),
    ],
)
def test_it_serves_in_both_eras(served: Served, op: str, args: Any, field: str, value: Any) -> None:
    served.ask("r1", op, **args)
    talk(served)
    assert served.result()[field] == value or (value is None and served.result()[field])


@pytest.mark.parametrize(
    ("op", "args", "code"),
    [
        ("phase", {"date": "tomorrow"}, "internal"),
        ("phase", {}, "internal"),
        ("nonsense", {}, "bad_request"),
        ("resources/read", {"uri": "x:y"}, "bad_request"),
        ("prompts/get", {"name": "x"}, "bad_request"),
    ],
)
def test_what_it_cannot_do_it_says(served: Served, op: str, args: Any, code: str) -> None:
    served.ask("r1", op, **args)
    talk(served)
    assert served.failure().code == code
