"""A client that reads late gets everything; nobody else waits for it."""

from __future__ import annotations

import socket

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving, per_invocation

EVENTS = 200_000
MILLION = 1_000_000
PEAK_BYTES = 150 << 20


@pytest.mark.fault(19)
def test_a_reader_that_pauses_loses_no_event_and_not_the_answer(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("flooder"), misbehaving("witness"))
    with daemon.connect() as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send_invoke("flooder", fault="flood+done", events=EVENTS, word="end")
        lines = slow.lines()
        assert next(lines)["message"] == "one of many"
        for n in range(200):  # nobody reads meanwhile
            assert daemon.invoke("witness", n=n).result == {"n": n}
        assert daemon.status("flooder")["in_flight"] == 1
        events = 1
        for line in lines:
            if line["type"] == "done":
                assert line["result"]["word"] == "end"
                break
            events += 1
    assert events == EVENTS
    assert daemon.peak_bytes() < PEAK_BYTES
    assert daemon.usable("flooder").ok


@pytest.mark.fault(19)
def test_an_error_at_the_end_of_a_flood_reaches_a_reader_that_paused(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("flooder"), misbehaving("witness"))
    with daemon.connect() as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send_invoke("flooder", fault="flood+stderr+exit", events=EVENTS, code=3)
        lines = slow.lines()
        assert next(lines)["message"] == "one of many"
        assert daemon.invoke("witness").ok
        done = next(line for line in lines if line["type"] == "done")
        assert done["error"]["details"]["reason"] == "exited"
        assert done["error"]["details"]["exit_code"] == 3


@pytest.mark.fault(19)
def test_a_million_events_nobody_reads_are_cancelled_on_the_same_connection(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("flooder"), per_invocation("once"), misbehaving("witness"))
    for module in ("flooder", "once"):
        with daemon.connect() as slow:
            flood = slow.send_invoke(module, fault="flood+done", events=MILLION)
            first = next(slow.lines())
            assert (first["type"], first["requestId"]) == ("log", flood)
            for n in range(200):  # until nothing goes into the socket any more
                assert daemon.invoke("witness", n=n).result == {"n": n}
            slow.cancel(flood)
            # It is served only when the flood is over, which its client knows nothing of yet.
            assert daemon.invoke(module, word="next").result == {"word": "next"}
            assert daemon.peak_bytes() < PEAK_BYTES
            done = next(line for line in slow.lines() if line["type"] == "done")
            assert done["requestId"] == flood
            assert (done["error"]["code"], done["error"]["details"]["reason"]) == (
                "cancelled",
                "client",
            )
