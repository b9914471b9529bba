"""Every line has an owner: an answer, right or wrong, or somebody's noise."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.connection import (
    Answered,
    Asked,
    EventReceived,
    Quarantined,
    Ready,
    Received,
    StartFailed,
    Stray,
    Wait,
    Warned,
)
from protocol.dialects.module import ModuleConnection
from protocol.errors import Failure, Success
from protocol.events import Log
from tests.protocol.test_module_dialect import answers, asked
from tests.protocol.wire import (
    DESCRIPTION,
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
    narratoria,
)

RIGHT = 'expected {"ok":true,"result":...} or {"ok":false,"error":{"code":"...","message":"..."}}'

WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"{}\n", '"ok" is missing, must be true or false'),
    "only a result": (b'{"result":1}\n', '"ok" is missing'),
    "ok as a string": (b'{"ok":"true","result":1}\n', '"ok" is a string, must be true or false'),
    "ok misspelt": (b'{"okay":true,"result":1}\n', 'is "okay" a misspelling of it?'),
    "a failure without an error": (b'{"ok":false}\n', '"error" is missing'),
    "an error of words": (b'{"ok":false,"error":"no"}\n', '"error" is a string, must be an object'),
    "an error without a code": (
        b'{"ok":false,"error":{"message":"no"}}\n',
        '"error.code" is missing, must be a string such as "not_found"',
    ),
    "a status": (b'{"status":"done"}\n', '"ok" is missing'),
    "an event without a version": (b'{"type":"done","ok":true}\n', '"version" is missing'),
    "over several lines": (b'{\n  "ok": true\n}\n', "printed over several lines?"),
    "cut in two": (b'{"ok":true,\n"result":1}\n', "it ends in the middle"),
    "no JSON number": (b'{"ok":true,"result":NaN}\n', "the line is not JSON"),
    "a number that is none": (b'{"ok":true,"result":1e999}\n', '1e999` in "result"'),
    "no UTF-8": (b'{"ok":true,"result":"\xe9"}\n', "the line is not UTF-8"),
    "as Python shows it": (b"{'ok': True, 'result': 1}\n", "JSON.stringify and json.dumps"),
    "as Node shows it": (b"{ ok: true, result: 1 }\n", "JSON.stringify and json.dumps"),
    "an error misspelt": (b'{"ok":false,"Error":{}}\n', 'is "Error" a misspelling of it?'),
    "a number for an id": (
        b'{"requestId":1,"ok":true,"result":1}\n',
        '"requestId" is a number, must be the string that the request has',
    ),
}

NOISE = [
    b"Loading model...\n",
    b'{"level":"info","msg":"listening"}\n',
    b'{"sides":20}\n',
    b"{'sides': 20}\n",
    b"[1]\n",
    b'"ok"\n',
    b"{brace}\n",
    b"null\n",
    b"undefined\n",
    b"True\n",
    b'{"success":true,"data":1}\n',
]


def failure(received: list[Received], request_id: str = "r1") -> Failure:
    outcome = answers(received)[request_id]
    assert isinstance(outcome, Failure)
    return outcome


@pytest.mark.parametrize(("bad", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_fails_its_request_at_once_and_says_what_is_right(
    bad: bytes, words: str
) -> None:
    connection = asked(invoke("r1"))
    said = failure(feed(connection, bad))
    assert words in said.message
    assert said.details["line_excerpt"] == bad.splitlines()[0].decode(errors="replace")
    if b'"type"' not in bad:
        assert RIGHT in said.message
    assert left(connection) == []


@pytest.mark.parametrize("bad", [bad for bad, _ in WRONG.values()], ids=WRONG)
def test_the_requests_behind_a_wrong_answer_get_their_own(bad: bytes) -> None:
    connection = asked(describe("r0"))
    feed(connection, line(DESCRIPTION))
    connection.ask(invoke("r1"))
    feed(connection, bad)
    for name in ("r2", "r3"):
        connection.outgoing.take()
        connection.ask(invoke(name))
        marks = connection.outgoing.take().count(b".sync")
        received = feed(connection, line(DESCRIPTION) * marks + line(ok=True, result=name))
        assert answers(received) == {name: Success(name)}


def test_an_answer_behind_a_byte_order_mark_is_taken_on_any_line() -> None:
    connection = asked(invoke("r1"))
    marked = b"\xef\xbb\xbf" + line(ok=True, result=1)
    assert answers(feed(connection, marked)) == {"r1": Success(1)}
    connection.ask(invoke("r2"))
    assert answers(feed(connection, marked)) == {"r2": Success(1)}


@pytest.mark.parametrize("noise", NOISE)
def test_noise_is_set_aside_and_the_answer_counts(noise: bytes) -> None:
    for request, answer in (
        (health("r1"), {"status": "ok"}),
        (describe("r1"), DESCRIPTION),
        (invoke("r1"), {"ok": True}),
    ):
        received = feed(asked(request), noise + line(answer))
        assert [type(item) for item in received] == [Warned, Answered]
        assert isinstance(answers(received)["r1"], Success)


@pytest.mark.parametrize("noise", NOISE)
def test_a_warning_of_noise_says_that_it_was_no_answer(noise: bytes) -> None:
    (item,) = feed(asked(invoke("r1")), noise)
    assert isinstance(item, Warned)
    shown = noise.decode().strip()
    said = item.notice.in_place_of_answer
    assert said.startswith(f"the last line it printed is not an answer: {shown} (")
    assert said.endswith("; use stderr for anything that is not an answer)")


def test_of_a_module_that_repeats_ids_an_object_without_one_is_noise() -> None:
    connection = asked(invoke("r1"))
    feed(connection, line(requestId="r1", ok=True))
    connection.ask(invoke("r2"))
    received = feed(connection, b'{"status":"ready"}\n' + line(requestId="r2", ok=True))
    assert [type(item) for item in received] == [Warned, Answered]


def test_a_line_that_cannot_be_read_fails_the_request_that_it_shows_the_id_of() -> None:
    connection = asked(invoke("r1"), invoke("r2"))
    received = feed(connection, b'{"requestId": "r2", "ok": true, "result": Infinity}\n')
    assert "not JSON" in failure(received, "r2").message
    assert left(connection) == ["r1"]


def test_a_mistake_that_changes_from_line_to_line_costs_each_time_one_request() -> None:
    connection = asked(describe("r0"))
    feed(connection, line(DESCRIPTION))
    for number, (bad, words) in enumerate(WRONG.values()):
        connection.outgoing.take()
        connection.ask(invoke(f"r{number}"))
        marks = connection.outgoing.take().count(b".sync")
        received = feed(connection, line(DESCRIPTION) * marks + bad)
        assert words in failure(received, f"r{number}").message


# A line for a request that is not open.


def test_a_line_for_another_request_says_which_one_it_named() -> None:
    (item,) = feed(asked(invoke("r2")), line(requestId="r1", ok=True))
    assert isinstance(item, Stray)
    assert item.in_place_of_answer == (
        "a line came for request 'r1', which is not open: "
        "is each request answered once, with its own requestId?"
    )


def test_a_late_line_of_a_request_that_was_given_up_is_no_mistake() -> None:
    connection = asked(invoke("r1"))
    give_up(connection, "r1")
    connection.ask(invoke("r2"))
    (item,) = feed(connection, line(requestId="r1", ok=True))
    assert isinstance(item, Stray)
    assert item.in_place_of_answer == ""


def test_an_id_that_would_steer_a_terminal_is_shown_escaped_and_cut() -> None:
    (item,) = feed(asked(invoke("r1")), line(requestId="\x1b[2J" + "x" * 1000, ok=True))
    assert isinstance(item, Stray)
    assert "'\\x1b[2Jxxx" in item.in_place_of_answer
    assert len(item.in_place_of_answer) < 200


# The start.


def started(*said: bytes) -> tuple[ModuleConnection, list[Received]]:
    connection = module(descriptor())
    connection.start()
    return connection, [item for data in said for item in feed(connection, data)]


def last_wait(connection: ModuleConnection) -> Wait:
    return connection.waits[0]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"status ok\n", "the last line it printed is not an answer: status ok"),
        (b'{"level":"info"}\n', 'the last line it printed is not an answer: {"level":"info"}'),
        (b"null\n", 'JSON null, it must be a JSON object; expected {"'),
        (b"", " s"),
    ],
)
def test_a_start_that_takes_too_long_says_what_came_instead(said: bytes, words: str) -> None:
    connection, _ = started(said)
    (failed,) = connection.time_passed(last_wait(connection))
    assert isinstance(failed, StartFailed)
    assert words in failed.message
    connection, _ = started(line(status="ok"), said)
    (failed,) = connection.time_passed(last_wait(connection))
    assert isinstance(failed, StartFailed)
    assert words in failed.message


def test_an_answer_with_an_id_that_nobody_asked_with_ends_the_start_at_once() -> None:
    for before, reason in ((b"", "bad_health"), (line(status="ok"), "bad_describe")):
        _, received = started(before, line(requestId="x1", status="ok"))
        failed = received[-1]
        assert isinstance(failed, StartFailed)
        assert failed.reason == reason
        assert "a line came for request 'x1', which is not open" in failed.message


def test_a_start_goes_on_after_an_answer_that_comes_twice() -> None:
    connection = module(descriptor())
    (asked_health,) = connection.start()
    assert isinstance(asked_health, Asked)
    twice = line(requestId=asked_health.request.request_id, status="ok")
    received = feed(connection, twice + twice)
    assert [type(item) for item in received] == [Answered, Asked, Stray]
    assert connection.waits


def test_a_wrong_answer_to_health_ends_the_start_at_once() -> None:
    _, received = started(b'{"ok":true,"result":"hello"}\n')
    failed = received[-1]
    assert isinstance(failed, StartFailed)
    assert 'expected {"status":"ok"}' in failed.message


UNSUPPORTED = {"ok": False, "error": {"code": "unsupported_op", "message": "only invoke"}}
STATED: dict[str, Any] = {
    "name": "dice",
    "version": None,
    "kind": "tool",
    "capabilities": [],
    "inputs": {},
    "outputs": {},
}


@pytest.mark.parametrize(
    ("said", "description"),
    [
        (line(UNSUPPORTED), STATED),
        (line({}), STATED),
        (line(ok=True, result={"name": None}), STATED),
        (line(inputs={"roll": {}}), {**STATED, "inputs": {"roll": {}}}),
        (line(name="dice", version="2", features=None), {**STATED, "version": "2"}),
        (
            event("error", errorCode="unsupported_op", errorMessage="m") + event("done", ok=False),
            STATED,
        ),
    ],
)
def test_what_describe_leaves_out_the_descriptor_says(
    said: bytes, description: dict[str, Any]
) -> None:
    _, received = started(line(status="ok"), said)
    assert received[-1] == Ready(description, "answered health and describe")


def test_a_module_that_knows_nothing_but_invoke_gets_ready_and_stays_in_step() -> None:
    connection, received = started(line(UNSUPPORTED), line(UNSUPPORTED))
    assert isinstance(received[-1], Ready)
    connection.outgoing.take()
    connection.ask(health("r1"))
    assert answers(feed(connection, line(UNSUPPORTED))) == {"r1": Success({"status": "ok"})}
    connection.ask(invoke("r2"))
    assert failure(feed(connection, b'{"result":2}\n'), "r2")
    connection.ask(invoke("r3"))
    assert b"r3.sync" in connection.outgoing.take()
    received = feed(connection, line(UNSUPPORTED) + line(ok=True, result=3))
    assert answers(received) == {"r3": Success(3)}


def test_a_module_that_says_little_of_itself_stays_in_step() -> None:
    little = line(inputs={"roll": {}})
    connection, _ = started(line(status="ok"), little)
    connection.ask(invoke("r1"))
    feed(connection, b'{"result":1}\n')
    connection.ask(invoke("r2"))
    received = feed(connection, line(ok=True, result="late") + little + line(ok=True, result=2))
    assert answers(received) == {"r2": Success(2)}


# Tolerance, in both dialects.

HALF = (
    rb'{"version":"0","type":"log","level":"info","message":"a\ud83d \\ud83d \ud83d\ude00"}' + b"\n"
)


@pytest.mark.parametrize("connect", [module, narratoria])
def test_half_a_character_is_read_as_a_replacement_and_named(connect: Any) -> None:
    connection = connect(descriptor(stdout="strict"))
    connection.ask(invoke("r1"))
    warned, told = feed(connection, HALF)
    assert isinstance(warned, Warned)
    assert warned.notice.reason == "lone_surrogate"
    assert isinstance(told, EventReceived)
    assert isinstance(told.event, Log)
    assert told.event.message == "a\ufffd \\ud83d \U0001f600"
    assert told.line is not None
    assert b"ufffd" in told.line or "\ufffd".encode() in told.line


def test_half_a_character_in_a_plain_answer_is_mended_too() -> None:
    warned, answered = feed(asked(invoke("r1")), b'{"ok":true,"result":"\\uDC00!"}\n')
    assert isinstance(warned, Warned)
    assert answers([answered]) == {"r1": Success("\ufffd!")}


@pytest.mark.parametrize("connect", [module, narratoria])
@pytest.mark.parametrize(
    ("name", "required", "optional"),
    [
        ("log", {"level": "info", "message": "m"}, "fields"),
        ("ui_event", {"event": "e"}, "payload"),
        ("error", {"errorCode": "E", "errorMessage": "m"}, "details"),
        ("asset", {"assetId": "a", "kind": "k", "mediaType": "a/b", "path": "p"}, "metadata"),
    ],
)
def test_null_in_the_place_of_what_may_be_left_out_is_leaving_it_out(
    connect: Any, name: str, required: dict[str, Any], optional: str
) -> None:
    plain = connect(descriptor(stdout="strict"))
    nulls = connect(descriptor(stdout="strict"))
    for connection in (plain, nulls):
        connection.ask(invoke("r1"))
    (expected,) = feed(plain, event(name, **required))
    given = {**required, optional: None, "timestamp": None, "requestId": None}
    (got,) = feed(nulls, event(name, **given))
    assert isinstance(got, EventReceived)
    assert isinstance(expected, EventReceived)
    assert got.event == expected.event
    assert got.line is not None
    assert b"null" not in got.line


def test_null_where_something_is_required_is_wrong() -> None:
    said = failure(feed(asked(invoke("r1")), event("log", level="info", message=None)))
    assert "bad log event" in said.message


def test_of_a_tool_an_object_that_is_wrong_ends_it_where_a_banner_is_passed_over() -> None:
    connection = narratoria(descriptor(stdout="tolerant"))
    connection.ask(invoke("r1"))
    assert [type(one) for one in feed(connection, b"banner\n[1]\n\xff\n")] == [Warned] * 3
    (ended,) = feed(connection, event("log", level="loud", message="m"))
    assert not isinstance(ended, Warned | Quarantined)


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (b"null\n", f"the line is JSON null, it must be a JSON object; {RIGHT}"),
        (b'[{"ok":true}]\n', f"the line is a JSON array, it must be a JSON object; {RIGHT}"),
        (b"None\n", "`None` is not a JSON value"),
        (b'{"OK":true}\n', f'is "OK" a misspelling of it?; {RIGHT}'),
        (b'{"success":true}\n', f'"ok" is missing, must be true or false; {RIGHT}'),
    ],
)
def test_noise_that_may_be_meant_as_an_answer_says_what_is_right(noise: bytes, words: str) -> None:
    (item,) = feed(asked(invoke("r1")), noise)
    assert isinstance(item, Warned)
    assert words in item.notice.in_place_of_answer


SLIPS: dict[str, tuple[dict[str, Any], str]] = {
    "result": ({"ok": True, "resutl": 1}, '"resutl" is an unknown field; did you mean "resul'),
    "id": ({"request_id": "r1", "ok": True, "result": 1}, 'did you mean "requestId"?'),
    "id by its value": ({"ok": True, "id": "r1"}, '"id" is an unknown field; did you mean "r'),
    "type": ({"version": "0", "Type": "done", "ok": True}, 'did you mean "type"?'),
    "both": (
        {"ok": True, "result": 1, "error": {"code": "a", "message": "b"}},
        '"error" is ignored: "ok" is true, so "result" is what counts',
    ),
    "both of a failure": (
        {"ok": False, "result": 1, "error": {"code": "a", "message": "b"}},
        '"result" is ignored: "ok" is false, so "error" is what counts',
    ),
    "done": ({"version": "0", "type": "done", "ok": True, "results": 1}, 'did you mean "result"?'),
}


@pytest.mark.parametrize(("said", "words"), SLIPS.values(), ids=SLIPS)
def test_an_answer_with_a_slip_counts_and_is_warned_of(said: dict[str, Any], words: str) -> None:
    warned, answered = feed(asked(invoke("r1")), line(said))
    assert isinstance(warned, Warned)
    assert isinstance(answered, Answered)
    assert words in warned.notice.message
    assert answered.fault is None


@pytest.mark.parametrize(
    "said",
    [
        {"ok": True},
        {"ok": True, "result": {"request_id": "r1"}},
        {"ok": True, "data": 1, "took_ms": 3},
        {"ok": False, "error": {"code": "a", "message": "b"}, "result": None},
        {"ok": True, **{f"resul{number}": 1 for number in range(1000)}},
    ],
)
def test_other_fields_are_nobodys_business(said: dict[str, Any]) -> None:
    (answered,) = feed(asked(invoke("r1")), line(said))
    assert isinstance(answered, Answered)


def test_the_slips_of_probes_are_told() -> None:
    _, received = started(line(requestID="r1", status="ok"), line(name="dice", input={}))
    told = [item.notice.message for item in received if isinstance(item, Warned)]
    assert ["requestId" in told[0], "inputs" in told[1]] == [True, True]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"ok": True}, '"result" is missing; expected {"status":"ok"}'),
        ({"ok": True, "result": 1}, '"result" is a number, must be an object'),
        ({"ok": True, "result": {}}, '"result.status" is missing'),
        ({"ok": 1}, '"ok" is a number, must be true or false'),
        ({"version": "0", "type": "done", "ok": True, "result": 1}, '"result" is a number'),
    ],
)
def test_a_wrong_answer_to_health_names_the_field(said: dict[str, Any], words: str) -> None:
    assert words in failure(feed(asked(health("r1")), line(said))).message


@pytest.mark.parametrize("said", [(b"{}\n",), (line(status="ok"), b'{"ok":1}\n')])
def test_a_start_that_fails_for_a_line_quotes_it(said: tuple[bytes, ...]) -> None:
    _, received = started(*said)
    failed = received[-1]
    assert isinstance(failed, StartFailed)
    assert failed.message.endswith(f": {said[-1].decode().strip()}")
