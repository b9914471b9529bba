from __future__ import annotations

from typing import Any

import pytest

from protocol.mcp_server.table import DEFAULT
from supervisor.policy.mcp_views import McpOptions, View, find_view, read_mcp
from tests.principals import ADA


def test_a_view_is_read() -> None:
    said = {"v": {"modules": ["git", "kv.get*"], "prefix": False, "for": ["token:*"]}}
    view = View("v", ("git", "kv.get*"), False, ("token:*",))
    assert read_mcp({"views": said}) == McpOptions({"v": view})


def test_how_long_things_stay_is_read() -> None:
    assert read_mcp({}) == read_mcp({"keep": "always"}) == McpOptions()
    said = {"keep": 60, "session_idle_s": 0.5}
    assert read_mcp(said) == McpOptions(keep_s=60.0, session_idle_s=0.5)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([], "must be a table"),
        ({"view": {}}, "did you mean 'views'?"),
        ({"keep": 0}, 'keep must be "always" or a number of seconds above 0, not 0'),
        ({"keep": "forever"}, 'keep must be "always" or a number of seconds above 0, not'),
        ({"session_idle_s": True}, "session_idle_s must be a number of seconds above 0"),
        ({"session_idle_s": float("nan")}, "session_idle_s must be a number of seconds above 0"),
        ({"views": []}, "must be a table of tables"),
        ({"views": {"v": 5}}, "views.v: must be a table, not 5"),
        ({"views": {"v": {"module": []}}}, "did you mean 'modules'?"),
        ({"views": {"v": {"prefix": "no"}}}, 'prefix must be true or false, not "no"'),
        ({"views": {"v": {"modules": "git"}}}, "modules must be an array"),
        ({"views": {"v": {"for": []}}}, "for must be an array of one string or more"),
    ],
)
def test_what_is_wrong_is_said_and_what_would_be_right(said: Any, words: str) -> None:
    faults = read_mcp(said)
    assert isinstance(faults, list)
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


DAYS_366_S = 31_622_400


def test_how_long_things_stay_is_bounded_by_a_leap_year() -> None:
    assert McpOptions() == McpOptions({}, 3600.0, None)
    said = {"keep": DAYS_366_S, "session_idle_s": DAYS_366_S}
    assert read_mcp(said) == McpOptions({}, float(DAYS_366_S), float(DAYS_366_S))
    longer = DAYS_366_S + 1
    assert read_mcp({"keep": longer, "session_idle_s": longer, "other": 1}) == [
        '"other": there is no such key; the keys are views, session_idle_s, keep',
        f"session_idle_s must be a number of seconds above 0, not {longer}",
        f'keep must be "always" or a number of seconds above 0, not {longer}',
    ]


def test_a_view_that_cannot_be_used_is_told_with_those_that_can() -> None:
    ours, others = View("ours"), View("others", users=("token:x",))
    end = "; a running daemon has the views of its start"
    assert find_view({}, None, ADA) == View()
    assert find_view({"ours": ours}, "ours", ADA) is ours
    assert find_view({"others": others}, "others", ADA) == (
        f'there is no view "others" for {ADA.name}; the configuration has none{end}'
    )
    assert find_view({"ours": ours, "others": others}, "zzz", ADA) == (
        f'there is no view "zzz" for {ADA.name}; there are ours{end}'
    )
    assert find_view({"ours": ours, "others": others}, "our", ADA) == (
        f"there is no view \"our\" for {ADA.name}; did you mean 'ours'?{end}"
    )
