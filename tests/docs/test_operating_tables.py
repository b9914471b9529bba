"""The tables of docs/operating.md say what the code says, both ways."""

from __future__ import annotations

import pytest

from protocol.descriptor.model import Supervision
from protocol.errors import Reason
from supervisor.policy.lifecycle import Input, State
from supervisor.policy.restart import History, after_end
from tests.docs.markdown import code, rows

DOCUMENT = "docs/operating.md"


def test_every_reason_has_a_row_with_its_code_and_there_is_no_other_row() -> None:
    table = {str(code(row[0])): code(row[1]) for row in rows(DOCUMENT, "Reason")}
    assert table == {str(reason): str(reason.code) for reason in Reason}
    assert set(table) == {str(reason) for reason in Reason}


def test_every_state_has_a_row() -> None:
    assert [code(row[0]) for row in rows(DOCUMENT, "State")] == [
        "down",
        "disabled",
        *list(State)[1:],
    ]


@pytest.mark.parametrize("was_ready", [True, False])
def test_the_waits_between_restarts_are_those_of_the_policy(was_ready: bool) -> None:
    supervision, history = Supervision(), History()
    for row in rows(DOCUMENT, "Crash"):
        decision = after_end(
            supervision, history, abnormal=True, was_ready=was_ready, now=1.0, draw=0.0
        )
        history = decision.history
        match decision.given:
            case Input.GONE_AT_ONCE:
                said = "at once"
            case Input.GONE_LATER:
                said = f"{decision.delay_s:g} s"
            case _:
                said = f"`failed`, {decision.delay_s:g} s"
        assert row[1 if was_ready else 2] == said
