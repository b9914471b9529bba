"""Which calls can never be served, held to a simulation that simply tries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.policy.waits import Waits, circle


def waits(
    calls: Mapping[str, tuple[str, str, str | None]], capacities: Mapping[str, int] | None = None
) -> Waits:
    """Make the graph of calls given as id: (module, "holds" | "waits" | "past", parent)."""
    modules = {call: module for call, (module, _, _) in calls.items()}
    children: dict[str, list[str]] = {}
    holders: dict[str, list[str]] = {}
    for call, (module, state, parent) in calls.items():
        if parent is not None:
            children.setdefault(parent, []).append(call)
        if state == "holds":
            holders.setdefault(module, []).append(call)
    waiting = {call for call, (_, state, _) in calls.items() if state == "waits"}
    room = dict.fromkeys(modules.values(), 1) | dict(capacities or {})
    return Waits(modules, children, waiting, holders, room)


def test_a_call_waits_for_a_holder_that_waits_for_nothing() -> None:
    assert circle("2", waits({"1": ("kv", "holds", None), "2": ("kv", "waits", None)})) is None


def test_a_module_that_calls_itself_waits_for_itself() -> None:
    calls = {"1": ("a", "holds", None), "2": ("a", "waits", "1")}
    assert circle("2", waits(calls)) == ("a", "a")
    assert circle("2", waits(calls, {"a": 2})) is None


def test_a_chain_through_others_is_named_from_end_to_end() -> None:
    calls = {
        "1": ("a", "holds", None),
        "2": ("b", "holds", "1"),
        "3": ("c", "holds", "2"),
        "4": ("a", "waits", "3"),
    }
    assert circle("4", waits(calls)) == ("a", "b", "c", "a")
    assert circle("4", waits({**calls, "5": ("a", "holds", None)}, {"a": 2})) is None


def test_two_requests_that_hold_what_the_other_needs_are_a_circle() -> None:
    calls = {
        "1": ("a", "holds", None),
        "2": ("b", "holds", None),
        "3": ("b", "waits", "1"),
        "4": ("a", "waits", "2"),
    }
    assert circle("4", waits(calls)) == ("a", "b", "a")
    del calls["4"]
    assert circle("3", waits(calls)) is None


def test_all_places_taken_by_calls_that_wait_for_one_more_is_a_circle() -> None:
    calls: dict[str, tuple[str, str, str | None]] = {
        str(number): ("pool", "holds", None) for number in range(3)
    }
    for number in range(3):
        calls[f"{number}.1"] = ("pool", "waits", str(number))
    assert circle("2.1", waits(calls, {"pool": 3})) == ("pool", "pool")
    del calls["0.1"]
    assert circle("2.1", waits(calls, {"pool": 3})) is None


def test_a_call_at_a_gate_holds_nothing_and_a_gate_may_call_what_it_gates() -> None:
    calls: dict[str, tuple[str, str, str | None]] = {
        "1": ("a", "waits", None),
        "gate": ("hook", "holds", "1"),
        "2": ("a", "waits", "gate"),
    }
    assert circle("2", waits(calls)) is None
    calls["1"] = ("a", "holds", None)
    assert circle("2", waits(calls)) == ("a", "hook", "a")
    calls["1"] = ("a", "past", None)
    assert circle("2", waits(calls)) is None


def test_who_is_behind_an_old_circle_is_led_to_it() -> None:
    calls = {
        "1": ("a", "holds", None),
        "2": ("a", "waits", "1"),
        "3": ("b", "holds", None),
        "4": ("a", "waits", "3"),
        "5": ("b", "waits", None),
    }
    assert circle("5", waits(calls)) == ("b", "a", "a")


def test_a_module_without_any_capacity_is_the_whole_circle() -> None:
    assert circle("1", waits({"1": ("a", "waits", None)}, {"a": 0})) == ("a",)


class Counted(Mapping[str, Any]):
    """A mapping that counts what is looked up in it, and refuses to be gone through."""

    def __init__(self, inner: Mapping[str, Any]) -> None:
        self.inner = inner
        self.looked_up = 0

    def __getitem__(self, key: str) -> Any:
        self.looked_up += 1
        return self.inner[key]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("gone through as a whole")

    def __len__(self) -> int:
        raise AssertionError("counted as a whole")


def counted(graph: Waits) -> tuple[Waits, list[Counted]]:
    mappings = [
        Counted(one) for one in (graph.modules, graph.children, graph.holders, graph.capacities)
    ]
    modules, children, holders, capacities = mappings
    return Waits(modules, children, graph.waiting, holders, capacities), mappings


@pytest.mark.parametrize("closed", [False, True])
def test_the_work_is_linear_in_what_is_reached_and_not_in_what_there_is(closed: bool) -> None:
    length = 3000
    calls: dict[str, tuple[str, str, str | None]] = {
        f"other {number}": (f"m {number}", "holds", None) for number in range(length)
    }
    for number in range(length):
        calls[str(number)] = (f"c {number}", "holds", str(number - 1) if number else None)
    calls["last"] = ("c 0" if closed else "m 0", "waits", str(length - 1))
    graph, mappings = counted(waits(calls))
    found = circle("last", graph)
    assert (found is not None) is closed
    bound = 10 * length if closed else 10
    assert sum(one.looked_up for one in mappings) <= bound
    if closed:
        assert found == ("c 0", *(f"c {number}" for number in range(1, length)), "c 0")


@st.composite
def graphs(draw: st.DrawFn) -> Waits:
    """Draw calls in trees, some of which hold as much of their modules as there is."""
    calls: dict[str, tuple[str, str, str | None]] = {}
    names = "abc"
    capacities = {name: draw(st.integers(1, 2)) for name in names}
    free = dict(capacities)
    for number in range(draw(st.integers(1, 9))):
        parent = draw(st.sampled_from([None, *calls]))
        module = draw(st.sampled_from(names))
        state = draw(st.sampled_from(["holds", "holds", "waits", "past"]))
        if state == "holds":
            if not free[module]:
                state = "waits"
            else:
                free[module] -= 1
        calls[str(number)] = (module, state, parent)
    return waits(calls, capacities)


def left_over(graph: Waits) -> set[str]:
    """Let calls take places and end, one at a time in turn, until nothing moves any more."""
    open_calls = set(graph.modules)
    holding = {call for holders in graph.holders.values() for call in holders}
    waiting = {call for call in open_calls if call in graph.waiting}
    moved = True
    while moved:
        moved = False
        for call in sorted(open_calls):
            if open_calls & set(graph.children.get(call, ())):
                continue
            module = graph.modules[call]
            taken = sum(graph.modules[one] == module for one in holding)
            if call not in waiting:
                open_calls.discard(call)
                holding.discard(call)
                moved = True
            elif taken < graph.capacities[module]:
                waiting.discard(call)
                holding.add(call)
                moved = True
    return open_calls


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_a_call_cannot_end_exactly_if_trying_leaves_it_over(graph: Waits) -> None:
    stuck = left_over(graph)
    for call in graph.modules:
        names = circle(call, graph)
        assert (names is not None) is (call in stuck)
        if names is not None:
            assert names[0] == graph.modules[call]
            assert set(names) <= set(graph.modules.values())
            assert len(names) > 1


@settings(max_examples=200, deadline=None)
@given(graphs(), st.data())
def test_only_a_new_call_that_cannot_end_itself_can_keep_others_from_ending(
    graph: Waits, data: st.DataObject
) -> None:
    before = left_over(graph)
    parent = data.draw(st.sampled_from(sorted(graph.modules)))
    module = data.draw(st.sampled_from("abc"))
    children = {**graph.children, parent: [*graph.children.get(parent, ()), "new"]}
    waiting = {"new", *(call for call in graph.modules if call in graph.waiting)}
    grown = Waits(
        {**graph.modules, "new": module}, children, waiting, graph.holders, graph.capacities
    )
    if circle("new", grown) is None:
        assert left_over(grown) == before
