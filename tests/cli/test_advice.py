from __future__ import annotations

import re
from typing import Any

import pytest

from protocol.errors import Failure, Reason
from supervisor.cli.advice import ADVICE, NO_ANSWER, NO_NEWLINE, OTHER_ID, PROBE, advice
from supervisor.cli.command_line import VERBS


def advised(reason: Reason, *, op: str = "roll", **evidence: Any) -> str:
    failure = Failure.because(reason, "words", **evidence)
    return str(advice(failure.details, module="dice", op=op))


def test_there_is_advice_for_every_reason() -> None:
    assert set(ADVICE) == set(Reason)


@pytest.mark.parametrize("told", [*ADVICE.values(), PROBE, OTHER_ID, NO_ANSWER, NO_NEWLINE])
def test_advice_names_verbs_that_exist_and_needs_only_the_module_and_the_op(told: object) -> None:
    words = str(told).format(module="dice", op="roll")
    assert set(re.findall(r"`stdiod (\w+)", words)) <= set(VERBS)


@pytest.mark.parametrize("code", ["oom", "timeout", "mine"])
def test_on_what_a_module_reports_there_is_no_advice(code: str) -> None:
    claims = {"reason": "memory_limit", "origin": "host", "limit": {"limit": "memory_bytes"}}
    told = advice(Failure.reported(code, "m", claims).details, module="dice", op="roll")
    assert (told.meaning, told.hint, told.command) == ("reported by dice", "", "")


def test_a_probe_that_is_not_answered_is_not_advised_to_take_an_option_it_has_not() -> None:
    assert "--timeout" in advised(Reason.DEADLINE)
    assert "--timeout" not in advised(Reason.DEADLINE, op="")
    assert "health_s" in advised(Reason.DEADLINE, op="")


@pytest.mark.parametrize(
    "evidence",
    [{"stray_id": "x", "line_excerpt": "{"}, {"line_excerpt": "{"}, {"unfinished_line": "{"}],
)
def test_more_time_is_not_advised_where_the_answer_was_another_one(
    evidence: dict[str, str],
) -> None:
    assert "--timeout" not in advised(Reason.DEADLINE, **evidence)
    assert "invoke_s" not in advised(Reason.DEADLINE, **evidence)


def test_an_answer_that_is_no_json_is_not_advised_to_be_let_pass() -> None:
    for reason in (Reason.MALFORMED_JSON, Reason.NOT_OBJECT):
        assert "tolerant" not in advised(reason)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("memory_bytes", "supervision.limits.memory_bytes"),
        ("memory_ceiling_bytes", "in the daemon's configuration"),
        ("processes", "supervision.limits.processes"),
    ],
)
def test_the_advice_on_a_limit_names_that_limit(limit: str, words: str) -> None:
    assert words in advised(Reason.MEMORY_LIMIT, limit={"limit": limit})
