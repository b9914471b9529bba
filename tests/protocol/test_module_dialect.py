from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.connection import (
    NOTHING,
    Answered,
    EventReceived,
    Events,
    Flow,
    LocalError,
    Logged,
    Request,
    StartFailed,
    Stray,
    Warned,
)
from protocol.descriptor.model import Lifecycle
from protocol.dialects.module import ModuleConnection
from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Outcome, Success
from protocol.events import ErrorEvent, Log, StatePatch, UiEvent
from protocol.framing import Written
from protocol.replies import Operation
from tests.protocol.wire import (
    DESCRIPTION,
    announce,
    connected,
    describe,
    descriptor,
    event,
    feed,
    give_up,
    health,
    invoke,
    left,
    line,
    module,
)

WELL = {"status": "ok"}


def asked(*requests: Request, **options: Any) -> ModuleConnection:
    connection = module(descriptor(**options))
    for request in requests:
        connection.ask(request)
    return connection


def answers(received: Events) -> dict[str, Outcome]:
    return {item.request_id: item.outcome for item in received if isinstance(item, Answered)}


# What the host writes.


@pytest.mark.clause("N001-6-a")
@pytest.mark.clause("PV1-2-c")
@pytest.mark.clause("PV1-2-g")
def test_each_operation_has_its_frame() -> None:
    connection = asked(
        health("r1"),
        describe("r2"),
        Request("r3", Operation.INVOKE, "roll", {"sides": 20}, "s-1"),
        Request("r4", Operation.INVOKE, "roll"),
        Request("r5", Operation.INVOKE, "roll", traceparent="00-1-2-01"),
    )
    assert connection.outgoing.take() == (
        b'{"requestId":"r1","tool":"dice","operation":"health","input":{}}\n'
        b'{"requestId":"r2","tool":"dice","operation":"describe","input":{}}\n'
        b'{"requestId":"r3","tool":"dice","operation":"invoke",'
        b'"input":{"op":"roll","args":{"sides":20},"session_id":"s-1"}}\n'
        b'{"requestId":"r4","tool":"dice","operation":"invoke","input":{"op":"roll","args":{}}}\n'
        b'{"requestId":"r5","tool":"dice","operation":"invoke",'
        b'"input":{"op":"roll","args":{},"traceparent":"00-1-2-01"}}\n'
    )


def test_what_was_taken_to_be_written_is_not_given_again() -> None:
    connection = asked(health("r1"))
    assert connection.outgoing.take()
    assert connection.outgoing.take() == b""


def test_an_id_that_is_open_cannot_be_used_again_until_it_is_answered() -> None:
    connection = asked(health("r1"))
    with pytest.raises(LocalError):
        connection.ask(invoke("r1"))
    feed(connection, line(status="ok"))
    connection.ask(invoke("r1"))


def test_args_that_cannot_be_encoded_leave_nothing_behind() -> None:
    connection = asked()
    with pytest.raises(TypeError):
        connection.ask(invoke("r1", what=object()))
    assert connection.outgoing.take() == b""
    assert left(connection) == []


@pytest.mark.parametrize("lifecycle", Lifecycle)
def test_stdin_is_closed_after_the_request_only_where_a_process_serves_one(
    lifecycle: Lifecycle,
) -> None:
    assert asked(lifecycle=lifecycle).closes_stdin is (lifecycle is Lifecycle.PER_INVOCATION)


def test_a_pause_is_written_only_for_a_module_with_the_feature_and_an_open_request() -> None:
    silent = asked(invoke("r1"))
    silent.outgoing.take()
    silent.flow("r1", Flow.PAUSE)
    assert not silent.outgoing.take()
    connection = asked()
    announce(connection, "flow")
    connection.ask(invoke("r1"))
    connection.outgoing.take()
    connection.flow("r9", Flow.PAUSE)
    connection.flow("r1", Flow.PAUSE)
    connection.flow("r1", Flow.RESUME)
    assert connection.outgoing.take() == (
        b'{"requestId":"r1","operation":"pause"}\n{"requestId":"r1","operation":"resume"}\n'
    )


