from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Failure, Reason, Success
from protocol.merge_patch import encoded_bytes, merged, without_nulls
from protocol.response import Response
from supervisor.kernel.kernel import RefusedError
from supervisor.kernel.parties import Provenance
from supervisor.kernel.recorder import CutShort
from supervisor.kernel.sessions.registry import Sessions
from supervisor.kernel.sessions.session import SNAPSHOT_BYTES, Session
from supervisor.policy.session import BOUNDS, SessionLimits
from supervisor.policy.verdict import Stopped
from tests.kernel.remembering import FULL, Remembering
from tests.principals import ADA

PLAN = {"goal": "light the hall", "inputs": {"room": "hall"}}


def sessions(recorder: Remembering | None = None, **bounds: int) -> Sessions:
    clock = itertools.count(1000)
    return Sessions(recorder or Remembering(), lambda: float(next(clock)), SessionLimits(**bounds))


def restarted(recorder: Remembering, **bounds: int) -> Sessions:
    return sessions(recorder.again(), **bounds)


def refused(call: Any, *args: Any, **named: Any) -> Failure:
    with pytest.raises(RefusedError) as caught:
        call(*args, **named)
    return caught.value.failure


def reason(failure: Failure | None) -> str:
    assert failure is not None
    return str(failure.details["reason"])


def response(number: int = 1, failure: Failure | None = None) -> Response:
    return Response(failure or Success(), f"r{number}", "m", "op", 12)


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def members(count: int) -> dict[str, Any]:
    return {str(number): 0 for number in range(count)}


class Open:
    """An invocation that ends when it is told to."""

    def __init__(self, all_of_them: Sessions, session: Session, number: int = 1) -> None:
        self.stopped: Stopped | None = None
        self._sessions, self._session, self._number = all_of_them, session, number
        invocation: Any = self
        all_of_them.began(session, f"r{number}", invocation)

    def cancel(self, stopped: Stopped) -> None:
        self.stopped = stopped
        failure = Failure.because(stopped.reason, stopped.message)
        self._sessions.answered(self._session, response(self._number, failure))


# Beginning.


def test_a_new_session_is_idle_and_empty_and_in_the_journal_with_its_plan() -> None:
    recorder = Remembering()
    session = sessions(recorder).new(ADA, "s", title="Hall", cwd="/srv", plan=PLAN)
    shown = session.shown()
    assert (shown["status"], shown["revision"], shown["state"]) == ("idle", 0, {})
    assert (shown["plan"], shown["title"], shown["parent"]) == (PLAN, "Hall", None)
    assert shown["cwd"] == "/srv"
    (entry,) = recorder.entries
    assert entry == {
        "seq": 1,
        "event": "session:start",
        "session_id": "s",
        "data": {"plan": PLAN, "title": "Hall", "cwd": "/srv"},
        "by": {"name": "ada", "face": "test"},
    }


def test_the_plan_of_a_session_that_was_given_none_is_null_in_the_journal() -> None:
    recorder = Remembering()
    sessions(recorder).new(ADA, "s")
    (entry,) = recorder.entries
    assert entry["data"]["plan"] is None


def test_a_session_without_a_name_gets_one_that_no_other_has() -> None:
    known = sessions()
    ids = {known.new(ADA).id for _ in range(100)}
    assert len(ids) == 100


def test_a_state_to_begin_with_holds_no_nulls() -> None:
    session = sessions().new(ADA, "s", state={"a": None, "b": {"c": None, "d": 1}})
    assert (session.kept.state, session.kept.revision) == ({"b": {"d": 1}}, 0)


