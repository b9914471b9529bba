"""The gateway as a client of a daemon that comes and goes, and its logins there."""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from supervisor.edge.http.websocket import OPEN_REQUESTS
from tests.bounds import WAIT_S, until
from tests.cli.fake_daemon import not_ok, ok
from tests.edge.gateway import Frame, Gateway, gateway

HEALTH = "/api/v1/health"
INVOKE = "/api/v1/modules/m/invoke"


@pytest.fixture(scope="module")
def alone() -> Iterator[Gateway]:
    """A gateway; each test has daemons of its own."""
    with gateway() as started:
        yield started


def test_without_a_daemon_requests_are_refused_for_now_and_the_page_is_served(
    alone: Gateway,
) -> None:
    with alone.client() as client:
        away = client.ask("GET", HEALTH)
        assert (away.status, away.headers["retry-after"]) == (503, "1")
        assert away.json["error"].startswith("the daemon is away")
        assert client.ask("GET", "/", token=None).status == 200
        assert client.ask("GET", HEALTH, token=None).status == 401


def test_a_request_that_a_daemon_had_when_it_went_may_have_been_served(alone: Gateway) -> None:
    with alone.client() as client:
        with alone.daemon() as daemon:
            daemon.answers = lambda _: None
            lost = client.ask("POST", INVOKE, {"op": "pay"})
            assert (lost.status, lost.json["code"]) == (502, "CONNECTION_FAILED")
            assert "may have done" in lost.json["error"]
        away = client.ask("GET", HEALTH)
        assert away.status == 503
        with alone.daemon():
            assert client.ask("GET", HEALTH).status == 200


def test_a_daemon_that_goes_at_the_login_was_asked_nothing_yet(alone: Gateway) -> None:
    long = {"op": "pay", "args": {"x": "y" * (1 << 16)}}
    with alone.daemon() as daemon, alone.client() as client:
        assert client.ask("GET", HEALTH).status == 200
        daemon.opens = lambda _: daemon.leave()  # that of the connection of its own
        away = client.ask("POST", INVOKE, long)
        assert (away.status, away.headers.get("retry-after")) == (503, "1")


def test_an_mcp_session_waits_for_room_for_its_login(alone: Gateway) -> None:
    full = not_ok("unreachable", "no", origin="host", reason="queue_full")
    who = {"name": "token:ada", "face": "http", "scopes": ["read"], "modules": ["*"]}
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}

    def opens(_: Frame) -> Frame | None:
        return full if len(daemon.frames("login.open")) == 2 else None

    with alone.daemon() as daemon, alone.client() as client:
        daemon.opens = opens
        daemon.answers = lambda frame: (
            ok({**who, "view": {}}) if frame["operation"] == "narrow" else {}
        )
        client.send("POST", "/mcp", body, token="waits", Accept="application/json")
        until(lambda: len(daemon.frames("login.open")) > 2, "another try")
        until(lambda: daemon.frames("narrow"), "the session")


HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def test_a_websocket_is_told_that_the_daemon_went_while_a_message_was_counted(
    alone: Gateway,
) -> None:
    with alone.daemon() as daemon, alone.client() as client:
        client.send("GET", "/ws", **HANDSHAKE)
        with client.stream() as accepted:
            assert accepted.status == 101
            daemon.answers = lambda _: None
            client.write(masked({"type": "request", "id": "1", "payload": {"action": "ping"}}))
            reason = struct.pack("!H", 1001) + b"the daemon is gone"
            client.read_to(bytes([0x88, len(reason)]) + reason)


def test_a_websocket_has_a_bound_on_cancels_that_wait(alone: Gateway) -> None:
    hang = {"action": "invoke", "module": "m", "op": "hang"}
    cancel = {"action": "cancel", "request_id": "1"}
    with alone.daemon() as daemon, alone.client() as client:
        daemon.answers = lambda frame: {} if frame["operation"] == "invoke" else ok({})
        client.send("GET", "/ws", **HANDSHAKE)
        with client.stream() as accepted:
            assert accepted.status == 101
            client.write(masked({"type": "request", "id": "1", "payload": hang}))
            for _ in range(OPEN_REQUESTS + 1):
                client.write(masked({"type": "request", "payload": cancel}))
            client.read_to(f"{OPEN_REQUESTS} cancels are open on this connection".encode())
        assert len(daemon.frames("cancel")) <= OPEN_REQUESTS


