from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from supervisor.policy.lifecycle import (
    HAS_PROCESS,
    SERVES,
    TABLE,
    Action,
    IllegalMoveError,
    Input,
    Move,
    State,
    move,
)

GONE = frozenset(given for given in Input if given.startswith("gone_"))
BEGINS = frozenset({Action.SPAWN, Action.PREPARE})
WAITS = frozenset({State.BACKOFF, State.FAILED})
ENTRIES = [
    pytest.param(state, given, entry, id=f"{state}-{given}")
    for state, row in TABLE.items()
    for given, entry in row.items()
]


def process_ended(state: State, given: Input) -> bool:
    """Whether an input says that the process there was is gone."""
    replaced = given is Input.UNPREPARED and state in HAS_PROCESS
    return given in GONE or given is Input.PREPARED or replaced


def begun(entry: Move) -> int:
    return sum(action in BEGINS for action in entry.actions)


def test_the_table_has_a_row_for_each_state_and_no_other() -> None:
    assert set(TABLE) == set(State)
    assert {given for row in TABLE.values() for given in row} == set(Input)
    assert {action for row in TABLE.values() for m in row.values() for action in m.actions} == set(
        Action
    )


def test_each_state_can_be_reached_from_down() -> None:
    reached: set[State] = set()
    frontier = {State.DOWN}
    while frontier:
        reached |= frontier
        frontier = {m.state for state in frontier for m in TABLE[state].values()} - reached
    assert reached == set(State)


@pytest.mark.parametrize("state", State)
def test_down_can_be_reached_from_each_state_by_stop_and_the_processs_end(state: State) -> None:
    stopping = move(state, Input.STOP).state
    assert stopping in {State.DOWN, State.STOPPING}
    if stopping is State.STOPPING:
        assert move(stopping, Input.GONE_FOR_GOOD).state is State.DOWN


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("given", [Input.START, Input.STOP, Input.RESTART])
def test_what_a_person_asks_for_is_possible_in_each_state(state: State, given: Input) -> None:
    assert isinstance(move(state, given), Move)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("given", sorted(GONE))
def test_a_process_can_be_gone_where_there_is_one_and_nowhere_else(
    state: State, given: Input
) -> None:
    assert (given in TABLE[state]) is (state in HAS_PROCESS)


@pytest.mark.parametrize(("state", "given", "entry"), ENTRIES)
def test_processes_are_conserved(state: State, given: Input, entry: Move) -> None:
    before = state in HAS_PROCESS and not process_ended(state, given)
    assert before + begun(entry) == (entry.state in HAS_PROCESS)


@pytest.mark.parametrize(("state", "given", "entry"), ENTRIES)
def test_what_would_spawn_can_prepare_in_its_place(state: State, given: Input, entry: Move) -> None:
    if Action.SPAWN in entry.actions and given is not Input.PREPARED:
        instead = move(state, Input.UNPREPARED)
        assert instead.state is State.PREPARING
        assert Action.PREPARE in instead.actions
        assert (Action.DISARM in instead.actions) >= (Action.DISARM in entry.actions)


def test_only_a_good_end_of_preparing_spawns_what_was_prepared() -> None:
    assert move(State.PREPARING, Input.PREPARED) == Move(State.STARTING, (Action.SPAWN,))
    assert [state for state in State if Input.PREPARED in TABLE[state]] == [State.PREPARING]


@pytest.mark.parametrize(("state", "given", "entry"), ENTRIES)
def test_a_process_is_ended_once_when_stopping_is_entered(
    state: State, given: Input, entry: Move
) -> None:
    enters = entry.state is State.STOPPING and state is not State.STOPPING
    assert entry.actions.count(Action.END) == enters


@pytest.mark.parametrize(("state", "given", "entry"), ENTRIES)
def test_a_timer_is_set_where_one_waits_and_cleared_on_the_way_out(
    state: State, given: Input, entry: Move
) -> None:
    before = state in WAITS and given is not Input.RETRY
    armed = before - entry.actions.count(Action.DISARM) + entry.actions.count(Action.ARM)
    assert armed == (entry.state in WAITS)


@pytest.mark.parametrize(("state", "given", "entry"), ENTRIES)
def test_who_waits_is_served_on_ready_and_refused_where_nobody_will_serve(
    state: State, given: Input, entry: Move
) -> None:
    assert (Action.SERVE in entry.actions) is (given is Input.STARTED and state is State.STARTING)
    hopeless = entry.state in WAITS | {State.DOWN}
    assert (Action.REFUSE in entry.actions) is hopeless


def test_only_a_process_that_is_there_serves() -> None:
    assert SERVES < HAS_PROCESS


@pytest.mark.parametrize("state", State)
def test_what_cannot_happen_is_the_callers_error(state: State) -> None:
    for given in set(Input) - set(TABLE[state]):
        with pytest.raises(IllegalMoveError, match=f"{given} cannot happen in {state}"):
            move(state, given)


@pytest.mark.parametrize("state", [State.STARTING, State.READY, State.DEGRADED])
@pytest.mark.parametrize("given", [Input.REPLACE, Input.RESTART])
def test_a_running_process_is_replaced_only_after_its_end(state: State, given: Input) -> None:
    assert move(state, given) == Move(State.STOPPING, (Action.END,))
    assert move(State.STOPPING, Input.GONE_AT_ONCE) == Move(State.STARTING, (Action.SPAWN,))


def test_while_a_process_is_stopping_nothing_but_its_end_changes_the_state() -> None:
    for given, entry in TABLE[State.STOPPING].items():
        assert process_ended(State.STOPPING, given) or entry == Move(State.STOPPING)


class Slot(RuleBasedStateMachine):
    """A slot under any inputs that can happen, with a count of what the actions do."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State.DOWN
        self.processes = 0
        self.timers = 0
        self.ending = False

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        given = data.draw(st.sampled_from(sorted(TABLE[self.state])))
        if process_ended(self.state, given):
            self.processes -= 1
            self.ending = False
        if given is Input.RETRY:
            assert self.timers == 1
            self.timers -= 1
        entry = move(self.state, given)
        self.state = entry.state
        for action in entry.actions:
            match action:
                case Action.SPAWN | Action.PREPARE:
                    self.processes += 1
                case Action.END:
                    assert not self.ending
                    self.ending = True
                case Action.ARM:
                    self.timers += 1
                case Action.DISARM:
                    self.timers -= 1
                case _:
                    pass

    @invariant()
    def there_is_one_process_at_most_and_one_timer_or_none_of_both(self) -> None:
        assert self.processes == (self.state in HAS_PROCESS)
        assert self.timers == (self.state in WAITS)
        assert self.ending is (self.state is State.STOPPING)


TestSlot = Slot.TestCase
TestSlot.settings = settings(max_examples=40, stateful_step_count=30)


def test_people_read_of_a_state_what_it_is_called_and_of_a_backoff_that_it_is_in_one() -> None:
    words = {state: state.words for state in State}
    assert words.pop(State.BACKOFF) == "in backoff"
    assert words == {state: state.value for state in words}
