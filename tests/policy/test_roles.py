"""The roles of a session: which go together, and what the lead is given."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.descriptor.model import Kind
from protocol.errors import Failure, Reason
from supervisor.policy.roles import Roles, only_agent

WHOLE = Roles(orchestrator="o", context="c", provider="p", tools=("t", "u"))


def test_roles_are_told_with_those_that_are_named_only() -> None:
    assert Roles().document() == {}
    assert Roles(agent="a").document() == {"agent": "a"}
    assert WHOLE.document() == {
        "orchestrator": "o",
        "context": "c",
        "provider": "p",
        "tools": ["t", "u"],
    }


def test_the_lead_is_the_agent_or_the_orchestrator() -> None:
    assert Roles().lead is None
    assert Roles(agent="a").lead == "a"
    assert WHOLE.lead == "o"


def test_each_named_role_has_its_place_and_the_kind_that_it_takes() -> None:
    assert list(Roles().cast()) == []
    assert list(Roles(agent="a").cast()) == [("/roles/agent", Kind.AGENT, "a")]
    assert list(WHOLE.cast()) == [
        ("/roles/orchestrator", Kind.ORCHESTRATOR, "o"),
        ("/roles/context", Kind.CONTEXT, "c"),
        ("/roles/provider", Kind.PROVIDER, "p"),
        ("/roles/tools/0", Kind.TOOL, "t"),
        ("/roles/tools/1", Kind.TOOL, "u"),
    ]


def test_an_orchestrator_is_given_what_it_works_with_and_an_agent_the_prompt_alone() -> None:
    assert Roles(agent="a").args("hi") == {"prompt": "hi"}
    assert Roles(orchestrator="o").args("hi") == {"prompt": "hi"}
    assert WHOLE.args("hi") == {
        "prompt": "hi",
        "context": "c",
        "provider": "p",
        "tools": ["t", "u"],
    }


def refused(words: str, pointer: str) -> Failure:
    return Failure.because(Reason.INVALID_ARGS, words, pointer=pointer)


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        ({}, None),
        ({"agent": "a"}, None),
        ({"orchestrator": "o"}, None),
        ({"orchestrator": "o", "context": "c", "provider": "p", "tools": ("t",)}, None),
        (
            {"agent": "a", "orchestrator": "o"},
            refused("a session has an agent or an orchestrator, not both", "/roles/orchestrator"),
        ),
        (
            {"agent": "a", "tools": ("t",)},
            refused("tools are what an orchestrator works with: name it, too", "/roles/tools"),
        ),
        (
            {"provider": "p", "context": "c"},
            refused(
                "context and provider are what an orchestrator works with: name it, too",
                "/roles/context",
            ),
        ),
    ],
    ids=lambda one: repr(one)[:60],
)
def test_which_roles_go_together(roles: dict[str, Any], problem: Failure | None) -> None:
    assert Roles(**roles).problem() == problem


NO_ROLE = (
    "the session 's' names no module to serve its prompts, and {}; name one when it begins,"
    " or fork it with one"
)


def names(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


TEN = "m0, m1, m2, m3, m4, m5, m6, m7, m8, m9"


@pytest.mark.parametrize(
    ("agents", "orchestrators", "found"),
    [
        ([], [], "there is no module of the kind agent or orchestrator"),
        ([], ["o", "p"], "there is no agent; there are the orchestrators o, p"),
        (names(2), ["o"], "there are several agents, m0, m1"),
        (names(10), [], f"there are several agents, {TEN}"),
        (names(11), [], f"there are several agents, {TEN} and 1 more"),
        (names(101), [], f"there are several agents, {TEN} and 91 more"),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_session_without_roles_is_told_what_there_is(
    agents: list[str], orchestrators: list[str], found: str
) -> None:
    assert only_agent("s", agents, orchestrators) == Failure.because(
        Reason.NO_AGENT, NO_ROLE.format(found), agents=agents[:100]
    )


def test_the_only_agent_there_is_serves_a_session_without_roles() -> None:
    assert only_agent("s", ["a"], ["o", "p"]) == "a"