@pytest.mark.parametrize(
    ("given", "expected", "words"),
    [
        ({"session_id": ""}, "malformed_request", "is empty"),
        ({"session_id": "x" * 129}, "malformed_request", "129 characters"),
        ({"session_id": "a\nb"}, "malformed_request", "control character"),
        ({"session_id": "taken"}, "session_exists", "there is a session 'taken' already"),
        ({"title": "x" * 201}, "limit_reached", "201 characters"),
        ({"title": "a\nb"}, "invalid_args", "one line"),
        ({"cwd": "/x" * 2049}, "limit_reached", "4098 characters"),
        ({"cwd": "hall"}, "invalid_args", "absolute path"),
        ({"plan": "win"}, "invalid_args", "/plan: is a string, must be an object"),
        ({"plan": {"goal": "x"}}, "invalid_args", "/plan/inputs: is missing"),
        ({"plan": {"goal": "x" * 70_000, "inputs": {}}}, "limit_reached", "65536"),
        ({"state": {"a": "x" * (1 << 20)}}, "limit_reached", "the state has 1048584 bytes"),
        ({"state": nested(65)}, "limit_reached", "the state is nested more than 64 levels deep"),
        ({"state": members(10_001)}, "limit_reached", "the state has more than 10000 members"),
        ({"state": members(10_001)}, "limit_reached", "; begin with a part, and patch the rest in"),
    ],
)
def test_a_session_that_cannot_be_is_refused_and_leaves_nothing(
    given: dict[str, Any], expected: str, words: str
) -> None:
    recorder = Remembering()
    known = sessions(recorder)
    known.new(ADA, "taken")
    failure = refused(known.new, ADA, **given)
    assert (failure.code, reason(failure)) == ("bad_request", expected)
    assert words in failure.message
    assert len(recorder.entries) == 1
    assert known.counts(ADA) == {"live": 1, "busy": 0, "ended": 0}


def test_an_id_of_a_fork_that_cannot_be_is_named_as_the_client_named_it() -> None:
    known = sessions()
    known.new(ADA, "s")
    assert refused(known.fork, ADA, "s", "s").details["pointer"] == "/new_id"
    assert '"new_id" is empty' in refused(known.fork, ADA, "s", "").message


def test_no_more_than_so_many_are_live_at_once() -> None:
    known = sessions(live=2)
    known.new(ADA, "a")
    known.new(ADA, "b")
    assert reason(refused(known.new, ADA, "c")) == "limit_reached"
    assert reason(refused(known.fork, ADA, "a", "c")) == "limit_reached"
    known.end(ADA, "a")
    known.new(ADA, "c")


def test_all_live_ones_together_hold_no_more_than_so_many_bytes() -> None:
    recorder = Remembering()
    known = sessions(recorder, live_bytes=2000, patch_bytes=600, state_bytes=700)
    for name in "abc":
        known.new(ADA, name, state={"text": "x" * 570})
    failure = refused(known.new, ADA, "d", state={"text": "x" * 570})
    assert (reason(failure), failure.details["most"]) == ("limit_reached", 2000)
    assert reason(refused(known.fork, ADA, "a", "d")) == "limit_reached"
    known.new(ADA, "d", plan=None)
    failure = refused(known.patch_from_client, ADA, "d", {"text": "x" * 500})
    assert (reason(failure), failure.details["most"]) == ("limit_reached", 2000)
    known.patch_from_client(ADA, "d", {"n": 1})
    # What replaces or removes something needs no room, however often.
    for number in range(50):
        known.patch_from_client(ADA, "a", {"text": str(number % 10) * 570 if number else None})
    known = restarted(recorder, live_bytes=2000, patch_bytes=600, state_bytes=700)
    assert reason(refused(known.fork, ADA, "a", "e")) == "limit_reached"
    known.end(ADA, "a")
    known.patch_from_client(ADA, "d", {"text": "x" * 500})
    known.patch_from_client(ADA, "d", {"text": None})
    known.fork(ADA, "a", "e")


def test_values_that_are_replaced_in_many_sessions_take_no_room() -> None:
    known = sessions(live_bytes=5000, patch_bytes=600)
    for name in "abcdefgh":
        known.new(ADA, name)
    for number in range(100):
        for name in "abcdefgh":
            known.patch_from_client(ADA, name, {"text": str(number % 10) * 500})


def test_nothing_begins_while_nothing_can_be_kept() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    known.new(ADA, "a")
    recorder.broken = FULL
    for call, *args in ((known.new, ADA), (known.fork, ADA, "a"), (known.end, ADA, "a")):
        assert refused(call, *args) == FULL
    assert refused(known.patch_from_client, ADA, "a", {}) == FULL
    assert known.find_live("a", ADA) == FULL
    assert isinstance(known.find("a", ADA), Session)  # to look at it needs no disk
    recorder.broken = None
    known.end(ADA, "a")


# Looking for one.


def test_an_unknown_session_is_told_with_the_one_that_was_probably_meant() -> None:
    known = sessions()
    known.new(ADA, "evening-walk")
    failure = known.find("evening-wlak", ADA)
    assert isinstance(failure, Failure)
    assert reason(failure) == "unknown_session"
    assert failure.message == ("there is no session 'evening-wlak'; did you mean 'evening-walk'?")


