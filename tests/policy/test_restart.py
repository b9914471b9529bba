from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.descriptor.model import ENDING_SIGNALS, Backoff, Restart, Supervision
from supervisor.policy.lifecycle import Input
from supervisor.policy.restart import (
    History,
    RestartDecision,
    RestartRule,
    after_end,
    backoff_s,
    healthy_long_enough,
)
from supervisor.policy.verdict import Breach, Exit, signal_name

STEADY = Supervision(backoff=Backoff(jitter=0.0))

backoffs = st.builds(
    Backoff,
    initial_s=st.floats(0.001, 10),
    factor=st.floats(1, 1e300),
    max_s=st.floats(10, 3600),
    jitter=st.floats(0, 1),
)
draws = st.floats(0, 1, exclude_max=True)
delays = st.integers(0, 10**6)


def end(
    supervision: Supervision, history: History, now: float = 0.0, **changed: Any
) -> RestartDecision:
    facts: dict[str, Any] = {"abnormal": True, "was_ready": True, "draw": 0.0, **changed}
    return after_end(supervision, history, now=now, **facts)


def crashes(supervision: Supervision, times: list[float], **changed: Any) -> list[RestartDecision]:
    """Let a module crash at these times, without any sustained health in between."""
    history, decisions = History(), []
    for now in times:
        decisions.append(end(supervision, history, now, **changed))
        history = decisions[-1].history
    return decisions


# The wait.


@pytest.mark.fault(10)
@given(backoffs, delays, draws)
def test_a_wait_is_never_above_its_maximum_nor_below_its_share_without_jitter(
    backoff: Backoff, delayed: int, draw: float
) -> None:
    delay_s = backoff_s(backoff, delayed, draw)
    full_s = backoff_s(backoff, delayed, 0.0)
    assert 0 <= full_s * (1 - backoff.jitter) <= delay_s <= full_s <= backoff.max_s


@given(backoffs, delays, draws)
def test_waits_only_grow(backoff: Backoff, delayed: int, draw: float) -> None:
    assert backoff_s(backoff, delayed, draw) <= backoff_s(backoff, delayed + 1, draw)


