from __future__ import annotations

from typing import Any

import pytest

from supervisor.policy.mcp_views import DEFAULT, View, find_view, read_views
from tests.principals import ADA


def test_a_view_is_read() -> None:
    views, faults = read_views(
        {"views": {"v": {"modules": ["git", "kv.get*"], "prefix": False, "for": ["token:*"]}}}
    )
    assert views == {"v": View("v", ("git", "kv.get*"), False, ("token:*",))}
    assert faults == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([], "must be a table"),
        ({"view": {}}, "did you mean 'views'?"),
        ({"views": []}, "must be a table of tables"),
        ({"views": {"v": 5}}, "views.v: must be a table, not 5"),
        ({"views": {"v": {"module": []}}}, "did you mean 'modules'?"),
        ({"views": {"v": {"prefix": "no"}}}, 'prefix must be true or false, not "no"'),
        ({"views": {"v": {"modules": "git"}}}, "modules must be an array"),
        ({"views": {"v": {"for": []}}}, "for must be an array of one string or more"),
    ],
)
def test_what_is_wrong_is_said_and_what_would_be_right(said: Any, words: str) -> None:
    _, faults = read_views(said)
    assert len(faults) == 1
    assert words in faults[0]


def test_the_default_shows_all_unless_the_configuration_has_one() -> None:
    assert find_view({}, None, ADA) == View()
    mine = View(DEFAULT, ("git",))
    assert find_view({DEFAULT: mine}, None, ADA) is mine


def test_a_view_that_is_not_there_or_not_for_somebody_is_the_same_to_him() -> None:
    views = {"one": View("one"), "two": View("two", users=("bob",))}
    for name in ("two", "three"):
        words = find_view(views, name, ADA)
        assert isinstance(words, str)
        assert words.startswith(f'there is no view "{name}" for ada')
        assert "two" not in words.removeprefix('there is no view "two"')


def test_a_view_only_takes_away() -> None:
    narrowed = View("v", ("git.log",)).narrowed(ADA)
    assert narrowed.covers("git", "log")
    assert not narrowed.covers("git", "push")
    assert View().narrowed(ADA) is ADA