def test_pages_go_from_the_newest_to_the_oldest_without_gap_or_repetition() -> None:
    known = sessions()
    for number in range(25):
        known.new(ADA, f"s{number}")
    for number in range(0, 25, 5):
        known.end(ADA, f"s{number}")
    for ended, expected in ((True, 25), (False, 20)):
        seen: list[str] = []
        after: str | None = None
        while True:
            page, after = known.page(ADA, 7, after, ended=ended)
            seen += [session.id for session in page]
            if after is None:
                break
        assert len(seen) == expected
        assert seen == sorted(seen, key=lambda one: -int(one[1:]))
    assert reason(refused(known.page, ADA, 7, "nobody")) == "unknown_session"


# Patches.


def test_a_patch_is_merged_counted_and_told_with_where_it_is_from() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "s")
    origin = Provenance("torch", "light", "r3", span_id="1-3")
    assert known.patch(session, {"flags": {"lit": True}}, origin) is None
    known.patch_from_client(ADA, "s", {"flags": {"lit": None}, "room": "hall"})
    assert (session.kept.state, session.kept.revision) == ({"flags": {}, "room": "hall"}, 2)
    first, second = recorder.of("session:patch")
    assert first["data"] == {"revision": 1, "patch": {"flags": {"lit": True}}}
    assert (first["module"], first["request_id"], first["span_id"]) == ("torch", "r3", "1-3")
    assert second["data"]["revision"] == 2
    assert "module" not in second


def test_of_two_clients_with_the_same_revision_the_second_is_refused() -> None:
    known = sessions()
    known.new(ADA, "s")
    known.patch_from_client(ADA, "s", {"by": "a"}, 0)
    failure = refused(known.patch_from_client, ADA, "s", {"by": "b"}, 0)
    assert (reason(failure), failure.details["revision"]) == ("revision_conflict", 1)
    assert known.patch_from_client(ADA, "s", {"by": "b"}, 1).kept.state == {"by": "b"}


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (nested(65), "nested more than 64 levels deep"),
        (nested(900), "nested more than 64 levels deep"),
        ({"a": [[[]]] * 10, "b": "x" * (1 << 20)}, "bytes, may have 1048576 at most"),
        ({"b": "x" * 900_000}, "the state would have"),
        (members(10_001), "the patch has more than 10000 members"),
    ],
)
def test_a_refused_patch_leaves_state_revision_and_journal_as_they_were(
    patch: dict[str, Any], words: str
) -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "s", state={"a": "y" * 200_000})
    before = copy.deepcopy(session.kept.state)
    failure = known.patch(session, patch, ADA)
    assert reason(failure) == "limit_reached"
    assert failure is not None
    assert words in failure.message
    assert (session.kept.state, session.kept.revision) == (before, 0)
    assert recorder.of("session:patch") == []
    assert known.patch(session, nested(64), ADA) is None


def test_a_state_near_its_limit_can_be_replaced_in_part_and_made_smaller_for_ever() -> None:
    known = sessions(state_bytes=1000)
    session = known.new(ADA, "s", state={"a": "x" * 900})
    for number in range(1000):
        assert known.patch(session, {"a": str(number % 10) * 900}, ADA) is None
    assert reason(known.patch(session, {"b": "x" * 100}, ADA)) == "limit_reached"
    assert known.patch(session, {"a": None}, ADA) is None
    assert known.patch(session, {"b": "x" * 900}, ADA) is None


STATES = st.recursive(
    st.none() | st.integers() | st.text("äb", max_size=5),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner),
    max_leaves=6,
)
PATCHES = st.dictionaries(st.sampled_from("abc"), STATES, max_size=3)


