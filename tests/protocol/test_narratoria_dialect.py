from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.connection import (
    NOTHING,
    Answered,
    EventReceived,
    Events,
    LocalError,
    Stray,
    Violated,
    Warned,
)
from protocol.descriptor.model import Lifecycle
from protocol.dialects.narratoria import NarratoriaConnection
from protocol.dialects.registry import DIALECTS
from protocol.errors import Failure, Reason, Success
from protocol.framing import Written
from tests.protocol.test_module_dialect import answers
from tests.protocol.test_module_dialect_faults import BAD, INTOLERABLE, LINE_BYTES, TOLERABLE
from tests.protocol.wire import (
    Cuts,
    cuts,
    describe,
    descriptor,
    event,
    feed,
    give_up,
    health,
    invoke,
    left,
    line,
    narratoria,
)

DONE = event("done", ok=True, summary="s")


def opened(**options: Any) -> NarratoriaConnection:
    options.setdefault("stdout", "strict")
    connection = narratoria(descriptor(line_bytes=LINE_BYTES, **options))
    connection.ask(invoke("r1", "light", torch=1))
    return connection


def kinds(received: Events) -> list[type]:
    return [type(item) for item in received]


# What the tool reads.


@pytest.mark.clause("N001-6-a")
def test_the_envelope_is_one_line_with_op_as_operation_and_args_as_input() -> None:
    connection = opened()
    assert connection.outgoing.take() == (
        b'{"requestId":"r1","tool":"dice","operation":"light","input":{"torch":1}}\n'
    )
    assert connection.outgoing.take() == b""
    assert connection.closes_stdin


def test_flat_input_is_the_args_with_the_request_id_merged_in() -> None:
    connection = opened(input_form="flat")
    assert connection.outgoing.take() == b'{"torch":1,"requestId":"r1"}\n'


def test_in_flat_input_the_hosts_request_id_wins_over_an_arg_of_that_name() -> None:
    connection = narratoria(descriptor(input_form="flat"))
    connection.ask(invoke("r1", requestId="mine", a=1))
    assert connection.outgoing.take() == b'{"requestId":"r1","a":1}\n'


def test_a_process_serves_one_invocation_and_no_probe() -> None:
    for request in (health("r1"), describe("r1")):
        with pytest.raises(LocalError):
            narratoria(descriptor()).ask(request)
    with pytest.raises(LocalError):
        opened().ask(invoke("r2"))


def test_cancelling_is_left_to_the_process_ending() -> None:
    connection = opened()
    connection.outgoing.take()
    assert connection.cancel("r1", Written.ALL) == NOTHING
    assert connection.outgoing.take() == b""


def test_the_dialect_is_per_invocation_strict_and_never_probed() -> None:
    dialect = DIALECTS["narratoria"]
    assert dialect.lifecycles == (Lifecycle.PER_INVOCATION,)
    assert dialect.stdout == "strict"
    assert not dialect.answers_probes


# What it prints.


@pytest.mark.clause("N001-4.1-a")
@pytest.mark.clause("N001-5.4-a")
def test_each_event_is_handed_on_as_soon_as_its_line_ends() -> None:
    connection = opened()
    spoken = event("log", level="error", message="m") + event("state_patch", patch={})
    for end in range(1, len(spoken) + 1):
        received = connection.receive_data(spoken[end - 1 : end])
        expected = [EventReceived] if spoken[end - 1 : end] == b"\n" else []
        assert kinds(received) == expected
    assert answers(feed(connection, DONE)) == {"r1": Success(None, "s")}


@pytest.mark.clause("N001-8-e")
def test_done_alone_is_enough() -> None:
    connection = opened()
    assert answers(feed(connection, event("done", ok=True))) == {"r1": Success(None)}
    assert left(connection) == []


@pytest.mark.clause("N001-4.5-a")
@pytest.mark.clause("N001-4.5-b")
@pytest.mark.clause("N001-4.5-c")
def test_an_error_event_ends_nothing_and_the_last_one_tells_the_failure() -> None:
    connection = opened()
    received = feed(
        connection,
        event("error", errorCode="E1", errorMessage="first")
        + event("log", level="info", message="goes on")
        + event("error", errorCode="E2", errorMessage="last", details={"a": 1})
        + event("done", ok=False, summary="s"),
    )
    assert kinds(received) == [EventReceived] * 3 + [Answered]
    assert answers(received) == {"r1": Failure.reported("E2", "last", {"a": 1}, "s")}


@pytest.mark.clause("N001-4.6-b")
@pytest.mark.parametrize("late", [DONE, event("state_patch", patch={}), *BAD.values()])
def test_nothing_is_accepted_after_done(late: bytes) -> None:
    connection = opened()
    feed(connection, DONE)
    assert kinds(feed(connection, late)) == [Stray]
    assert left(connection) == []


@pytest.mark.clause("N001-4.6-b")
@pytest.mark.parametrize("late", [DONE.rstrip(), b'{"version":"0","type":"lo'])
def test_a_last_line_after_done_is_not_accepted_either(late: bytes) -> None:
    connection = opened()
    feed(connection, DONE + late)
    assert kinds(connection.receive_eof()) == [Stray]


@pytest.mark.clause("N001-2.2-a")
@pytest.mark.clause("N001-5.2-a")
@pytest.mark.parametrize(("reason", "bad"), BAD.items())
def test_a_strict_tools_bad_line_ends_the_processing(reason: Reason, bad: bytes) -> None:
    connection = opened()
    received = feed(connection, bad + event("log", level="info", message="m") + DONE)
    (item,) = received
    assert isinstance(item, Violated)
    assert (item.request_id, item.fault.reason) == ("r1", reason)
    assert not connection.receive_eof()
    assert left(connection) == ["r1"]


