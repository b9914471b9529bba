"""Codes of host calls and of stdiod, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, Failure, Reason
from protocol.host_call import PiCode, code_of, failure_of, pi_code, pi_error

TO_PI = [
    ("timeout", "timeout"),
    ("forbidden", "denied"),
    ("unreachable", "io"),
    ("oom", "io"),
    ("cancelled", "io"),
    ("bad_request", "invalid_request"),
    ("unsupported_op", "invalid_request"),
    ("internal", "internal"),
    ("a_code_of_its_own", "internal"),
    ("", "internal"),
    ("denied", "internal"),
]


@pytest.mark.parametrize(("ours", "pi"), TO_PI)
def test_our_codes_have_one_of_five(ours: str, pi: str) -> None:
    assert pi_code(ours) == pi
    assert {code for code, _ in TO_PI} >= set(Code)


@pytest.mark.parametrize(
    ("pi", "ours"),
    [
        ("timeout", "timeout"),
        ("denied", "forbidden"),
        ("io", "unreachable"),
        ("invalid_request", "bad_request"),
        ("internal", "internal"),
        ("later", "internal"),
    ],
)
def test_each_of_the_five_has_one_of_ours(pi: str, ours: str) -> None:
    assert code_of(pi) == ours


@pytest.mark.parametrize("pi", PiCode)
def test_there_and_back_is_the_same_for_the_five(pi: PiCode) -> None:
    assert pi_code(code_of(pi)) == pi


def test_a_failure_is_written_with_its_own_code_in_the_details() -> None:
    failure = Failure.because(Reason.QUEUE_FULL, "32 wait already", instance="kv#1")
    assert pi_error(failure) == {
        "code": "io",
        "message": "32 wait already",
        "details": {
            "code": "unreachable",
            "origin": "host",
            "reason": "queue_full",
            "instance": "kv#1",
        },
        "retryable": True,
    }
    assert pi_error(Failure("E7", "broken"))["details"] == {"code": "E7"}


@pytest.mark.parametrize("reason", [Reason.EXITED, Reason.DEADLINE, Reason.HOOK])
def test_what_may_have_been_done_or_will_not_change_is_not_to_be_tried_again(
    reason: Reason,
) -> None:
    assert pi_error(Failure.because(reason, "m"))["retryable"] is False


def test_an_error_of_another_host_keeps_the_code_it_had() -> None:
    assert failure_of("denied", "no") == Failure("forbidden", "no", {"pi_code": "denied"})
    assert failure_of("later", "?", {"a": 1}) == Failure(
        "internal", "?", {"a": 1, "pi_code": "later"}
    )


@pytest.mark.parametrize("said", ["forbidden", 3, None, ["timeout"]])
def test_a_code_in_the_details_that_does_not_go_with_the_code_is_only_a_detail(said: Any) -> None:
    assert failure_of("io", "m", {"code": said}) == Failure(
        "unreachable", "m", {"code": said, "pi_code": "io"}
    )


KEYS = st.sampled_from(["code", "details", "reason", "pi_code"])
DETAILS: Any = st.recursive(
    st.none() | st.sampled_from(["timeout", "io", "queue_full", 1]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=4,
)


@given(
    st.sampled_from([*Code, "E7", ""]) | st.text(max_size=3),
    st.text(max_size=3),
    st.dictionaries(KEYS, DETAILS, max_size=3),
)
def test_any_failure_comes_back_as_it_was(code: str, message: str, details: dict[str, Any]) -> None:
    error = pi_error(Failure(code, message, details))
    assert failure_of(error["code"], error["message"], error["details"]) == Failure(
        code, message, details
    )