@given(st.lists(PATCHES, max_size=12), st.booleans())
@settings(deadline=None)
def test_any_patches_are_merged_or_refused_by_exactly_the_limit_and_survive_a_restart(
    patches: list[dict[str, Any]], document_first: bool
) -> None:
    recorder = Remembering()
    known = sessions(recorder, state_bytes=60)
    session = known.new(ADA, "s", state={"a": 1})
    expected: dict[str, Any] = {"a": 1}
    revision = 0
    for patch in patches:
        failure = known.patch(session, patch, ADA)
        result = merged(expected, patch)
        assert (failure is None) == (encoded_bytes(result) <= 60)
        if failure is None:
            expected, revision = result, revision + 1
        assert (session.kept.state, session.kept.revision) == (expected, revision)
    assert without_nulls(expected) == expected
    if document_first:
        session.changed = True
        known.save()
    again = restarted(recorder, state_bytes=60).find("s", ADA)
    assert isinstance(again, Session)
    assert (again.kept.state, again.kept.revision) == (expected, revision)


def test_documents_are_written_in_proportion_to_the_patches() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "s", state={"big": "x" * 500_000})
    patch = {"n": "y" * 1000}
    for _ in range(1000):
        known.patch(session, patch, ADA)
    assert recorder.documents_kept <= 1 + 1000 * encoded_bytes(patch) // 500_000
    small = known.new(ADA, "t")
    before = recorder.documents_kept
    for _ in range(1000):
        known.patch(small, patch, ADA)
    written = recorder.documents_kept - before
    assert 1 <= written <= 1000 * encoded_bytes(patch) // SNAPSHOT_BYTES


# Forking and ending.


def test_a_fork_has_the_state_and_the_plan_and_goes_its_own_way() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "a", plan=PLAN, title="Hall", cwd="/srv", state={"x": {"y": 1}})
    known.patch(session, {"x": {"z": [1]}}, ADA)
    forked = known.fork(ADA, "a", "b")
    assert forked.shown()["parent"] == {"session_id": "a", "revision": 1}
    assert (forked.kept.plan, forked.kept.title, forked.kept.revision) == (PLAN, "Hall", 0)
    assert forked.kept.cwd == "/srv"
    known.patch(session, {"x": {"y": 2}}, ADA)
    known.patch(forked, {"x": {"z": None}}, ADA)
    assert session.kept.state == {"x": {"y": 2, "z": [1]}}
    assert forked.kept.state == {"x": {"y": 1}}
    (entry,) = recorder.of("session:fork")
    assert entry["session_id"] == "b"
    assert entry["data"] == {"parent": "a", "revision": 1, "plan": PLAN}


def test_an_ended_session_can_be_shown_and_forked_and_nothing_else() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "s", state={"a": 1})
    assert known.end(ADA, "s") == (session, 0)
    assert session.shown()["status"] == "ended"
    failures = [
        refused(known.end, ADA, "s"),
        refused(known.patch_from_client, ADA, "s", {}),
        known.find_live("s", ADA),
        known.patch(session, {}, ADA),
    ]
    for failure in failures:
        assert isinstance(failure, Failure)
        assert reason(failure) == "session_ended"
        assert "fork it to continue" in failure.message
    assert known.fork(ADA, "s", "t").kept.state == {"a": 1}
    assert [entry["session_id"] for entry in recorder.of("session:end")] == ["s"]


def test_the_end_of_a_session_cancels_what_is_in_flight_for_it() -> None:
    known = sessions()
    session, other = known.new(ADA, "s"), known.new(ADA, "t")
    flying = [Open(known, session, 1), Open(known, session, 2)]
    aside = Open(known, other, 3)
    assert session.status == "busy"
    assert known.end(ADA, "s")[1] == 2
    assert [str(one.stopped and one.stopped.reason) for one in flying] == ["client", "client"]
    assert aside.stopped is None
    assert (session.status, other.status) == ("ended", "busy")


def test_those_that_ended_first_are_forgotten_first() -> None:
    recorder = Remembering()
    known = sessions(recorder, ended=2)
    for name in "abcd":
        known.new(ADA, name)
    for name in "bca":
        known.end(ADA, name)
    assert isinstance(known.find("b", ADA), Failure)
    assert [one.id for one in known.page(ADA, 10, ended=True)[0]] == ["d", "c", "a"]
    assert {name for _, name in recorder.kept} == {"a", "c", "d"}
    assert known.new(ADA, "b").kept.state == {}


def test_ended_sessions_hold_no_more_than_so_many_bytes_and_the_last_stays() -> None:
    recorder = Remembering()
    known = sessions(recorder, ended_bytes=10_000)
    for number in range(10):
        known.new(ADA, f"s{number}", state={"a": "x" * 3000})
        known.end(ADA, f"s{number}")
        assert sum(len(body) for _, body in recorder.kept.values()) <= 10_000
    known.new(ADA, "large", state={"a": "x" * 50_000})
    known.end(ADA, "large")
    assert [one.id for one in known.page(ADA, 10, ended=True)[0]] == ["large"]
    again = restarted(recorder, ended_bytes=10_000)
    assert [one.id for one in again.page(ADA, 10, ended=True)[0]] == ["large"]


