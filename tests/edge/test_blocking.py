"""The blocking client: with a real daemon, and with one that goes, is silent or does not read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.client import ConnectionEndedError, EndCause
from protocol.frames import encode_line
from supervisor.edge.bindings.blocking import BlockingClient, RequestTimeoutError, connect
from tests.bounds import until
from tests.cli.conftest import Serve, serve, socket_path
from tests.cli.fake_daemon import log, ok
from tests.faces.running import Running, started
from tests.system.descriptors import actor

__all__ = ["serve", "socket_path"]

HANG = ("m", "invoke", {"op": "hang"})


@pytest.fixture(scope="module")
def daemon() -> Iterator[Running]:
    with started(actor()) as running:
        yield running


def client_of(running: Running) -> BlockingClient:
    return BlockingClient(connect(running.daemon.socket))


def own(op: str, **args: Any) -> tuple[str, str, dict[str, Any]]:
    return "supervisor", "invoke", {"op": op, "args": args}


@contextmanager
def pair(**options: float) -> Iterator[tuple[BlockingClient, socket.socket]]:
    """Yield a client and the daemon's end of its connection."""
    ours, theirs = socket.socketpair()
    with BlockingClient(ours, **options) as client, theirs:
        yield client, theirs


# --- A daemon ----------------------------------------------------------------


def test_a_request_has_its_events_and_its_answer(daemon: Running) -> None:
    seen: list[dict[str, Any]] = []
    with client_of(daemon) as client:
        given = {"op": "events", "args": {"count": 3}}
        answer = client.request("m", "invoke", given, lambda event, _: seen.append(event), 1e9)
    assert (answer.ok, answer.result) == (True, {"count": 3})
    assert [event["message"] for event in seen] == ["0 ", "1 ", "2 "]


def test_a_refusal_is_an_answer_that_is_not_ok(daemon: Running) -> None:
    with client_of(daemon) as client:
        answer = client.request("nobody", "health", {}, timeout_s=60)
    assert not answer.ok
    assert answer.error["details"]["reason"] == "unknown_module"


def test_requests_that_are_sent_together_have_an_answer_each(daemon: Running) -> None:
    with client_of(daemon) as client:
        asked = [("m", "invoke", {"op": "echo", "args": {"n": number}}) for number in range(50)]
        answers = dict(client.together(asked))
    assert {number: answer.result for number, answer in answers.items()} == {
        number: {"n": number} for number in range(50)
    }
    assert dict(client.together([])) == {}


def test_args_and_results_larger_than_a_socket_holds_go_through(daemon: Running) -> None:
    text = "x" * (3 << 20)
    with client_of(daemon) as client:
        asked = [("m", "invoke", {"op": "echo", "args": {"text": text}})] * 3
        for _, answer in client.together(asked):
            assert answer.result == {"text": text}


def test_a_timeout_ends_the_wait_and_a_cancel_the_request(daemon: Running) -> None:
    with client_of(daemon) as client:
        request_id = client.send(*HANG)
        with pytest.raises(RequestTimeoutError):
            next(client.events(0.01))
        client.connection.cancel(request_id)
        # Its `done` is dropped: the next answer is that of the next request.
        assert client.request(*own("narrow"), timeout_s=60).ok
    until(lambda: not daemon.daemon.status("m")["in_flight"], "the end of the request")


def test_the_end_of_a_daemon_ends_the_events() -> None:
    with started() as running, client_of(running) as client:
        pid = client.request(*own("shutdown"), timeout_s=60).result["pid"]
        assert pid == running.daemon.process.pid
        assert list(client.events(60)) == []
        assert list(client.together([])) == []
        with pytest.raises(ConnectionEndedError):
            client.send(*own("status"))


def test_a_socket_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect(tmp_path / "s")


# --- A daemon that does not do what it should --------------------------------


def test_a_daemon_that_goes_leaves_its_requests_without_an_answer(
    serve: Serve, socket_path: Path
) -> None:
    serve(lambda frame: [log("at work")] if frame["tool"] == "m" else None)
    with BlockingClient(connect(socket_path)) as client:
        answers = client.together([("m", "invoke", {}), ("bye", "invoke", {})])
        with pytest.raises(ConnectionEndedError) as raised:
            next(answers)
    assert raised.value.end.written == ("c1", "c2")
    assert raised.value.was_written


