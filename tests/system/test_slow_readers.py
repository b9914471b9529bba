"""A client that reads late gets everything; nobody else waits for it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.runtime.supervision.call import OVERRUN_BYTES
from tests.system.client import Client
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import PATIENT, descriptor, misbehaving, per_invocation

EVENTS = 100_000
MILLION = 1_000_000
FLOOD_S = 300.0
"""For a million of them to be read and dropped, on a busy machine."""
PEAK_BYTES = 150 << 20

ANSWER_BYTES, ANSWERS = 4 << 20, 10
"""In all more than a party may have held."""

READ_LATE = {"count": 800, "size": 500}
"""A stream that is as long as others, and all of which may wait: its reader is not a slow one."""

STREAMER = [sys.executable, "-I", "-S", str(Path(__file__).with_name("streamer.py"))]


def streaming(name: str, *features: str) -> dict[str, Any]:
    """Return a module that serves several streams at once."""
    supervision = {"concurrency": 64, "timeouts": PATIENT}
    return descriptor(name, [*STREAMER, *features], supervision=supervision)


def slow_stream(daemon: Daemon, module: str, **args: Any) -> Client:
    """Begin a stream, and read no more than the beginning of it."""
    slow = daemon.connect()
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.send_invoke(module, "stream", **args)
    assert next(slow.lines())["type"] == "log"
    return slow


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


@pytest.mark.bound(2 * FLOOD_S)
@pytest.mark.fault(19)
def test_a_million_events_nobody_reads_are_cancelled_on_the_same_connection(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("flooder"), per_invocation("once"), misbehaving("witness"))
    for module, events in (("flooder", MILLION), ("once", EVENTS)):
        with daemon.connect() as slow:
            flood = slow.send_invoke(module, fault="flood+done", events=events)
            first = next(slow.lines())
            assert (first["type"], first["requestId"]) == ("log", flood)
            for n in range(200):  # until nothing goes into the socket any more
                assert daemon.invoke("witness", n=n).result == {"n": n}
            slow.cancel(flood)
            # It is served only when the flood is over, which its client knows nothing of yet.
            behind = daemon.client.send_invoke(module, timeout_s=FLOOD_S, word="next")
            assert daemon.client.answer(behind, FLOOD_S).result == {"word": "next"}
            assert daemon.peak_bytes() < PEAK_BYTES
            done = next(line for line in slow.lines() if line["type"] == "done")
            assert done["requestId"] == flood
            assert (done["error"]["code"], done["error"]["details"]["reason"]) == (
                "cancelled",
                "client",
            )


@pytest.mark.fault(37)
def test_a_stream_that_is_not_read_delays_no_other_call_and_ends_alone(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(streaming("shared"))
    with slow_stream(daemon, "shared") as slow, daemon.connect() as other:
        pid = daemon.pid("shared")
        stream = other.send_invoke("shared", "stream", **READ_LATE)
        for n in range(20):
            assert daemon.invoke("shared", "echo", n=n).result == {"n": n}
        assert other.answer(stream).result == {"events": READ_LATE["count"], "pauses": 0}
        lines = list(read_all(slow))
        assert len(lines) * 21_000 > OVERRUN_BYTES  # what was kept is not lost
        done = lines[-1]
        assert (done["error"]["code"], done["error"]["details"]["reason"]) == (
            "unreachable",
            "slow_reader",
        )
    assert daemon.pid("shared") == pid
    assert daemon.peak_bytes() < PEAK_BYTES


@pytest.mark.fault(37)
def test_a_module_that_can_pause_a_stream_loses_nothing_of_it(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(streaming("shared", "flow"))
    with slow_stream(daemon, "shared", count=200) as slow, daemon.connect() as other:
        stream = other.send_invoke("shared", "stream", **READ_LATE)
        assert daemon.invoke("shared", "echo", n=1).result == {"n": 1}
        assert other.answer(stream).result == {"events": READ_LATE["count"], "pauses": 0}
        *events, done = read_all(slow)
        assert [one["message"].split()[0] for one in events] == [str(n) for n in range(2, 201)]
        assert done["result"]["events"] == 200
        assert done["result"]["pauses"] > 0
    assert daemon.peak_bytes() < PEAK_BYTES


def ask_together(slow: Client, other: Client, module: str) -> list[str]:
    """Ask for large answers, none of which is given before all are asked for; returns their ids.

    Each answer after this one comes behind them.
    """
    together = ANSWERS + 1
    asked = [
        slow.send_invoke(module, "echo", bytes=ANSWER_BYTES, together=together)
        for _ in range(ANSWERS)
    ]
    assert other.invoke(module, "echo", together=together).ok
    return asked


def read_all(client: Client) -> Iterator[dict[str, Any]]:
    """Read the lines that are left of one request."""
    for line in client.lines("the end of a stream"):
        yield line
        if line["type"] == "done":
            return


@pytest.mark.fault(30)
def test_answers_that_are_not_read_are_bounded_and_each_request_has_one(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(streaming("big"), misbehaving("witness"))
    with daemon.connect() as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked = ask_together(slow, daemon.client, "big")
        for n in range(20):
            assert daemon.invoke("witness", n=n).result == {"n": n}
            assert daemon.invoke("big", "echo", n=n).result == {"n": n}
        held = daemon.op("status")["daemon"]["held_bytes"]
        assert 0 < held["total"] <= held["party_limit"] + ANSWER_BYTES
        verdicts = [slow.answer(one).verdict for one in asked]
        assert set(verdicts) == {"ok", "unreachable/slow_reader"}
        assert verdicts.count("ok") * ANSWER_BYTES <= held["party_limit"] < ANSWERS * ANSWER_BYTES
    assert daemon.peak_bytes() < PEAK_BYTES
