"""The vectors of what a Spec 001 tool prints and how it exits, and the verdict on each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Failure, Outcome, Success
from supervisor.policy.verdict import Exit
from tests.conformance.invocation import Play, play
from tests.protocol.wire import Cuts, event

VECTORS = Path(__file__).parent / "vectors" / "narratoria_streams.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]

EXIT_0 = Exit(exit_code=0)


def stdout_of(case: dict[str, Any]) -> bytes:
    if "stdout_raw" in case:
        return str(case["stdout_raw"]).encode()
    return "".join(f"{text}\n" for text in case["stdout"]).encode()


@pytest.fixture(params=[play], ids=["dialect-and-verdict"])
def player(request: pytest.FixtureRequest) -> Play:
    chosen: Play = request.param
    return chosen


@pytest.mark.clause("N001-5.2-a")
@pytest.mark.clause("N001-5.3-a")
@pytest.mark.clause("N001-5.3-b")
@pytest.mark.parametrize("lengths", [(), [1] * 600, [7, 50, 3, 80], [100, 1, 1, 1]])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_stream_and_an_exit_make_the_expected_response(
    case: dict[str, Any], lengths: Cuts, player: Play
) -> None:
    expected = case["expect"]
    response = player(stdout_of(case), Exit(exit_code=case["exit"]), lengths)
    outcome = response.outcome
    assert isinstance(outcome, Success) is expected["ok"]
    if isinstance(outcome, Failure):
        assert outcome.code == expected["code"]
        assert outcome.details.get("reason") == expected.get("reason")
        assert outcome.message == expected.get("message", outcome.message)
    assert outcome.summary == expected.get("summary", outcome.summary)
    assert response.state == expected.get("state", response.state)
    assert response.warnings == expected.get("warnings", 0)


def ends_of(exit_code: int | None, signal: int | None) -> Exit:
    return Exit(exit_code=exit_code, signal=signal)


DONE = event("done", ok=True)
LOG = event("log", level="info", message="m")


def reason(outcome: Outcome) -> Any:
    assert isinstance(outcome, Failure)
    assert outcome.code == "internal"
    return outcome.details["reason"]


@pytest.mark.clause("N001-4.6-c")
@pytest.mark.parametrize("stdout", [b"", LOG, LOG[:9]])
def test_no_done_and_a_bad_exit_is_a_protocol_level_failure(stdout: bytes, player: Play) -> None:
    outcome = player(stdout, Exit(exit_code=3)).outcome
    assert reason(outcome) == "exited"
    assert isinstance(outcome, Failure)
    assert outcome.details["exit_code"] == 3


@pytest.mark.clause("N001-5.3-b")
@pytest.mark.parametrize(("exit_code", "signal"), [(1, None), (255, None), (None, 9), (None, 15)])
def test_a_bad_exit_counts_whatever_was_said_before(
    exit_code: int | None, signal: int | None, player: Play
) -> None:
    for stdout in (DONE, LOG + DONE, event("done", ok=False)):
        outcome = player(stdout, ends_of(exit_code, signal)).outcome
        assert reason(outcome) == ("exited" if signal is None else "signaled")


@pytest.mark.clause("N001-4.6-a")
def test_a_second_done_is_a_warning_and_changes_nothing(player: Play) -> None:
    response = player(DONE + event("done", ok=False, summary="no"), EXIT_0)
    assert response.outcome == Success(None)
    assert response.warnings == 1


@pytest.mark.clause("N001-4.6-a")
def test_no_done_at_all_is_named(player: Play) -> None:
    assert reason(player(LOG, EXIT_0).outcome) == "missing_done"
    assert reason(player(b"", EXIT_0).outcome) == "missing_done"


def test_a_done_that_is_cut_off_is_named(player: Play) -> None:
    assert reason(player(LOG + DONE[:-3], EXIT_0).outcome) == "truncated_line"


@pytest.mark.clause("N001-4.1-a")
def test_a_log_of_level_error_spoils_nothing(player: Play) -> None:
    response = player(event("log", level="error", message="m") + DONE, EXIT_0)
    assert response.outcome == Success(None)
    assert response.warnings == 0


@given(
    st.lists(st.sampled_from([stdout_of(case) for case in CASES]), max_size=3),
    st.lists(st.integers(0, 200), max_size=8),
    st.sampled_from([EXIT_0, Exit(exit_code=1), Exit(signal=9)]),
)
def test_the_response_does_not_depend_on_the_cut(
    streams: list[bytes], lengths: Cuts, end: Exit
) -> None:
    stdout = b"".join(streams)
    assert play(stdout, end, lengths) == play(stdout, end)