def masked(message: Frame) -> bytes:
    """Return a text frame of a client, under a mask of zeros (RFC 6455 5.2)."""
    data = json.dumps(message).encode()
    assert len(data) < 126
    return bytes([0x81, 0x80 | len(data), 0, 0, 0, 0]) + data


def test_no_handle_is_used_over_another_connection_than_its_own(alone: Gateway) -> None:
    long = {"op": "echo", "args": {"x": "y" * (1 << 16)}}
    with alone.client() as client:
        # Each daemon has handles of the same names, in another order.
        for first in (100, 99, 98):
            with alone.daemon(first) as daemon:
                assert client.ask("GET", HEALTH).status == 200
                assert client.ask("POST", INVOKE, long).status == 200
                assert client.ask("GET", HEALTH).status == 200
                opened: dict[str, int] = {}
                numbers = [one.connection for one in daemon.frames("login.open")]
                for one in daemon.asked:
                    handle = one.frame.get("as")
                    if handle is not None:
                        assert opened.setdefault(handle, one.connection) == one.connection
                assert sorted(opened.values()) == sorted(numbers)
                assert len(set(numbers)) == 2


def test_requests_that_come_together_have_one_login(alone: Gateway) -> None:
    with alone.daemon() as daemon:
        clients = [alone.client() for _ in range(20)]
        entered = [one.__enter__() for one in clients]
        for one in entered:
            one.send("GET", HEALTH, token="together")
        assert {one.reply().status for one in entered} == {200}
        for context in clients:
            context.__exit__(None, None, None)
        tokens = [one.frame["input"]["token"] for one in daemon.frames("login.open")]
        assert tokens.count("together") == 1


def test_logins_that_nobody_uses_are_closed_but_for_the_last_ones(alone: Gateway) -> None:
    with alone.daemon() as daemon:
        for number in range(100):
            with alone.client() as client:
                assert client.ask("GET", HEALTH, token=f"t{number}").status == 200
        closed = until(lambda: daemon.frames("login.close"), "a login being closed")
        first = daemon.frames("login.open")[0].frame["input"]["token"]
        assert first == "t0"
        assert len(closed) < 50
        with alone.client() as client:
            for token in ("t99", "t0"):
                assert client.ask("GET", HEALTH, token=token).status == 200
        again = [one.frame["input"]["token"] for one in daemon.frames("login.open")]
        assert (again.count("t99"), again.count("t0")) == (1, 2)


def test_the_login_of_a_client_that_hung_up_while_it_was_opened_is_closed(alone: Gateway) -> None:
    gone = threading.Event()

    def opens(_: Frame) -> None:
        assert gone.wait(WAIT_S)

    with alone.daemon() as daemon, alone.client() as other:
        with alone.client() as client:
            daemon.opens = opens
            client.send("GET", HEALTH, token="gone")
            until(lambda: daemon.frames("login.open"), "the login")
        # The gateway has read the end of that connection before it answers this one.
        assert other.ask("GET", "/", token=None).status == 200
        gone.set()
        for number in range(70):
            with alone.client() as client:
                assert client.ask("GET", HEALTH, token=f"t{number}").status == 200
        assert other.ask("GET", HEALTH, token="gone").status == 200
        opened = [one.frame["input"]["token"] for one in daemon.frames("login.open")]
        assert opened.count("gone") == 2


@pytest.mark.parametrize("why", ["revoked", "expired"])
def test_clients_whose_token_is_over_are_parted_from(alone: Gateway, why: str) -> None:
    with alone.daemon() as daemon, alone.client() as idle, alone.client() as other:
        assert idle.ask("GET", HEALTH, token="over").status == 200
        assert other.ask("GET", HEALTH, token="good").status == 200
        of_token = {
            one.frame["input"]["token"]: index
            for index, one in enumerate(daemon.frames("login.open"))
        }
        handles = [one.frame["as"] for one in daemon.frames("health")]
        daemon.end_login(handles[of_token["over"]], why)
        assert idle.is_closed()
        assert other.ask("GET", HEALTH, token="good").status == 200