@pytest.mark.clause("N001-2.3-a")
def test_bytes_that_are_no_utf8_are_refused_even_in_a_field_that_is_ignored() -> None:
    (item,) = feed(opened(), b'{"version":"0","type":"done","ok":true,"ignored":"\xff"}\n')
    assert isinstance(item, Violated)
    assert item.fault.reason is Reason.INVALID_UTF8


@pytest.mark.parametrize(("reason", "bad"), TOLERABLE.items())
def test_a_tolerant_tools_stray_line_is_a_warning(reason: Reason, bad: bytes) -> None:
    connection = opened(stdout="tolerant")
    warned, answered = feed(connection, bad + DONE)
    assert isinstance(warned, Warned)
    assert warned.notice.reason == reason
    assert warned.notice.line_excerpt
    assert isinstance(answered, Answered)


@pytest.mark.clause("N001-5.2-a")
@pytest.mark.parametrize(("reason", "bad"), INTOLERABLE.items())
def test_even_a_tolerant_tool_may_not_print_these(reason: Reason, bad: bytes) -> None:
    (item,) = feed(opened(stdout="tolerant"), bad + DONE)
    assert isinstance(item, Violated)
    assert item.fault.reason is reason


ASSET = {"assetId": "a", "kind": "image", "mediaType": "image/png", "path": "/x"}


@pytest.mark.clause("N001-4.3-a")
@pytest.mark.clause("N001-4.3-b")
def test_a_duplicate_asset_or_a_bad_media_type_refuses_the_asset_alone() -> None:
    received = feed(
        opened(),
        event("asset", **ASSET)
        + event("asset", **ASSET)
        + event("asset", **{**ASSET, "assetId": "b", "mediaType": "picture"})
        + DONE,
    )
    assert kinds(received) == [EventReceived, Warned, Warned, Answered]
    notices = [item.notice.reason for item in received if isinstance(item, Warned)]
    assert notices == ["duplicate_asset", "bad_media_type"]


@pytest.mark.clause("N001-8-f")
def test_unknown_media_types_and_ui_events_are_handed_on_like_any_other() -> None:
    received = feed(
        opened(),
        event("asset", **{**ASSET, "mediaType": "x-hologram/x-unheard-of"})
        + event("ui_event", event="zap")
        + DONE,
    )
    assert kinds(received) == [EventReceived, EventReceived, Answered]


@pytest.mark.clause("N001-7-b")
@pytest.mark.parametrize("path", ["/a/b", "b.png", "../up/b.png", "with space", "ü", ""])
def test_no_layout_is_asked_of_a_path(path: str) -> None:
    received = feed(opened(), event("asset", **{**ASSET, "path": path}))
    assert kinds(received) == [EventReceived]


# The end.


def test_a_last_line_that_is_whole_is_accepted_without_its_newline() -> None:
    connection = opened()
    assert feed(connection, DONE.rstrip()) == []
    assert answers(connection.receive_eof()) == {"r1": Success(None, "s")}


@pytest.mark.parametrize("stdout", ["strict", "tolerant"])
def test_a_last_line_that_is_cut_is_neither_success_nor_lost(stdout: str) -> None:
    whole = DONE.rstrip()
    for length in range(1, len(whole)):
        connection = opened(stdout=stdout)
        feed(connection, whole[:length])
        (item,) = connection.receive_eof()
        assert isinstance(item, Violated)
        assert item.fault.reason is Reason.TRUNCATED_LINE
        assert left(connection) == ["r1"]


def test_an_abandoned_invocation_is_not_heard_of_again() -> None:
    connection = opened()
    assert give_up(connection, "r1")
    assert feed(connection, DONE) == []
    assert not connection.receive_eof()
    assert left(connection) == []


spoken_lines = st.lists(
    st.sampled_from(
        [
            DONE,
            b"\n",
            b"\r\n",
            event("log", level="info", message="\u00fc"),
            event("asset", **ASSET),
            event("error", errorCode="E", errorMessage="m"),
            line(version="0", type="log", level="info", message="x" * 60),
            *BAD.values(),
        ]
    ),
    max_size=6,
)


@given(spoken_lines, cuts, st.integers(0, 30), st.sampled_from(["strict", "tolerant"]))
def test_the_same_bytes_under_every_cut_mean_the_same(
    spoken: list[bytes], lengths: Cuts, missing: int, stdout: str
) -> None:
    stream = b"".join(spoken)
    stream = stream[: len(stream) - missing]
    whole, cut = opened(stdout=stdout), opened(stdout=stdout)
    expected = [*feed(whole, stream), *whole.receive_eof()]
    assert [*feed(cut, stream, lengths), *cut.receive_eof()] == expected
    assert left(cut) == left(whole)
    assert sum(isinstance(item, Answered | Violated) for item in expected) <= 1


@given(st.binary(max_size=60), cuts, st.sampled_from(["strict", "tolerant"]))
def test_no_bytes_at_all_raise_anything(data: bytes, lengths: Cuts, stdout: str) -> None:
    connection = opened(stdout=stdout)
    feed(connection, data, lengths)
    connection.receive_eof()
    left(connection)


def test_json_is_written_compactly_and_on_one_line() -> None:
    connection = narratoria(descriptor())
    connection.ask(invoke("r1", "say", text="a\nb\u2028"))
    assert connection.outgoing.take().count(b"\n") == 1