def test_the_waits_of_the_default_double_up_to_a_minute() -> None:
    waits = [backoff_s(STEADY.backoff, delayed, 0.9) for delayed in range(9)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("factor", [1e308, 10**400, float("inf")])
def test_an_absurd_factor_is_the_maximum_and_no_overflow(factor: float) -> None:
    assert backoff_s(Backoff(factor=factor), 3, 0.0) == Backoff().max_s


# Whether, and how soon.


def test_the_first_crash_of_a_ready_process_restarts_at_once() -> None:
    decision = end(STEADY, History(), 5.0)
    assert decision == RestartDecision(Input.GONE_AT_ONCE, 0.0, History((5.0,)))


def test_a_process_that_never_got_ready_waits_from_the_first_time_on() -> None:
    assert end(STEADY, History(), was_ready=False).given is Input.GONE_LATER


def test_after_the_first_each_crash_waits_longer_until_there_were_too_many() -> None:
    decisions = crashes(STEADY, [0, 1, 2, 3, 4, 5])
    assert [decision.given for decision in decisions] == [
        Input.GONE_AT_ONCE,
        *[Input.GONE_LATER] * 4,
        Input.GONE_TOO_OFTEN,
    ]
    assert [decision.delay_s for decision in decisions] == [0, 0.5, 1, 2, 4, STEADY.retry_failed_s]


@pytest.mark.fault(11)
@given(st.lists(st.floats(0, 1e6), max_size=12), st.booleans(), st.integers(0, 5))
def test_without_sustained_health_there_is_one_immediate_restart_at_most(
    gaps: list[float], was_ready: bool, intensity: int
) -> None:
    times = [sum(gaps[:number]) for number in range(len(gaps))]
    supervision = Supervision(intensity=intensity)
    decisions = crashes(supervision, times, was_ready=was_ready)
    assert sum(decision.given is Input.GONE_AT_ONCE for decision in decisions) <= 1


@given(st.lists(st.floats(0, 40), max_size=20), st.integers(0, 5))
def test_too_often_is_more_than_the_intensity_within_the_period(
    gaps: list[float], intensity: int
) -> None:
    supervision = Supervision(intensity=intensity, period_s=60)
    now, times, history = 0.0, list[float](), History()
    for gap in gaps:
        now += gap
        times.append(now)
        decision = end(supervision, history, now)
        within = sum(now - at < 60 for at in times)
        assert (decision.given is Input.GONE_TOO_OFTEN) is (within > intensity)
        assert len(decision.history.crashes) <= intensity + 1
        if decision.given is Input.GONE_TOO_OFTEN:
            break
        history = decision.history


@pytest.mark.parametrize(("gap_s", "given_"), [(59.9, "gone_too_often"), (60.0, "gone_later")])
def test_a_crash_is_forgotten_when_the_period_is_over(gap_s: float, given_: str) -> None:
    supervision = Supervision(intensity=1, period_s=60)
    assert crashes(supervision, [0, gap_s])[1].given == given_


def test_an_intensity_of_zero_gives_up_on_the_first_crash() -> None:
    assert end(Supervision(intensity=0), History()).given is Input.GONE_TOO_OFTEN


def test_after_giving_up_one_more_crash_gives_up_again_however_late() -> None:
    given_up = crashes(STEADY, [0, 1, 2, 3, 4, 5])[-1].history
    assert given_up.given_up
    late = end(STEADY, given_up, 1e6)
    assert (late.given, late.delay_s) == (Input.GONE_TOO_OFTEN, STEADY.retry_failed_s)
    assert end(STEADY, late.history, 2e6).given is Input.GONE_TOO_OFTEN


def test_after_sustained_health_a_crash_is_the_first_again() -> None:
    assert not healthy_long_enough(STEADY, STEADY.period_s - 0.001)
    assert healthy_long_enough(STEADY, STEADY.period_s)
    assert end(STEADY, History(), 1e6).given is Input.GONE_AT_ONCE


# Restart types.


@pytest.mark.parametrize("was_ready", [True, False])
@pytest.mark.parametrize(
    ("restart", "abnormal", "returns"),
    [
        (Restart.PERMANENT, True, True),
        (Restart.PERMANENT, False, True),
        (Restart.TRANSIENT, True, True),
        (Restart.TRANSIENT, False, False),
        (Restart.TEMPORARY, True, False),
        (Restart.TEMPORARY, False, False),
        (Restart.ON_DEMAND, True, True),
        (Restart.ON_DEMAND, False, True),
    ],
)
def test_the_restart_type_decides_whether_a_process_returns(
    restart: Restart, abnormal: bool, returns: bool, was_ready: bool
) -> None:
    supervision = Supervision(restart=restart)
    history = History((1.0,), 1)
    decision = end(supervision, history, 2.0, abnormal=abnormal, was_ready=was_ready)
    assert (decision.given is not Input.GONE_FOR_GOOD) is returns
    if not returns:
        assert decision == RestartDecision(Input.GONE_FOR_GOOD, 0.0, history)


@pytest.mark.parametrize("restart", Restart)
def test_only_on_demand_is_left_to_the_next_request_after_an_end_while_idle(
    restart: Restart,
) -> None:
    history = History((1.0,), 1)
    decision = end(Supervision(restart=restart), history, 2.0, abnormal=False, idle=True)
    assert decision.asleep is (restart is Restart.ON_DEMAND)
    if decision.asleep:
        assert (decision.given, decision.history) == (Input.GONE_FOR_GOOD, history)


def test_every_decision_is_one_of_the_four_ways_to_be_gone() -> None:
    gone = {given for given in Input if given.startswith("gone_")}
    decided = {decision.given for decision in crashes(STEADY, [0, 1, 2, 3, 4, 5])}
    assert decided | {end(Supervision(restart=Restart.TEMPORARY), History()).given} == gone


# Rules for single exit codes and signals.


WORDS = sorted(ENDING_SIGNALS)
entries = st.integers(0, 255) | st.sampled_from(WORDS)
histories = st.builds(
    History, st.lists(st.floats(0, 100), max_size=4).map(tuple), st.integers(0, 9), st.booleans()
)


def ended_by(entry: int | str, **changed: Any) -> Exit:
    if isinstance(entry, int):
        return Exit(exit_code=entry, **changed)
    return Exit(signal=signal.Signals[entry], **changed)


def after(
    supervision: Supervision, how: Exit, history: History | None = None, **changed: Any
) -> RestartDecision:
    known = History() if history is None else history
    return end(supervision, known, 100.0, abnormal=how.abnormal, end=how, **changed)


def test_the_words_for_signals_are_those_that_an_end_is_told_with() -> None:
    assert [signal_name(signal.Signals[word]) for word in WORDS] == WORDS


@pytest.mark.parametrize(
    ("restart", "rules", "entry", "returns"),
    [
        # restart_on overrules a type that says no, and only for what it names.
        (Restart.TEMPORARY, {"restart_on": (75,)}, 75, True),
        (Restart.TEMPORARY, {"restart_on": (75,)}, 76, False),
        (Restart.TEMPORARY, {"restart_on": ("SIGKILL",)}, "SIGKILL", True),
        (Restart.TEMPORARY, {"restart_on": ("SIGKILL",)}, "SIGTERM", False),
        (Restart.TRANSIENT, {"restart_on": (0,)}, 0, True),
        (Restart.PERMANENT, {"restart_on": (75,)}, 76, True),
        # A code is no signal, whatever a shell calls it.
        (Restart.TEMPORARY, {"restart_on": ("SIGKILL",)}, 137, False),
        (Restart.PERMANENT, {"never_on": (137, 9)}, "SIGKILL", True),
        # never_on overrules a type that says yes.
        (Restart.PERMANENT, {"never_on": (78,)}, 78, False),
        (Restart.PERMANENT, {"never_on": (78,)}, 0, True),
        (Restart.TRANSIENT, {"never_on": ("SIGXCPU",)}, "SIGXCPU", False),
        (Restart.TRANSIENT, {"never_on": ("SIGXCPU",)}, 1, True),
        (Restart.TEMPORARY, {"restart_on": (1,), "never_on": (2,)}, 1, True),
        (Restart.PERMANENT, {"restart_on": (1,), "never_on": (2,)}, 2, False),
    ],
)
def test_a_rule_overrules_the_restart_type(
    restart: Restart, rules: dict[str, Any], entry: int | str, returns: bool
) -> None:
    decision = after(Supervision(restart=restart, **rules), ended_by(entry))
    assert (decision.given is not Input.GONE_FOR_GOOD) is returns


def test_the_rule_that_forbids_a_restart_is_named() -> None:
    decision = after(Supervision(never_on=(3, "SIGSEGV")), ended_by("SIGSEGV"))
    assert decision.rule == RestartRule("/supervision/never_on/1", "SIGSEGV")
    assert decision.rule.words == "is not restarted: its supervision.never_on has SIGSEGV"


@pytest.mark.parametrize(
    "how",
    [
        Exit(exit_code=3, stopped_by_host=True),
        Exit(signal=signal.SIGKILL, breach=Breach("memory_bytes", 1, 2)),
        Exit(),
    ],
)
def test_an_end_that_the_host_brought_about_is_no_concern_of_the_rules(how: Exit) -> None:
    never = Supervision(never_on=(3, "SIGKILL"))
    assert after(never, how).given is Input.GONE_AT_ONCE
    again = Supervision(restart=Restart.TEMPORARY, restart_on=(3, "SIGKILL"))
    assert after(again, how).given is Input.GONE_FOR_GOOD


@given(
    st.sampled_from(Restart),
    st.tuples(st.sets(entries, max_size=4), st.sets(entries, max_size=4)),
    entries,
    histories,
    st.booleans(),
)
def test_what_is_named_follows_its_rule_and_all_else_is_as_without_rules(
    restart: Restart,
    rules: tuple[set[int | str], set[int | str]],
    entry: int | str,
    history: History,
    was_ready: bool,
) -> None:
    again, never = rules
    plain = Supervision(restart=restart)
    ruled = Supervision(restart=restart, restart_on=tuple(again - never), never_on=tuple(never))
    decision = after(ruled, ended_by(entry), history, was_ready=was_ready)
    if entry in never:
        assert decision.given is Input.GONE_FOR_GOOD
        assert decision.history == history
        assert decision.rule is not None
        assert decision.rule.end == entry
    elif entry in again:
        # A restart like any other: with its backoff, and up to its intensity.
        permanent = Supervision(restart=Restart.PERMANENT)
        assert decision == after(permanent, ended_by(entry), history, was_ready=was_ready)
    else:
        assert decision == after(plain, ended_by(entry), history, was_ready=was_ready)