def test_an_answer_that_tells_the_end_of_a_token_first_parts_from_all_its_clients(
    alone: Gateway,
) -> None:
    over = not_ok("cancelled", "no", origin="host", reason="login_over")
    with alone.daemon() as daemon, alone.client() as idle, alone.client() as busy:
        assert idle.ask("GET", HEALTH, token="over").status == 200
        daemon.answers = lambda _: over
        assert busy.ask("POST", INVOKE, {"op": "x"}, token="over").status == 499
        daemon.end_login(daemon.frames("invoke")[0].frame["as"], "revoked")
        assert idle.is_closed()


def test_a_login_that_is_closed_is_opened_anew(alone: Gateway) -> None:
    with alone.daemon() as daemon, alone.client() as client:
        assert client.ask("GET", HEALTH).status == 200
        (first,) = daemon.frames("health")
        daemon.end_login(first.frame["as"], "closed")
        until(lambda: client.ask("GET", HEALTH).status == 200 and _handles(daemon) > 1, "another")


def _handles(daemon: Any) -> int:
    return len({one.frame["as"] for one in daemon.frames("health")})


@pytest.mark.parametrize("ahead", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_client_that_hangs_up_has_its_request_cancelled(alone: Gateway, ahead: bytes) -> None:
    def hang(frame: Frame) -> Frame:
        return {} if frame["operation"] == "invoke" else ok({"status": "ok"})

    with alone.daemon() as daemon:
        daemon.answers = hang
        with alone.client() as client:
            client.send("POST", INVOKE, {"op": "hang"})
            until(lambda: daemon.frames("invoke"), "the request")
            client.write(ahead)
        (asked,) = daemon.frames("invoke")
        cancelled = until(lambda: daemon.frames("cancel"), "the cancel")
        assert cancelled[0].frame["requestId"] == asked.frame["requestId"]


def test_what_the_end_of_the_gateway_cuts_off_is_no_fault_of_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with gateway() as ended, ended.daemon() as daemon, ended.client() as client:
        daemon.answers = lambda _: {}
        client.send("POST", INVOKE, {"op": "hang"})
        until(lambda: daemon.frames("invoke"), "the request")
        os.kill(ended.process.pid, signal.SIGTERM)
        assert client.is_closed()
    assert "Traceback" not in capfd.readouterr().err


def test_a_login_that_is_narrowed_is_nobody_elses(alone: Gateway) -> None:
    with alone.daemon() as daemon, alone.client() as client:
        assert client.ask("GET", HEALTH).status == 200
        body = {"op": "narrow", "args": {"scopes": []}}
        assert client.ask("POST", "/api/v1/modules/supervisor/invoke", body).status == 200
        (shared,), (narrowed,) = daemon.frames("health"), daemon.frames("invoke")
        assert shared.connection != narrowed.connection


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        ("wrong_login", 401, "UNAUTHORIZED"),
        # As many wrong ones as there are: a client is told the same of its own.
        ("rate_limited", 401, "UNAUTHORIZED"),
        ("queue_full", 429, "RATE_LIMITED"),
    ],
)
def test_a_login_that_is_refused(alone: Gateway, reason: str, status: int, code: str) -> None:
    refused = not_ok("forbidden", "no", origin="host", reason=reason)
    with alone.daemon() as daemon, alone.client() as client:
        daemon.opens = lambda _: refused
        reply = client.ask("GET", HEALTH, token="wrong")
        assert (reply.status, reply.json["code"]) == (status, code)
        daemon.opens = lambda _: None
        assert client.ask("GET", HEALTH, token="wrong").status == 200


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [("rate_limited", 429, "RATE_LIMITED"), ("login_over", 499, "CANCELLED")],
)
def test_what_ends_a_request_before_its_answer_is_told_as_a_route_tells_it(
    alone: Gateway, reason: str, status: int, code: str
) -> None:
    failed = not_ok("unreachable", "no", origin="host", reason=reason, retry_in_s=2.5)
    with alone.daemon() as daemon, alone.client() as client:
        daemon.answers = lambda frame: failed if frame["operation"] == "invoke" else ok()
        reply = client.ask("POST", INVOKE, {"op": "x"})
        assert (reply.status, reply.json["code"]) == (status, code)
        assert reply.headers.get("retry-after") == ("3" if status == 429 else None)


