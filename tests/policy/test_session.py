from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, Failure, Reason, Success
from supervisor.policy.session import (
    BOUNDS,
    SessionLimits,
    Status,
    count_problem,
    cwd_problem,
    first_state_problem,
    id_problem,
    patch_members_problem,
    patch_size,
    plan_problem,
    revision_problem,
    room_problem,
    state_problem,
    status_after,
    status_of,
    title_problem,
)

FEW = SessionLimits(members=3)
TIGHT = SessionLimits(
    state_bytes=100, patch_bytes=100, depth=3, live=2, id_chars=8, title_chars=8, plan_bytes=60
)


@given(st.booleans(), st.integers(0, 3), st.sampled_from(list(Status)))
def test_the_status_is_the_first_that_applies(ended: bool, in_flight: int, last: Status) -> None:
    status = status_of(ended=ended, in_flight=in_flight, last=last)
    if ended:
        assert status is Status.ENDED
    elif in_flight:
        assert status is Status.BUSY
    else:
        assert status is last


@pytest.mark.parametrize("reason", list(Reason))
def test_what_the_last_outcome_was_is_what_a_session_is_when_idle(reason: Reason) -> None:
    cancelled = reason.code is Code.CANCELLED
    expected = Status.CANCELLED if cancelled else Status.ERROR
    assert status_after(Failure.because(reason, "x")) is expected
    assert status_after(Success(1)) is Status.IDLE
    assert status_after(Failure("of_its_own", "x")) is Status.ERROR


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])))
def test_an_id_is_any_printable_text_of_the_right_length(text: str) -> None:
    assert (id_problem(text) is None) == (1 <= len(text) <= 128)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (5, "must be a string"),
        (None, "must be a string"),
        ("", "is empty"),
        ("x" * 129, "has 129 characters, may have 128 at most"),
        ("a\nb", r"has a control character: 'a\nb'"),
        ("a\x00", "has a control character"),
        ("a\x1b[2J", "has a control character"),
        ("a\u2028b", "has a control character"),
        ("\ud800", "has a control character"),
    ],
)
def test_a_malformed_id_is_told_why(value: Any, words: str) -> None:
    problem = id_problem(value)
    assert problem is not None
    assert words in problem


@given(st.integers(0, 10**9), st.none() | st.integers(0, 10**9))
def test_a_patch_for_another_revision_is_refused_with_the_one_there_is(
    revision: int, expected: int | None
) -> None:
    refusal = revision_problem(revision, expected)
    if expected in (None, revision):
        assert refusal is None
    else:
        assert refusal is not None
        assert refusal.details == {
            "origin": "host",
            "reason": "revision_conflict",
            "revision": revision,
            "expected": expected,
        }


def _refused(found: int | Failure) -> Failure | None:
    return found if isinstance(found, Failure) else None


def long(size: int) -> dict[str, Any]:
    return {"a": "x" * (size - len('{"a":""}'))}