def test_a_cancel_is_written_only_for_a_module_with_the_feature_and_an_open_request() -> None:
    connection = asked(invoke("r1"))
    connection.outgoing.take()
    connection.cancel("r1", Written.ALL)
    announce(connection, "cancel")
    for name in ("r2", "r3", "r4"):
        connection.ask(invoke(name))
    connection.outgoing.take()
    connection.cancel("r9", Written.ALL)
    connection.cancel("r3", Written.NOTHING)
    connection.cancel("r4", Written.PART)
    assert connection.outgoing.take() == b""
    connection.cancel("r2", Written.ALL)
    connection.cancel("r2", Written.ALL)
    assert connection.outgoing.take() == b'{"requestId":"r2","operation":"cancel"}\n'


def test_the_dialect_is_persistent_tolerant_and_can_be_probed() -> None:
    dialect = DIALECTS["module"]
    assert dialect.lifecycles[0] is Lifecycle.PERSISTENT
    assert dialect.stdout == "tolerant"
    assert dialect.answers_probes
    assert isinstance(connected("module", descriptor()), ModuleConnection)


# What the module answers.

FORMS: list[tuple[Request, dict[str, Any], Outcome]] = [
    (health("r1"), WELL, Success(WELL)),
    (health("r1"), {"ok": True, "result": WELL}, Success(WELL)),
    (health("r1"), {"version": "0", "type": "done", "ok": True}, Success(WELL)),
    (
        health("r1"),
        {"version": "0", "type": "done", "ok": True, "result": WELL},
        Success(WELL),
    ),
    (describe("r1"), DESCRIPTION, Success(DESCRIPTION)),
    (
        describe("r1"),
        {"version": "0", "type": "done", "ok": True, "result": DESCRIPTION},
        Success(DESCRIPTION),
    ),
    (invoke("r1"), {"ok": True, "result": {"type": "d6"}}, Success({"type": "d6"})),
    (
        invoke("r1"),
        {"ok": False, "error": {"code": "no_dice", "message": "lost"}},
        Failure.reported("no_dice", "lost"),
    ),
    (
        invoke("r1"),
        {"version": "0", "type": "done", "ok": True, "result": 4, "summary": "rolled"},
        Success(4, "rolled"),
    ),
    (
        invoke("r1"),
        {
            "version": "0",
            "type": "done",
            "ok": False,
            "error": {"code": "no_dice", "message": "lost"},
        },
        Failure.reported("no_dice", "lost"),
    ),
]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("request_", "reply", "outcome"), FORMS)
def test_either_form_of_reply_answers_with_and_without_an_id(
    request_: Request, reply: dict[str, Any], outcome: Outcome, named: bool
) -> None:
    connection = asked(request_, stdout="strict")
    received = feed(connection, line({**reply, "requestId": "r1"} if named else reply))
    assert answers(received) == {"r1": outcome}
    assert left(connection) == []


@pytest.mark.parametrize("named", [{}, {"requestId": "r1"}])
def test_events_stream_to_their_request_until_done(named: dict[str, str]) -> None:
    connection = asked(invoke("r1"))
    received = feed(
        connection,
        event("log", level="info", message="m", **named)
        + event("state_patch", patch={"a": 1}, **named)
        + event("ui_event", event="message.chunk", payload={"content": "x"}, **named)
        + event("error", errorCode="E", errorMessage="m", **named)
        + event("done", ok=False, **named),
    )
    *events, last = received
    kinds = [type(item.event) for item in events if isinstance(item, EventReceived)]
    assert kinds == [Log, StatePatch, UiEvent, ErrorEvent]
    assert answers([last]) == {"r1": Failure.reported("E", "m")}


def test_an_error_event_belongs_to_the_request_it_came_with() -> None:
    connection = asked(invoke("r1"), invoke("r2"))
    received = feed(
        connection,
        event("error", requestId="r1", errorCode="E", errorMessage="m")
        + event("done", requestId="r2", ok=False, summary="s")
        + event("done", requestId="r1", ok=False),
    )
    failures = answers(received)
    assert failures["r1"] == Failure.reported("E", "m")
    assert failures["r2"] == Failure.reported("internal", "s", None, "s", reason="reported")