def test_a_daemon_that_goes_without_having_read_has_ended() -> None:
    with pair() as (client, theirs):
        client.send("m", "invoke", {})
        theirs.close()
        assert list(client.events(60)) == []


def test_what_a_daemon_answered_before_it_went_is_read(serve: Serve, socket_path: Path) -> None:
    daemon = serve(lambda frame: [ok(frame["tool"])])
    daemon.close_after = 1
    with BlockingClient(connect(socket_path)) as client:
        answers = client.together([("a", "invoke", {}), ("b", "invoke", {})])
        assert next(answers)[1].result == "a"
        with pytest.raises(ConnectionEndedError):
            next(answers)


def test_what_is_no_daemon_is_told_by_its_cause(serve: Serve, socket_path: Path) -> None:
    serve(lambda frame: [b"220 mail ready\r\n"])
    with BlockingClient(connect(socket_path)) as client:
        with pytest.raises(ConnectionEndedError) as raised:
            client.request("m", "invoke", {})
        with pytest.raises(ConnectionEndedError):
            list(client.events(60))
    assert raised.value.end.cause is EndCause.NOT_A_DAEMON
    assert raised.value.end.excerpt == b"220 mail ready"


def test_a_refusal_without_an_id_answers_the_first_request(serve: Serve, socket_path: Path) -> None:
    full = {"version": "0", "type": "done", "ok": False, "error": {"message": "no room"}}
    serve(lambda frame: [encode_line(full)])
    with BlockingClient(connect(socket_path)) as client:
        answer = client.request("m", "invoke", {})
    assert (answer.ok, answer.error) == (False, {"message": "no room"})


def test_what_a_daemon_said_before_it_hung_up_is_read_though_nothing_can_be_written() -> None:
    with pair() as (client, theirs):
        theirs.sendall(encode_line({"type": "done", "ok": False, "error": {"message": "full"}}))
        theirs.close()
        assert client.request("m", "invoke", {}).error == {"message": "full"}
        with pytest.raises(ConnectionEndedError) as raised:
            client.request("m", "invoke", {})
    assert not raised.value.was_written


def test_a_daemon_that_is_silent_is_waited_for_no_longer_than_the_caller_says() -> None:
    with pair() as (client, _), pytest.raises(RequestTimeoutError):
        client.request("m", "invoke", {}, timeout_s=0.01)


def test_a_daemon_that_does_not_read_is_given_up_and_says_what_it_never_got() -> None:
    with pair(write_s=0.01) as (client, _):
        big = {"text": "x" * (1 << 20)}
        for _ in range(2):
            client.send("m", "invoke", big)
        with pytest.raises(ConnectionEndedError) as raised:
            next(client.events(60))
    end = raised.value.end
    assert (end.cause, end.written, end.unwritten) == (EndCause.UNREAD, ("c1",), ("c2",))


def test_a_daemon_that_writes_before_it_reads_is_no_deadlock() -> None:
    events = [encode_line({**log("x" * 1000), "requestId": "c1"})] * 4000
    size = 4 << 20

    def answer(theirs: socket.socket) -> None:
        theirs.sendall(b"".join(events))
        with theirs.makefile("rb") as lines:
            assert len(lines.readline()) > size
        theirs.sendall(encode_line({**ok("read"), "requestId": "c1"}))

    seen: list[bytes] = []
    with pair() as (client, theirs):
        thread = threading.Thread(target=answer, args=(theirs,))
        thread.start()
        assert (
            client.request(
                "m", "invoke", {"text": "x" * size}, lambda _, line: seen.append(line), 60
            ).result
            == "read"
        )
        thread.join()
    assert len(seen) == len(events)


def test_it_imports_nothing_that_a_small_program_would_not_have() -> None:
    program = "import sys, supervisor.edge.bindings.blocking; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = {"asyncio", "jsonschema", "logging", "pathlib", "subprocess", "threading", "trio"}
    assert not heavy & set(ended.stdout.split())


def test_a_detached_socket_blocks_and_is_the_callers() -> None:
    with pair() as (client, theirs), client.detach() as connection:
        theirs.sendall(b"hello")
        assert connection.gettimeout() is None
        assert os.get_blocking(connection.fileno())
        assert connection.recv(100) == b"hello"
