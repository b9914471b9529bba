"""Each op of the daemon with the largest args that it takes, in a daemon of many modules.

Where a look at the clock ends each turn, what is left is what the loop does in one step, whatever
comes: it is counted in lines of our own code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio.testing

from protocol.errors import Reason
from protocol.weight import MOST_VALUES
from supervisor.kernel.hooks.approvals import Question
from supervisor.kernel.kernel import Kernel
from supervisor.kernel.operations import inputs
from supervisor.kernel.operations.modules import WAITED
from supervisor.kernel.parties import Party, Provenance
from supervisor.policy.principals import ALL_SCOPES, GLOB_CHARS, GLOBS, WILDCARDS, Principal
from supervisor.policy.session import BOUNDS
from supervisor.policy.verdict import Stopped
from tests import factories
from tests.budget.lines import LongestStep
from tests.kernel.conftest import Asker, daemon_with
from tests.principals import ADA

MOST_LINES = 250_000
"""Some 10 ms."""

MODULES = 50

LINE_CHARS = 1 << 20
"""Of all strings in an array together: a client's line has a bound, too."""

LONG_GLOBS = [("*m" * WILDCARDS + str(number)).ljust(GLOB_CHARS, "m") for number in range(GLOBS)]

NARROWED = Principal("ada", "test", ALL_SCOPES, ("*m*m*m*m0", *LONG_GLOBS[1:]))
"""Somebody who sees next to nothing, which takes long to find out."""

MEMBERS: dict[str, Any] = {str(number): {} for number in range(BOUNDS.members)}
VALUES = {"a": [0] * (MOST_VALUES - 100)}
OBJECTS: dict[str, Any] = {str(number): {} for number in range(MOST_VALUES // 2)}
CHOICES = [str(number) for number in range(5000)]
FORM = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "string", "enum": CHOICES}}},
}

LARGEST: dict[str, list[dict[str, Any]]] = {
    "session.new": [{"state": MEMBERS}, {"state": VALUES}, {"state": OBJECTS}, {"plan": VALUES}],
    "session.patch": [{"patch": MEMBERS}, {"patch": VALUES}, {"patch": OBJECTS}],
    "approve": [{"content": {"a": [CHOICES[-1]] * (MOST_VALUES - 100)}}, {"content": OBJECTS}],
    "wait": [{"modules": [f"m{number % MODULES}" for number in range(WAITED)]}],
    "invoke": [{"args": VALUES}, {"args": OBJECTS}],
}
"""What is of any size, where an op takes anything."""

UNSIZED = {"shutdown", "reloaded"}
"""What takes nothing, or a number to wait for."""

ENDING = {"follow": False, "for": "down", "dry_run": True}
"""What has an op end; of those that stream, the first event will do."""

KNOWN = {"module": "m0", "answer": "allow"}
"""What leads further than what is as long as it may be: it is there."""


def largest(schema: dict[str, Any], chars: int = LINE_CHARS) -> Any:
    """Return the largest value that fits a schema, with strings of so many characters."""
    if "enum" in schema:
        return schema["enum"][-1]
    match schema.get("type"):
        case "string":
            return "x" * min(schema["maxLength"], chars)
        case "array":
            most = schema["maxItems"]
            return [largest(schema["items"], chars // most)] * most
        case "integer" | "number":
            return schema.get("maximum", 1 << 40)
        case "boolean":
            return True
        case "object" if schema.get("additionalProperties") is False:
            return {name: largest(one) for name, one in schema["properties"].items()}
        case _:
            return {}


async def asked(daemon: Kernel, principal: Principal, op: str, args: dict[str, Any]) -> int:
    """Return how many lines the longest step of a request took."""
    longest, asker = LongestStep(), Asker()
    content = {"op": op, "args": args}
    with longest.measuring():
        handle = daemon.requests.begin(Party(principal), "supervisor", "invoke", content, asker)
        while not (asker.responses or asker.events):
            await trio.lowlevel.checkpoint()
        if handle is not None and not asker.responses:
            handle.cancel(Stopped(Reason.CLIENT, "the test has seen enough"))
    return longest.most


@pytest.mark.bound(300)  # each line that runs is counted: ten seconds of a processor
@pytest.mark.fault(29)
@pytest.mark.parametrize("principal", [ADA, NARROWED], ids=["full", "narrowed"])
async def test_no_step_of_an_op_is_long_whatever_it_is_asked(
    principal: Principal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.runtime.turns.TURN_S", 0)
    made = [
        factories.descriptor(
            tmp_path, ["true"], name=f"m{number}", supervision={"start": "lazy"}, inputs={"go": {}}
        )
        for number in range(MODULES)
    ]
    origin = Provenance("m0", "a", "r1", owner="ada")
    question = Question(prompt="?", asked_by="hook m", origin=origin, form=FORM)
    steps: dict[str, int] = {}
    async with daemon_with(tmp_path, *made) as daemon, trio.open_nursery() as nursery:
        sessions = daemon.sessions
        for op in sorted(inputs().keys() - UNSIZED):
            nursery.start_soon(daemon.approvals.ask, question)
            await trio.testing.wait_all_tasks_blocked()
            known = KNOWN | {"id": daemon.approvals.waiting(ADA)[-1]["id"]}
            if "session_id" in inputs()[op]["properties"] and op != "session.new":
                known["session_id"] = sessions.new(principal, state=MEMBERS).id
            if op in ("start", "restart", "record", "invoke", "resource.follow"):
                del known["module"]  # no process is wanted here
            taken = inputs()[op]["properties"]
            known = {name: one for name, one in (ENDING | known).items() if name in taken}
            whole = largest(inputs()[op]) | {name: ENDING[name] for name in taken if name in ENDING}
            for args in (whole, whole | known, *(known | more for more in LARGEST.get(op, ()))):
                lines = await asked(daemon, principal, op, args)
                steps[op] = max(steps.get(op, 0), lines)
        nursery.cancel_scope.cancel()
    assert {op: lines for op, lines in steps.items() if lines > MOST_LINES} == {}
