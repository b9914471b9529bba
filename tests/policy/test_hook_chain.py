"""A chain of gates: what its rules come to, and what holds for any gates and answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.descriptor.model import OnFailure
from protocol.hook_result import Directive, HookResult, Invalid, Role
from supervisor.policy.hook_chain import (
    INVALID_ANSWER,
    Answer,
    Chain,
    Failed,
    Link,
    Removed,
    chain_of,
)

DENY = HookResult(action=Directive.DENY, reason="no")
ASK = HookResult(action=Directive.ASK_USER, approval_prompt="?")


def modify(data: Any) -> HookResult:
    return HookResult(action=Directive.MODIFY, data=data)


def inject(text: str, **fields: Any) -> HookResult:
    return HookResult(action=Directive.INJECT_CONTEXT, context_injection=text, **fields)


def asked(*answers: Answer, on_failure: OnFailure = OnFailure.CLOSED, data: Any = None) -> Chain:
    """Return the chain of gates a, b, c... after each gave its answer, as far as it was asked."""
    links = [Link("abcdefghij"[number], 50, on_failure) for number in range(len(answers))]
    chain = chain_of(links, data)
    for answer in answers:
        if chain.next is not None:
            chain = chain.after(answer)
    assert chain.next is None
    return chain


def test_a_denial_names_the_gate_that_gave_it() -> None:
    chain = asked(HookResult(), DENY, ASK)
    assert chain.denied is not None
    assert (chain.denied.name, chain.result(), chain.problem) == ("b", DENY, None)


def test_an_invalid_answer_denies_whatever_a_failure_would_come_to() -> None:
    for on_failure in OnFailure:
        chain = asked(Invalid("result is a string"), on_failure=on_failure)
        assert chain.result() == HookResult(action=Directive.DENY, reason=INVALID_ANSWER)
        assert chain.problem == "result is a string"


def test_a_closed_gate_that_fails_denies_and_says_how_it_failed() -> None:
    chain = asked(modify(1), Failed("did not answer within 5 s"), ASK)
    assert chain.result().reason == "hook b did not answer within 5 s"
    assert chain.problem == "did not answer within 5 s"


def test_an_open_gate_that_fails_is_passed_over_and_named() -> None:
    chain = asked(modify(1), Failed("crashed"), inject("I"), on_failure=OnFailure.OPEN)
    assert chain.passed_over == (("b", "crashed"),)
    assert chain.data == 1
    assert chain.result() == inject("I")


def test_each_link_fails_in_its_own_way() -> None:
    links = [Link("open", 1, OnFailure.OPEN), Link("closed", 2, OnFailure.CLOSED)]
    chain = chain_of(links, None).after(Failed("crashed"))
    assert chain.next == links[1]
    assert chain.after(Failed("crashed")).denied is not None


def test_what_was_modified_and_injected_is_there_when_the_user_is_asked() -> None:
    chain = asked(modify({"n": 2}), inject("I"), ASK, data={"n": 1})
    assert chain.result() == ASK
    assert chain.asked is not None
    assert chain.asked.name == "c"
    assert chain.data == {"n": 2}
    assert [said.name for said in chain.injected] == ["b"]


def test_modify_without_data_modifies_nothing_and_an_empty_injection_injects_nothing() -> None:
    chain = asked(modify(None), inject(""), data="d")
    assert chain.result() == HookResult(data="d")


def test_injections_are_joined_under_the_role_of_the_first() -> None:
    one = inject("A", context_injection_role=Role.USER, user_message="m")
    assert asked(one).result() == one
    two = inject("B", append_to_last_tool_result=True, ephemeral=True)
    assert asked(one, two).result() == inject(
        "A\n\nB", context_injection_role=Role.USER, append_to_last_tool_result=True
    )


def test_nobody_is_asked_after_a_denial_or_the_last_answer() -> None:
    denied = chain_of([Link("a", 1), Link("b", 2)], None).after(DENY)
    assert denied.next is None
    for ended in (denied, chain_of([], None)):
        with pytest.raises(ValueError, match="nobody"):
            ended.after(HookResult())


def test_after_a_yes_the_rest_counts_and_a_no_denies_in_the_name_of_who_asked() -> None:
    chain = asked(modify({"n": 2}), inject("I"), ASK)
    yes, no = chain.after_person(None), chain.after_person("nobody answered")
    assert (yes.result(), yes.data) == (inject("I"), {"n": 2})
    assert no.denied is not None
    assert (no.denied.name, no.result().reason, no.problem) == ("c", "nobody answered", None)
    for ended in (yes, no, asked(ASK, DENY)):
        with pytest.raises(ValueError, match="nobody"):
            ended.after_person(None)


def test_a_gate_that_was_removed_stands_open_whatever_its_failure_would_come_to() -> None:
    for on_failure in OnFailure:
        assert asked(Removed(), inject("I"), on_failure=on_failure).result() == inject("I")


TEXTS = st.sampled_from(["", "A", "B"])
RESULTS = st.builds(
    HookResult,
    action=st.sampled_from(Directive),
    data=st.none() | st.integers(0, 3),
    reason=st.none() | TEXTS,
    context_injection=st.none() | TEXTS,
    approval_prompt=st.none() | TEXTS,
)
ANSWERS = RESULTS | st.builds(Invalid, TEXTS) | st.builds(Failed, TEXTS) | st.just(Removed())
GATES = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(OnFailure), ANSWERS), max_size=7)


def ends(on_failure: OnFailure, answer: Answer) -> bool:
    match answer:
        case HookResult():
            return answer.action is Directive.DENY
        case Invalid():
            return True
        case Failed():
            return on_failure is OnFailure.CLOSED
        case Removed():
            return False


@given(GATES, st.integers(10, 12))
def test_any_chain_is_asked_in_order_until_the_first_denial(
    gates: list[tuple[int, OnFailure, Answer]], data: int
) -> None:
    links = [Link(str(at), priority, failure) for at, (priority, failure, _) in enumerate(gates)]
    chain = chain_of(links, data)
    seen: list[tuple[int, int, Any]] = []
    while (link := chain.next) is not None:
        seen.append((link.priority, int(link.name), chain.data))
        chain = chain.after(gates[int(link.name)][2])

    order = sorted((priority, at) for at, (priority, _, _) in enumerate(gates))
    ending = [n for n, (_, at) in enumerate(order) if ends(gates[at][1], gates[at][2])]
    called = order[: ending[0] + 1] if ending else order
    assert [(priority, at) for priority, at, _ in seen] == called

    answers = [gates[at][2] for _, at in called]
    results = [answer for answer in answers if isinstance(answer, HookResult)]
    replaced = [
        one.data for one in results if one.action is Directive.MODIFY and one.data is not None
    ]
    assert chain.data == (replaced[-1] if replaced else data)
    assert all(was in [data, *replaced] for _, _, was in seen)

    action = chain.result().action
    questions = [one for one in results if one.action is Directive.ASK_USER]
    texts = [
        one.context_injection
        for one in results
        if one.action is Directive.INJECT_CONTEXT and one.context_injection
    ]
    if ending:
        assert action is Directive.DENY
    elif questions:
        assert chain.result() == questions[0]
    elif texts:
        assert action is Directive.INJECT_CONTEXT
        assert chain.result().context_injection == "\n\n".join(texts)
    else:
        assert chain.result() == HookResult(data=chain.data)
