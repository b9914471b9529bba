from __future__ import annotations

import re
from typing import Any

import pytest

from protocol.errors import Failure, Reason
from supervisor.cli.advice import (
    ADVICE,
    BUSY,
    NO_ANSWER,
    OTHER_ID,
    PROBE,
    UNFINISHED,
    WAITED,
    advice,
)
from supervisor.cli.command_line import VERBS
from supervisor.cli.failure_text import failure_text


def advised(reason: Reason, *, op: str = "roll", **evidence: Any) -> str:
    failure = Failure.because(reason, "words", **evidence)
    return str(advice(failure.details, module="dice", op=op))


def test_there_is_advice_for_every_reason() -> None:
    assert set(ADVICE) == set(Reason)


@pytest.mark.parametrize(
    "told", [*ADVICE.values(), PROBE, OTHER_ID, NO_ANSWER, UNFINISHED, WAITED, BUSY]
)
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
    [
        {"stray_id": "x", "line_excerpt": "{"},
        {"line_excerpt": "{"},
        {"unfinished_line": "{"},
        {"state": "starting"},
    ],
)
@pytest.mark.parametrize("reason", [Reason.DEADLINE, Reason.SILENCE])
@pytest.mark.parametrize("op", ["roll", ""])
def test_more_time_is_not_advised_where_something_else_was_the_cause(
    reason: Reason, op: str, evidence: dict[str, str]
) -> None:
    assert re.findall(r"--timeout|\w+_s\b", advised(reason, op=op, **evidence)) == []


TO_ASK_AGAIN = {
    Reason.QUEUE_FULL,
    Reason.DAEMON_RESTART,
    Reason.ASSET_CHANGED,
    Reason.RATE_LIMITED,
    Reason.RESET,
    Reason.CUT_STREAM,
}
"""What may be otherwise the next time, though nothing was mended."""


@pytest.mark.parametrize("with_daemon", [True, False])
@pytest.mark.parametrize("reason", Reason)
def test_no_page_tells_of_another_try_or_a_socket_that_there_will_not_be(
    reason: Reason, with_daemon: bool
) -> None:
    evidence = {"state": "backoff", "retry_in_s": 4}
    error = Failure.because(reason, "words", **evidence)
    document = {"code": error.code, "message": error.message, "details": error.details}
    page = failure_text(document, module="dice", op="roll", with_daemon=with_daemon)
    assert "--socket" not in page
    assert reason in TO_ASK_AGAIN or not re.search(r"\bagain\b|\btries\b", page)
    assert ("next try" in page) == with_daemon
    if not with_daemon:
        assert not re.search(r"`stdiod (start|status|logs|describe)", page)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.CAPABILITY, "in its descriptor"),  # it may be the policy that denies it
        (Reason.STOPPING, "starts it"),  # it may have been removed, or the daemon ends
        (Reason.BROKEN_PIPE, "it closed its stdin'"),  # it may have been its stdout
        (Reason.MALFORMED_JSON, '"stdout":"tolerant"'),  # it may be an answer over several lines
        (Reason.START_DEADLINE, "Allow more"),  # it may have printed what is no answer
    ],
)
def test_advice_holds_for_all_that_can_lead_to_its_reason(reason: Reason, words: str) -> None:
    assert words not in advised(reason)


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


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({"cpu_s": 0.0}, "Look at what it waits for"),
        ({"cpu_s": 0.0, "stderr_tail": ["Traceback (most recent call last):"]}, "a thread that"),
        ({"cpu_s": 9.0, "busy": True, "stderr_tail": ["Traceback (most recent"]}, "a loop that"),
        ({}, "Allow more with --timeout"),
    ],
)
@pytest.mark.parametrize("with_daemon", [True, False])
def test_the_advice_on_a_deadline_is_chosen_by_what_the_process_did(
    evidence: dict[str, Any], words: str, *, with_daemon: bool
) -> None:
    error = {"code": "timeout", "message": "m", "details": {"reason": "deadline", **evidence}}
    page = failure_text(error, module="dice", op="roll", with_daemon=with_daemon)
    assert words in page