def test_a_refused_asset_is_a_warning_and_the_request_goes_on() -> None:
    good = {"assetId": "a", "kind": "image", "mediaType": "image/png", "path": "/x"}
    connection = asked(invoke("r1"), invoke("r2"))
    received = feed(
        connection,
        event("asset", requestId="r1", **good)
        + event("asset", requestId="r1", **good)
        + event("asset", requestId="r2", **good)
        + event("asset", requestId="r2", **{**good, "assetId": "b", "mediaType": "png"})
        + line(requestId="r1", ok=True),
    )
    notices = [
        (item.request_id, item.notice.reason) for item in received if isinstance(item, Warned)
    ]
    assert notices == [("r1", "duplicate_asset"), ("r2", "bad_media_type")]
    assert sum(isinstance(item, EventReceived) for item in received) == 2
    assert answers(received) == {"r1": Success(None)}


# Which request a line belongs to.


def test_without_ids_requests_are_answered_in_the_order_they_were_sent() -> None:
    connection = asked(health("r1"), invoke("r2"), invoke("r3"))
    replies = line(status="ok") + line(ok=True, result=2) + line(ok=True, result=3)
    assert answers(feed(connection, replies)) == {
        "r1": Success(WELL),
        "r2": Success(2),
        "r3": Success(3),
    }


def test_with_ids_requests_are_answered_in_any_order() -> None:
    connection = asked(invoke("r1"), invoke("r2"), invoke("r3"))
    received = feed(
        connection,
        line(requestId="r3", ok=True, result=3)
        + event("log", requestId="r1", level="info", message="still at it")
        + event("done", requestId="r2", ok=True, result=2)
        + line(ok=True, result=1, requestId="r1"),
    )
    assert answers(received) == {"r3": Success(3), "r2": Success(2), "r1": Success(1)}
    assert [item.request_id for item in received if isinstance(item, EventReceived)] == ["r1"]


def test_once_ids_were_seen_a_line_without_one_among_several_requests_is_nobodys() -> None:
    connection = asked(invoke("r1"))
    feed(connection, line(requestId="r1", ok=True))
    for name in ("r2", "r3"):
        connection.ask(invoke(name))
    assert feed(connection, line(ok=True, result=9)) == [Stray('{"ok":true,"result":9}')]
    assert answers(feed(connection, line(requestId="r3", ok=True))) == {"r3": Success(None)}
    assert answers(feed(connection, line(ok=True, result=2))) == {"r2": Success(2)}


def test_a_line_for_a_request_that_is_not_open_is_a_stray() -> None:
    connection = asked(invoke("r1"))
    feed(connection, line(ok=True))
    late = [
        (line(ok=True), None),
        (line(requestId="r1", ok=True), "r1"),
        (line(requestId="r9", ok=True), "r9"),
        (line(status="ok"), None),
        (event("done", ok=True), None),
        (event("state_patch", patch={}), None),
        (event("log", requestId="r1", level="info", message="late"), "r1"),
    ]
    for spoken, named in late:
        assert feed(connection, spoken) == [Stray(spoken.decode().rstrip(), named)]


def test_a_log_outside_a_request_is_the_modules_own() -> None:
    connection = asked()
    (item,) = feed(connection, event("log", level="warn", message="disk nearly full"))
    assert isinstance(item, Logged)
    assert item.event.message == "disk nearly full"


# Giving up on a request.


def test_a_late_answer_to_an_abandoned_request_is_a_stray_if_it_has_an_id() -> None:
    connection = asked(invoke("r1"))
    feed(connection, line(requestId="r1", ok=True))
    connection.ask(invoke("r2"))
    assert give_up(connection, "r2")
    connection.ask(invoke("r3"))
    received = feed(
        connection,
        event("state_patch", requestId="r2", patch={"late": True})
        + line(requestId="r2", ok=True, result="late")
        + line(requestId="r3", ok=True, result=3),
    )
    assert [type(item) for item in received] == [Stray, Stray, Answered]
    assert answers(received) == {"r3": Success(3)}


