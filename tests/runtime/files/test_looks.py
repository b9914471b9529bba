"""Looks at files: what does not answer is left, and looked at again once it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.runtime.blocking import BlockingWork
from supervisor.runtime.files import looks as looks_module
from supervisor.runtime.files.looks import UNANSWERED, Looks, NoAnswerError
from tests.bounds import WAIT_S, until

Look = tuple[str, Callable[[], object]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let what does not answer do so, by the end of the test."""
    for bound in ("PATIENCE_S", "LEAST_PATIENCE_S", "NEEDED_PATIENCE_S"):
        # One that answers may have to wait for a processor.
        monkeypatch.setattr(looks_module, bound, 0.5)
    made = threading.Event()
    yield made
    made.set()


def of(seen: object) -> Callable[[], object]:
    return lambda: seen


def test_looks_are_answered_in_their_order(answers: threading.Event) -> None:
    looks = Looks()
    assert not answers.is_set()
    assert looks.each([(f"look {n}", of(n)) for n in range(1000)]) == list(range(1000))
    assert looks.each([]) == []
    assert looks.each([("none", of(None))]) == [None]


def test_what_does_not_answer_is_left_and_named_and_the_others_are_looked_at(
    answers: threading.Event,
) -> None:
    now = 0.0
    blocking = BlockingWork(lambda: now)
    looks = Looks(blocking)

    def dead() -> str:
        answers.wait(WAIT_S)
        return "late"

    asked: list[Look] = [("one", of(1)), ("dead", dead), ("two", of(2)), ("dead too", dead)]
    asked.append(("three", of(3)))
    expected = [1, UNANSWERED, 2, UNANSWERED, 3]
    assert looks.each(asked) == expected
    now = 100.0
    assert {one.doing for one in blocking.stuck()} == {"dead", "dead too"}
    # Nobody looks there again meanwhile: there is a thread for each, however often it is asked.
    before = threading.active_count()
    for _ in range(10):
        assert looks.each(asked) == expected
    until(lambda: threading.active_count() <= before, "no more threads than before")
    answers.set()
    until(lambda: looks.each(asked) == [1, "late", 2, "late", 3], "all answers")


def test_what_a_look_raises_is_raised_for_whoever_waits(answers: threading.Event) -> None:
    looks = Looks()
    assert not answers.is_set()

    def fails() -> None:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        looks.each([("one", of(1)), ("fails", fails), ("never", of(2))])
    assert looks.each([("one", of(1))]) == [1]


def test_a_place_that_there_is_no_way_without_is_named(answers: threading.Event) -> None:
    looks = Looks()
    with pytest.raises(NoAnswerError, match="/mnt/data does not answer: a dead mount"):
        looks.at(Path("/mnt/data"), lambda: answers.wait(WAIT_S))
    assert looks.at(Path("/mnt/other"), of(1)) == 1
