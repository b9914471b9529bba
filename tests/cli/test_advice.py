from __future__ import annotations

import re

import pytest

from protocol.errors import Reason
from supervisor.cli.advice import ADVICE, REPORTED, REPORTED_CODES, advice
from supervisor.cli.command_line import VERBS


def test_there_is_advice_for_every_reason() -> None:
    assert set(ADVICE) == set(Reason)


@pytest.mark.parametrize("told", [*ADVICE.values(), *REPORTED_CODES.values(), REPORTED])
def test_advice_names_verbs_that_exist_and_needs_only_the_module_and_the_op(told: object) -> None:
    words = str(told).format(module="dice", op="roll")
    assert set(re.findall(r"`stdiod (\w+)", words)) <= set(VERBS)


def test_an_unknown_reason_is_the_modules_own_word() -> None:
    assert advice("bad_request", "made_up") is REPORTED_CODES["bad_request"]
    assert advice("made_up", None) is REPORTED


def test_a_probe_that_is_not_answered_is_not_advised_to_take_an_option_it_has_not() -> None:
    assert "--timeout" in str(advice("timeout", "deadline", op="roll"))
    assert "--timeout" not in str(advice("timeout", "deadline"))
    assert "health_s" in str(advice("timeout", "deadline"))


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("memory_bytes", "supervision.limits.memory_bytes"),
        ("memory_ceiling_bytes", "in the daemon's configuration"),
        ("processes", "supervision.limits.processes"),
    ],
)
def test_the_advice_on_a_limit_names_that_limit(limit: str, words: str) -> None:
    assert words in str(advice("oom", "memory_limit", op="roll", limit={"limit": limit}))