# What was in flight.


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (None, "idle"),
        (Failure("cancelled", "x"), "cancelled"),
        (Failure("timeout", "x"), "error"),
    ],
)
def test_a_session_is_busy_until_the_last_answer_and_then_what_that_was(
    failure: Failure | None, status: str
) -> None:
    known = sessions()
    session = known.new(ADA, "s")
    Open(known, session, 1)
    Open(known, session, 2)
    known.answered(session, response(2))
    assert session.status == "busy"
    known.answered(session, response(1, failure))
    assert session.status == status
    first, second = session.shown()["history"]
    assert (first["request_id"], first["ok"], first["code"]) == ("r2", True, None)
    assert (second["ok"], second["code"]) == (failure is None, failure and failure.code)
    assert (second["module"], second["op"], second["duration_ms"]) == ("m", "op", 12)


def test_the_history_keeps_the_newest_and_counts_them_all() -> None:
    known = sessions()
    session = known.new(ADA, "s")
    for number in range(250):
        known.answered(session, response(number))
    history = session.shown()["history"]
    assert [one["request_id"] for one in history] == [f"r{n}" for n in range(150, 250)]
    assert len(history) == BOUNDS.history
    assert session.summary()["invocations"] == 250


# A restart.


def test_a_restart_finds_all_sessions_as_they_were() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    a = known.new(ADA, "a", plan=PLAN, title="Hall", state={"x": 1})
    known.patch(a, {"y": [None, {"z": None}]}, ADA)
    known.patch(known.fork(ADA, "a", "b"), {"x": None}, ADA)
    known.new(ADA, "c")
    known.end(ADA, "c")
    known.answered(a, response(1, Failure("timeout", "x")))
    known.save()
    again = restarted(recorder)
    for session in (known.find("a", ADA), known.find("b", ADA), known.find("c", ADA)):
        assert isinstance(session, Session)
        other = again.find(session.id, ADA)
        assert isinstance(other, Session)
        # Of a patch the journal knows the time at which it was written.
        assert {**other.shown(), "updated": 0} == {**session.shown(), "updated": 0}
    assert [one.id for one in again.page(ADA, 9, ended=True)[0]] == ["c", "b", "a"]
    assert reason(refused(again.end, ADA, "c")) == "session_ended"
    again.patch_from_client(ADA, "a", {"z": 1}, 1)


def test_the_history_of_a_session_needs_no_orderly_end() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "s")
    known.patch(session, {"a": 1}, ADA)
    known.answered(session, response(1))
    known.answered(session, response(2, Failure("timeout", "x")))
    again = restarted(recorder).find("s", ADA)
    assert isinstance(again, Session)
    assert [one["request_id"] for one in again.shown()["history"]] == ["r1", "r2"]
    assert (again.status, again.summary()["invocations"]) == ("error", 2)
    assert again.kept.state == {"a": 1}


@pytest.mark.parametrize("patched", [False, True])
def test_a_large_session_is_not_kept_anew_for_each_answer(patched: bool) -> None:
    recorder = Remembering()
    known = sessions(recorder)
    large = {"x": "y" * SNAPSHOT_BYTES}
    session = known.new(ADA, "s", state={} if patched else large)
    if patched:
        known.patch(session, large, ADA)
    before = recorder.documents("session")
    for number in range(200):
        known.answered(session, response(number))
    assert recorder.documents("session") == before
    assert sum(len(body) for _, body in recorder.documents("past")) < SNAPSHOT_BYTES


def test_a_session_that_is_forgotten_does_not_come_back_with_a_late_answer() -> None:
    recorder = Remembering()
    known = sessions(recorder, ended=1)
    session = known.new(ADA, "a")
    known.end(ADA, "a")
    known.new(ADA, "b")
    known.end(ADA, "b")
    known.answered(session, response())
    assert {name for _, name in recorder.kept} == {"b"}


