from __future__ import annotations

import re

import pytest

from protocol.errors import Reason
from supervisor.cli.advice import ADVICE, REPORTED, REPORTED_CODES, advice
from supervisor.cli.main import VERBS


def test_there_is_advice_for_every_reason() -> None:
    assert set(ADVICE) == set(Reason)


@pytest.mark.parametrize("told", [*ADVICE.values(), *REPORTED_CODES.values(), REPORTED])
def test_advice_names_verbs_that_exist_and_needs_only_the_module_and_the_op(told: object) -> None:
    words = str(told).format(module="dice", op="roll")
    assert set(re.findall(r"`stdiod (\w+)", words)) <= set(VERBS)


def test_an_unknown_reason_is_the_modules_own_word() -> None:
    assert advice("bad_request", "made_up") is REPORTED_CODES["bad_request"]
    assert advice("made_up", None) is REPORTED
