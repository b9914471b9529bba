"""The comparison of transcripts forgives what it says it forgives, and nothing else."""

from __future__ import annotations

import pytest

from tests.docs.transcript import Step, fits, steps, typed


def test_a_transcript_is_cut_at_its_prompts() -> None:
    text = "$ cat <<E\n> one\n> E\none\n$ true\n$ ls\na\n"
    assert list(steps(text)) == [
        Step("cat <<E\none\nE", ["one"]),
        Step("true", []),
        Step("ls", ["a"]),
    ]


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("dice is ready", "dice is ready"),
        ("dice   ready", "dice ready  "),
        ("up 1.4s, 13.8 MiB", "up 512ms, 9.0 MiB"),
        ("up 3m05s", "up 4s"),
        ("pid 4711", "pid 99213"),
        ("pid 4711", "pid 12"),
        ("2026-01-02T03:04:05.678Z dice#1", "2027-11-20T17:51:37.265Z dice#1"),
        ("at 2026-01-02 03:04:05.678,", "at 2027-11-20 17:51:37.265,"),
        ("{...}", '{"a":[1,2]}'),
    ],
)
def test_a_line_fits_in_spite_of_what_differs_from_run_to_run(shown: str, real: str) -> None:
    assert fits([shown], [real], {})


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("dice is ready", "dice is failed"),
        ("exit code 3", "exit code 4"),
        ("restarts 1", "restarts 12"),
        ("in 1.4s", "in 1.4"),
        ("pid 4711", "pid none"),
        ("(a.b)", "(axb)"),
    ],
)
def test_a_line_does_not_fit_when_anything_else_differs(shown: str, real: str) -> None:
    assert not fits([shown], [real], {})


def test_missing_and_additional_lines_do_not_fit() -> None:
    assert not fits(["a"], [], {})
    assert not fits([], ["a"], {})
    assert not fits(["a", "b"], ["a"], {})


def test_three_dots_stand_for_any_number_of_lines() -> None:
    assert fits(["...", "b"], ["b"], {})
    assert fits(["...", "b", "..."], ["a", "a", "b", "c"], {})
    assert not fits(["...", "b"], ["a", "c"], {})


def test_a_number_that_was_shown_is_typed_as_the_real_one() -> None:
    numbers: dict[str, str] = {}
    assert fits(["pid 4711"], ["pid 99213"], numbers)
    assert typed("kill -9 4711 && exit 12", numbers) == "kill -9 99213 && exit 12"