def test_the_history_survives_a_daemon_that_is_killed_and_leaves_no_documents_behind() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "s")
    for number in range(250):
        known.answered(session, response(number))
    known.answered(session, response(250, Failure.because(Reason.CLIENT, "cancelled")))
    again = restarted(recorder)
    found = again.find("s", ADA)
    assert isinstance(found, Session)
    assert found.shown() == session.shown()
    assert found.status == "cancelled"
    assert found.shown()["invocations"] == 251
    again.answered(found, response(251))
    third = restarted(recorder).find("s", ADA)
    assert isinstance(third, Session)
    assert third.shown() == found.shown()
    assert len(recorder.documents("past")) == BOUNDS.history
    again.save()
    assert recorder.documents("past") == []
    last = restarted(recorder).find("s", ADA)
    assert isinstance(last, Session)
    assert last.shown() == found.shown()


def test_what_was_in_flight_when_the_daemon_died_is_in_the_history_as_unreachable() -> None:
    recorder = Remembering()
    Open(sessions(recorder), sessions(recorder).new(ADA, "s"))
    recorder.unanswered = [
        CutShort("s", "r1", "torch", "light", 70, 1001.0),
        CutShort("gone", "r2", "torch", "light", 70, 1001.0),
    ]
    again = restarted(recorder)
    session = again.find("s", ADA)
    assert isinstance(session, Session)
    assert session.status == "error"
    (past,) = session.shown()["history"]
    assert (past["ok"], past["code"], past["request_id"]) == (False, "unreachable", "r1")
    recorder.unanswered = []
    later = restarted(recorder).find("s", ADA)
    assert isinstance(later, Session)
    assert later.shown()["history"] == [past]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b'{"session_id":"other","created":1.0,"updated":1.0}',
        b'{"session_id":"bad","created":1.0,"updated":1.0,"state":[]}',
        b'{"session_id":"bad","created":1.0,"updated":1.0,"state":' + b'{"a":' * 9999,
    ],
)
def test_a_document_that_cannot_be_read_costs_no_other(body: bytes) -> None:
    recorder = Remembering()
    sessions(recorder).new(ADA, "good", state={"a": 1})
    recorder.keep("session", "bad", body)
    again = restarted(recorder)
    assert [one.id for one in again.page(ADA, 9)[0]] == ["good"]
    assert recorder.kept["session", "bad"][1] == body


def test_a_patch_that_is_missing_ends_what_can_be_restored_of_a_session() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "s")
    for number in range(1, 5):
        known.patch(session, {"n": number}, ADA)
    recorder.entries = [one for one in recorder.entries if one.get("data", {}).get("revision") != 3]
    again = restarted(recorder).find("s", ADA)
    assert isinstance(again, Session)
    assert (again.kept.state, again.kept.revision) == ({"n": 2}, 2)


def test_a_patch_of_more_members_than_may_be_now_is_restored_and_so_are_those_after_it() -> None:
    recorder = Remembering()
    before = sessions(recorder, members=100)
    session = before.new(ADA, "s")
    before.patch(session, members(100), ADA)
    before.patch(session, {"last": 1}, ADA)
    known = restarted(recorder, members=99)
    again = known.find("s", ADA)
    assert isinstance(again, Session)
    assert (again.kept.state, again.kept.revision) == ({**members(100), "last": 1}, 2)
    assert reason(known.patch(again, members(100), ADA)) == "limit_reached"


def test_what_the_disk_had_no_room_for_is_kept_anew_and_a_restart_finds_it() -> None:
    recorder = Remembering()
    known = sessions(recorder)
    session = known.new(ADA, "s")
    known.patch(session, {"a": 1}, ADA)
    known.patch(session, {"b": 2}, ADA)
    recorder.entries.clear()
    recorder.kept.clear()
    for keep_again in recorder.on_loss:
        keep_again()
    known.patch(session, {"c": 3}, ADA)
    again = restarted(recorder).find("s", ADA)
    assert isinstance(again, Session)
    assert (again.kept.state, again.kept.revision) == ({"a": 1, "b": 2, "c": 3}, 3)


def test_a_document_is_json_that_others_can_read() -> None:
    recorder = Remembering()
    sessions(recorder).new(ADA, "ä", plan=PLAN, state={"n": 2**70})
    document = json.loads(recorder.kept["session", "ä"][1])
    assert (document["session_id"], document["plan"]) == ("ä", PLAN)
    assert document["state"] == {"n": 2**70}
