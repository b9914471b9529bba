"""What is told of odd lines: the words of warnings, and of answers that did not come."""

from __future__ import annotations

import pytest

from protocol.connection import Answered, Notice, Stray
from protocol.errors import Reason, Success
from protocol.json_line import Fault

NOISE = "the line is not JSON; use stderr for anything that is not an answer"
UNNAMED = "which is not open: is each request answered once, with its own requestId?"


@pytest.mark.parametrize(
    ("notice", "words", "in_place_of_answer"),
    [
        (Notice("malformed_json", "m"), "m", ""),
        (
            Notice("malformed_json", "m", "x"),
            "m: x",
            "the last line it printed is not an answer: x (m)",
        ),
        (
            Notice("malformed_json", "m", ""),
            "m: ",
            "the last line it printed is not an answer:  (m)",
        ),
        (Notice("bad_version", "m", "x"), "m: x", ""),
        (
            Notice.of(Fault(Reason.MALFORMED_JSON, "the line is not JSON", "x")),
            f"{NOISE}: x",
            f"the last line it printed is not an answer: x ({NOISE})",
        ),
        (Notice.of(Fault(Reason.LINE_TOO_LONG, "it is long", "x")), "it is long: x", ""),
    ],
)
def test_a_line_that_is_noise_may_stand_in_the_place_of_an_answer(
    notice: Notice, words: str, in_place_of_answer: str
) -> None:
    assert notice.words == words
    assert notice.in_place_of_answer == in_place_of_answer
    assert notice.evidence == {"line_excerpt": notice.line_excerpt}


@pytest.mark.parametrize(
    ("stray", "words"),
    [
        (Stray("line"), ""),
        (Stray("line", "r1"), f"a line came for request 'r1', {UNNAMED}"),
        (Stray("line", "r1", "why"), "why"),
        (Stray("line", None, "why"), "why"),
        (Stray("line", "x" * 80), f"a line came for request '{'x' * 80}', {UNNAMED}"),
        (Stray("line", "x" * 81), f"a line came for request '{'x' * 79}…', {UNNAMED}"),
    ],
)
def test_a_line_for_no_open_request_is_told_unless_its_request_was_given_up(
    stray: Stray, words: str
) -> None:
    assert stray.in_place_of_answer == words
    assert stray.warning == (f"{words}: line" if words else "")
    assert stray.evidence == {"line_excerpt": "line", "stray_id": stray.named}


def test_an_answer_stands_if_its_process_exits_with_0_unless_it_says_otherwise() -> None:
    assert Answered("r1", Success(1)).codes == (0,)