def test_abandoning_tells_when_a_late_answer_could_not_be_told_apart() -> None:
    connection = asked(invoke("r1"))
    assert not give_up(connection, "r1")


def test_ids_on_answers_alone_do_not_tell_late_events_apart() -> None:
    # A patch without an id, late, would change the session of whoever is served next.
    connection = asked(invoke("r1"))
    feed(connection, event("state_patch", patch={}) + event("done", requestId="r1", ok=True))
    connection.ask(invoke("r2"))
    assert not give_up(connection, "r2")


def test_logs_without_ids_do_no_harm_and_do_not_count() -> None:
    connection = asked(invoke("r1"))
    feed(connection, event("log", level="info", message="m") + line(requestId="r1", ok=True))
    connection.ask(invoke("r2"))
    assert give_up(connection, "r2")


def test_a_request_that_was_answered_can_be_abandoned_without_doubt() -> None:
    connection = asked(invoke("r1"))
    feed(connection, line(ok=True))
    assert give_up(connection, "r1")


def test_a_request_that_was_not_written_can_be_abandoned_without_doubt() -> None:
    connection = asked(invoke("r1"))
    assert connection.cancel("r1", Written.NOTHING) == NOTHING


def test_the_end_of_the_process_names_what_it_left_unanswered_once() -> None:
    connection = asked(invoke("r1"), invoke("r2"), invoke("r3"))
    feed(connection, line(requestId="r2", ok=True))
    give_up(connection, "r1")
    assert left(connection) == ["r3"]
    assert left(connection) == []
    assert feed(connection, line(requestId="r3", ok=True)) == [
        Stray('{"requestId":"r3","ok":true}', "r3")
    ]


def test_after_an_event_come_plain_replies_and_events_all_the_same() -> None:
    connection = asked(invoke("r1"), invoke("r2"), invoke("r3"))
    said = b"".join(
        [
            line(version="0", type="log", requestId="r1", level="info", message="on it"),
            line(requestId="r1", ok=True, result={"n": 1}),
            line(requestId="r2", ok=True, result={"n": 2}),
            line(version="0", type="log", requestId="r3", level="info", message="on it"),
            line(version="0", type="done", requestId="r3", ok=True, result={"n": 3}),
        ]
    )
    received = connection.receive_data(said)
    assert [type(item) for item in received] == [
        EventReceived,
        Answered,
        Answered,
        EventReceived,
        Answered,
    ]
    assert answers(received) == {f"r{n}": Success({"n": n}) for n in (1, 2, 3)}


def test_a_module_that_is_not_well_is_asked_again_after_longer_and_longer_pauses() -> None:
    made = module(descriptor())
    made.start()
    pauses = []
    for _ in range(7):
        asked = made.outgoing.take()
        rpc_id = msgspec.json.decode(asked)["requestId"]
        feed(made, line(requestId=rpc_id, ok=False, error={"code": "x", "message": "soon"}))
        (_, pause) = made.waits
        pauses.append(pause.seconds)
        assert pause.for_what == "a better health"
        made.time_passed(pause)
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5])
    (well_by,) = made.waits
    assert (well_by.seconds, well_by.for_what) == (10.0, "an answer to health")
    (failed,) = made.time_passed(well_by)
    words = "was not healthy within 10 s; it said: soon"
    assert failed == StartFailed("start_deadline", words, "start_s")
    assert made.waits == ()


def test_the_late_lines_of_sixteen_requests_that_were_given_up_are_recognised() -> None:
    made = module(descriptor())
    announce(made, "cancel")
    for number in range(17):
        made.ask(invoke(f"r{number}"))
        made.outgoing.take()
        give_up(made, f"r{number}")
    for number in range(17):
        (stray,) = feed(made, line(requestId=f"r{number}", ok=True))
        assert isinstance(stray, Stray)
        assert stray.named == ("r0" if number == 0 else None)
