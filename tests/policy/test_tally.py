"""How invocations are counted by outcome and op, whatever clients ask for."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Failure, Reason
from supervisor.policy.tally import MODULE_ERROR, OK, OTHER, OUTCOMES, SERIES, Tally, outcome_of

OPS = st.sampled_from(["add", "list", OTHER]) | st.text(max_size=3)


@given(st.lists(st.tuples(OPS, st.sampled_from(OUTCOMES), st.booleans())))
def test_each_is_counted_once_and_no_count_ever_goes_back(
    ended: list[tuple[str, str, bool]],
) -> None:
    tally, before = Tally(), 0
    seen: dict[tuple[str, str], int] = {}
    for op, outcome, described in ended:
        tally.add(op, outcome, partial(bool, described))
        now = {
            (outcome, op): count
            for outcome, counts in tally.by_outcome.items()
            for op, count in counts.items()
        }
        assert all(now[key] >= count for key, count in seen.items())
        assert sum(now.values()) == before + 1
        seen, before = now, before + 1
    assert tally.invocations == len(ended)
    assert tally.failures == sum(outcome != OK for _, outcome, _ in ended)


def test_ops_that_nobody_describes_and_too_many_ops_are_counted_together() -> None:
    tally = Tally()
    tally.add("guessed", OK, lambda: False)
    for number in range(SERIES + 10):
        tally.add(f"op{number}", OUTCOMES[number % len(OUTCOMES)], lambda: True)
    found = tally.by_outcome
    assert found[OK][OTHER] >= 1
    assert "guessed" not in found[OK]
    assert sum(map(len, found.values())) <= SERIES + len(OUTCOMES)


def test_an_op_that_is_described_later_is_counted_under_its_name_from_then_on() -> None:
    tally = Tally()
    tally.add("new", OK, lambda: False)
    tally.look_again()
    tally.add("new", OK, lambda: True)
    tally.succeeded["new"][0] += 1
    assert tally.by_outcome == {OK: {OTHER: 1, "new": 2}}


def test_an_outcome_is_a_code_of_the_host_or_an_error_of_the_module_whatever_it_called_it() -> None:
    for reason in Reason:
        assert outcome_of(Failure.because(reason, "no")) in OUTCOMES
    assert outcome_of(Failure.because(Reason.MISSING_DONE, "no")) == "internal"
    assert outcome_of(Failure.reported("timeout", "no")) == MODULE_ERROR


def test_256_series_of_a_module_are_counted_apart_and_further_ops_together() -> None:
    tally = Tally()
    for number in range(257):
        tally.add(f"op{number}", OK, lambda: True)
    assert tally.by_outcome == {OK: {**{f"op{number}": 1 for number in range(256)}, OTHER: 1}}
    assert (tally.invocations, tally.failures) == (257, 0)
    tally.add("op0", "internal", lambda: True)
    assert tally.by_outcome["internal"] == {OTHER: 1}
    assert (tally.invocations, tally.failures) == (258, 1)
    tally.add("op0", OK, lambda: False)  # it has been counted apart, and is further on
    assert tally.by_outcome[OK]["op0"] == 2


def test_512_ops_that_succeeded_are_known_by_name() -> None:
    tally = Tally()
    for number in range(513):
        tally.add(f"op{number}", OK, lambda: True)
    assert list(tally.succeeded) == [f"op{number}" for number in range(512)]