def test_a_login_of_whose_end_nobody_told_is_not_used_again(alone: Gateway) -> None:
    over = not_ok("forbidden", "no", origin="host", reason="login_over")
    with alone.daemon() as daemon, alone.client() as client:
        daemon.answers = lambda _: over
        assert client.ask("GET", HEALTH).status == 499
        daemon.answers = lambda _: ok({"status": "ok"})
        assert client.ask("GET", HEALTH).status == 200
        first, second = daemon.frames("health")
        assert first.frame["as"] != second.frame["as"]


def test_a_websocket_waits_for_the_daemon_with_a_bound(alone: Gateway) -> None:
    silent = threading.Event()

    def answers(_: Frame) -> Frame:
        silent.set()
        return {}

    with alone.daemon() as daemon, alone.client() as client:
        assert client.ask("GET", HEALTH).status == 200
        daemon.answers = answers
        client.send("GET", "/ws?session_id=s", **HANDSHAKE)
        assert silent.wait(WAIT_S)
        reply = client.reply()
        assert (reply.status, reply.json["code"]) == (503, "CONNECTION_FAILED")


def test_a_login_that_took_too_long_is_the_next_requests_or_is_closed(alone: Gateway) -> None:
    late = threading.Event()

    def opens(frame: Frame) -> None:
        if frame["input"].get("token") == "late" or "uid" in frame["input"]:
            assert late.wait(WAIT_S)

    with alone.daemon() as daemon, alone.client() as client, alone.client(alone.unix) as user:
        daemon.opens = opens
        client.send("GET", HEALTH, token="late")
        user.send("GET", HEALTH, token=None)
        assert (client.reply().status, user.reply().status) == (503, 503)
        late.set()
        assert client.ask("GET", HEALTH, token="late").status == 200
        opened = [one.frame["input"].get("token") for one in daemon.frames("login.open")]
        assert opened.count("late") == 1
        # Nobody else can use a login of a connection to the Unix socket.
        until(lambda: daemon.frames("login.close"), "the end of the other login")


def test_an_mcp_stream_ends_with_its_login_also_after_another_daemon(alone: Gateway) -> None:
    who = {"name": "token:m", "face": "http", "scopes": ["read"], "modules": ["*"]}
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}

    narrowed: list[str] = []

    def answers(daemon: str, frame: Frame) -> Frame:
        if frame["operation"] == "narrow":
            narrowed.append(daemon)
            return ok({**who, "view": {}})
        return ok({"status": "ok"}) if frame["operation"] == "health" else {}

    with alone.client() as client, alone.client() as listener:
        with alone.daemon(answers=partial(answers, "first")):
            begun = client.ask("POST", "/mcp", begin, token="m", Accept="application/json")
            session = begun.headers["mcp-session-id"]
            accept = {"token": "m", "Mcp_Session_Id": session, "Accept": "text/event-stream"}
            listener.send("GET", "/mcp", **accept)
            stream = listener.stream()
            assert stream.status == 200
        with alone.daemon(500, answers=partial(answers, "second")) as second:
            until(lambda: "second" in narrowed, "the session being taken up")
            for number in range(501, 600):  # whichever it has
                second.end_login(f"h{number}", "revoked")
            while stream.readline():
                pass


def test_a_fault_of_the_connection_that_all_share_ends_the_gateway_with_words(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with gateway() as faulty, faulty.daemon() as daemon:
        faulty.exit_code = 1
        daemon.tell_follower(words="no login")
        faulty.process.wait(WAIT_S)
    assert "the connection to the daemon failed" in capfd.readouterr().err