def nested(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    assert isinstance(value, dict)
    return value


MANY = {"a": {"b": 1, "c": [2]}, "d": 3}


@pytest.mark.parametrize(
    ("refusal", "most", "words"),
    [
        (_refused(patch_size(nested(4), TIGHT)), 3, "nested more than 3 levels deep"),
        (_refused(patch_size(long(101), TIGHT)), 100, "the patch has 101 bytes, may have 100"),
        (state_problem(101, TIGHT), 100, "the state would have 101 bytes, may have 100"),
        (first_state_problem(long(101), TIGHT), 100, "the state has 101 bytes, may have 100"),
        (first_state_problem(nested(4), TIGHT), 3, "the state is nested more than 3 levels deep"),
        (first_state_problem(MANY, FEW), 3, "the state has more than 3 members"),
        (patch_members_problem(MANY, FEW), 3, "the patch has more than 3 members"),
        (count_problem(2, TIGHT), 2, "there are 2 sessions that have not ended, 2 may be"),
        (title_problem("123456789", TIGHT), 8, "the title has 9 characters, may have 8"),
        (plan_problem({"goal": "x" * 99, "inputs": {}}, TIGHT), 60, "bytes, may have 60 at most"),
        (plan_problem({"goal": "x", "inputs": nested(3)}, TIGHT), 3, "3 levels deep"),
    ],
)
def test_what_is_too_much_is_refused_with_the_limit(
    refusal: Failure | None, most: int, words: str
) -> None:
    assert refusal is not None
    assert (refusal.code, refusal.details["reason"]) == ("bad_request", "limit_reached")
    assert refusal.details["most"] == most
    assert words in refusal.message


@pytest.mark.parametrize(
    "refusal",
    [
        state_problem(100, TIGHT),
        first_state_problem(long(100), TIGHT),
        first_state_problem(nested(3), TIGHT),
        first_state_problem(MANY, SessionLimits(members=4)),
        patch_members_problem(MANY, SessionLimits(members=4)),
        count_problem(1, TIGHT),
        title_problem("12345678", TIGHT),
        plan_problem({"goal": "x", "inputs": nested(2)}, TIGHT),
        _refused(patch_size(nested(3), TIGHT)),
        _refused(patch_size(long(100), TIGHT)),
    ],
)
def test_what_is_just_at_a_limit_is_not(refusal: Failure | None) -> None:
    assert refusal is None


def test_a_title_is_one_line_and_a_plan_is_a_plan() -> None:
    title, plan = title_problem("a\nb"), plan_problem({"goal": 1, "inputs": {}})
    assert title is not None
    assert plan is not None
    assert (title.details["reason"], title.details["pointer"]) == ("invalid_args", "/title")
    assert (plan.details["reason"], plan.details["pointer"]) == ("invalid_args", "/plan/goal")
    assert "the plan is not valid: /plan/goal: is a number" in plan.message
    both = plan_problem({"goal": 1, "inputs": 2})
    assert both is not None
    assert both.details["pointer"] == "/plan/goal"
    assert [one.split(":")[0] for one in both.message.split("; ")] == [
        "the plan is not valid",
        "/plan/inputs",
    ]


def test_a_patch_far_too_deep_is_refused_all_the_same() -> None:
    refusal = _refused(patch_size(nested(900)))
    assert refusal is not None
    assert "nested more than 64 levels deep" in refusal.message
    assert patch_size({"a": 1}) == len('{"a":1}')


def test_a_patch_has_so_many_members_those_of_inner_objects_included() -> None:
    most = BOUNDS.members
    inner = {str(number): 0 for number in range(most - 1)}
    assert patch_members_problem({"a": inner}) is None
    assert patch_members_problem({"a": [inner, inner]}) is None  # arrays are replaced as a whole
    refusal = patch_members_problem({"a": inner, "b": {}})
    assert refusal is not None
    assert refusal.details["most"] == most
    assert "the patch has more than 10000 members" in refusal.message
    assert refusal.message.endswith("; send it in parts")


def test_all_sessions_together_have_so_much_room_and_no_more() -> None:
    bounds = SessionLimits(live_bytes=1000)
    assert room_problem(10, 10, bounds) is None
    assert room_problem(0, -5, bounds) is None
    for growth, room, total in ((11, 10, 1001), (1, 0, 1001), (1, -5, 1006)):
        words = (
            f"all sessions together would have {total} bytes, may have 1000 at most; end some first"
        )
        refusal = room_problem(growth, room, bounds)
        assert refusal == Failure.because(Reason.LIMIT_REACHED, words, most=1000)


def test_sessions_have_these_limits_unless_others_are_said() -> None:
    assert msgspec.to_builtins(SessionLimits()) == {
        "state_bytes": 1_048_576,
        "patch_bytes": 1_048_576,
        "depth": 64,
        "members": 10_000,
        "live": 10_000,
        "live_bytes": 67_108_864,
        "ended": 1_000,
        "ended_bytes": 67_108_864,
        "id_chars": 128,
        "title_chars": 200,
        "cwd_chars": 4096,
        "plan_bytes": 65_536,
        "history": 100,
    }


def test_the_folder_of_a_session_is_an_absolute_path_on_one_line() -> None:
    assert cwd_problem("/") is None
    assert cwd_problem("/" + "x" * 4095) is None
    words = "the folder has 4097 characters, may have 4096 at most"
    long = Failure.because(Reason.LIMIT_REACHED, words, most=4096)
    assert cwd_problem("/" + "x" * 4096) == long
    words = "the folder has to be an absolute path, and one line of text"
    odd = Failure.because(Reason.INVALID_ARGS, words, pointer="/cwd")
    for cwd in ("", "a/b", "/a\nb"):
        assert cwd_problem(cwd) == odd


def test_what_is_too_much_of_a_session_is_told_in_these_words() -> None:
    def most(words: str, bound: int) -> Failure:
        return Failure.because(Reason.LIMIT_REACHED, words, most=bound)

    assert count_problem(2, TIGHT) == most(
        "there are 2 sessions that have not ended, 2 may be; end some first", 2
    )
    assert first_state_problem(MANY, FEW) == most(
        "the state has more than 3 members, those inside of them included; begin with a part, "
        "and patch the rest in afterwards",
        3,
    )
    assert patch_members_problem(MANY, FEW) == most(
        "the patch has more than 3 members, those inside of them included; send it in parts", 3
    )
    assert plan_problem({"goal": "x", "inputs": {"a": "y" * 99}}, TIGHT) == most(
        "the plan has 129 bytes, may have 60 at most", 60
    )
    assert id_problem("") == '"session_id" is empty, must have 1 character at least'
