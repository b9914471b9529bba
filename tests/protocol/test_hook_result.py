"""Reading what a hook answers: what is taken for what, and the words for nonsense."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.descriptor.model import Gate
from protocol.hook_result import (
    RESULT,
    UNKNOWN_LOOKED_AT,
    ApprovalDefault,
    Directive,
    HookResult,
    Invalid,
    MessageLevel,
    Role,
    read_hook_result,
    replacement_problem,
)
from tests.protocol.descriptor_documents import VALUES


@pytest.mark.parametrize("value", [None, {}, {"action": "continue"}, {"later": 1}])
def test_nothing_and_nearly_nothing_is_continue(value: Any) -> None:
    assert read_hook_result(value) == HookResult()


def test_every_field_is_read() -> None:
    whole = {
        "action": "ask_user",
        "data": ["any", 1],
        "reason": "r",
        "context_injection": "c",
        "context_injection_role": "assistant",
        "ephemeral": True,
        "append_to_last_tool_result": True,
        "approval_prompt": "?",
        "approval_options": ["once", "always"],
        "approval_timeout": 30,
        "approval_default": "allow",
        "suppress_output": True,
        "user_message": "m",
        "user_message_level": "warning",
        "user_message_source": "s",
    }
    assert whole.keys() == RESULT.fields.keys()
    assert read_hook_result(whole) == HookResult(
        action=Directive.ASK_USER,
        data=["any", 1],
        reason="r",
        context_injection="c",
        context_injection_role=Role.ASSISTANT,
        ephemeral=True,
        append_to_last_tool_result=True,
        approval_prompt="?",
        approval_options=("once", "always"),
        approval_timeout=30.0,
        approval_default=ApprovalDefault.ALLOW,
        suppress_output=True,
        user_message="m",
        user_message_level=MessageLevel.WARNING,
        user_message_source="s",
    )


def test_the_shape_and_the_struct_have_the_same_fields() -> None:
    assert tuple(RESULT.fields) == HookResult.__struct_fields__


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("deny", 'result is a string, must be an object such as {"action":"deny"}'),
        (False, 'result is a boolean, must be an object such as {"action":"deny"}'),
        ([{"action": "deny"}], 'result is an array, must be an object such as {"action":"deny"}'),
        (
            {"action": "denny"},
            ('result: /action: is "denny", must be one of "continue", "deny", "modify", '
            "\"inject_context\", \"ask_user\"; did you mean 'deny'?"),
        ),
        ({"acton": "deny"}, "result: /acton: unknown field; did you mean 'action'?"),
        ({"ephemeral": "yes"}, "result: /ephemeral: is a string, must be true or false"),
        ({"reason": 3}, "result: /reason: is a number, must be a string, or null"),
        (
            {"approval_timeout": 0},
            ("result: /approval_timeout: is 0, must be a number of seconds greater than 0, "
            "such as 300"),
        ),
        (
            {"approval_options": []},
            ('result: /approval_options: is empty, must be an array of strings such as '
            '["allow","deny"], or null'),
        ),
        (
            {"approval_options": ["a", 1]},
            "result: /approval_options/1: is a number, must be a string that is not empty",
        ),
        (
            {"approval_default": "Allow"},
            ('result: /approval_default: is "Allow", must be one of "allow", "deny"; '
            "did you mean 'allow'?"),
        ),
    ],
)  # fmt: skip
def test_nonsense_is_explained_in_one_line(value: Any, problem: str) -> None:
    assert read_hook_result(value) == Invalid(problem)


def test_a_million_unknown_fields_are_not_compared_one_by_one() -> None:
    many = {f"x{number}": 1 for number in range(UNKNOWN_LOOKED_AT)}
    assert read_hook_result({**many, "acton": "deny"}) == HookResult()
    many.popitem()
    assert isinstance(read_hook_result({**many, "acton": "deny"}), Invalid)


@pytest.mark.parametrize(
    ("gate", "data", "problem"),
    [
        (Gate.PRE, {"a": 1}, None),
        (Gate.PRE, [1], "data is an array, must be an object: the new tool_input"),
        (Gate.POST, [1], None),
        (Gate.POST, "text", None),
        (Gate.ERROR, {"code": "c", "message": "m"}, None),
        (Gate.ERROR, {"code": "c", "message": "m", "details": {"a": None}, "later": 1}, None),
        (Gate.ERROR, "gone", "/data: is a string, must be an object"),
        (Gate.ERROR, {"message": "m"}, "/data/code: is missing, must be a string"),
        (Gate.ERROR, {"code": "c", "message": None}, "/data/message: is null, must be a string"),
    ],
)  # fmt: skip
def test_what_replaces_is_of_the_kind_that_the_gate_is_about(
    gate: Gate, data: Any, problem: str | None
) -> None:
    found = replacement_problem(gate, data)
    assert (found or "").startswith(problem) if problem else found is None


@settings(max_examples=200, deadline=None)
@given(VALUES | st.dictionaries(st.sampled_from([*RESULT.fields, "acton"]), VALUES))
def test_any_json_is_read_or_explained(value: Any) -> None:
    result = read_hook_result(value)
    for gate in Gate:
        replacement_problem(gate, value)
    if isinstance(result, Invalid):
        assert result.problem.isprintable()
    else:
        again = read_hook_result(json.loads(msgspec.json.encode(result)))
        assert again == result


def test_what_is_left_out_of_a_result_has_these_values() -> None:
    assert read_hook_result({}) == HookResult()
    assert msgspec.json.decode(msgspec.json.encode(HookResult())) == {
        "action": "continue",
        "data": None,
        "reason": None,
        "context_injection": None,
        "context_injection_role": "system",
        "ephemeral": False,
        "append_to_last_tool_result": False,
        "approval_prompt": None,
        "approval_options": None,
        "approval_timeout": 300.0,
        "approval_default": "deny",
        "suppress_output": False,
        "user_message": None,
        "user_message_level": "info",
        "user_message_source": None,
    }


def test_sixteen_unknown_fields_are_compared() -> None:
    for count, compared in ((15, True), (16, False)):
        many = {f"x{number}": 1 for number in range(count)}
        assert isinstance(read_hook_result({**many, "acton": "deny"}), Invalid) is compared
