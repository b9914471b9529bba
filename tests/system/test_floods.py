"""Whatever a module prints, the daemon's memory for it is bounded, and the others go on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from supervisor.runtime.files.module_log import BURST_BYTES, RATE_BYTES_S
from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon, shared
from tests.system.descriptors import misbehaving, narratoria, per_invocation

EVENTS = 200_000
MEGABYTE = 1 << 20
PEAK_BYTES = 150 * MEGABYTE
"""What the daemon may have had at the most, its own code included."""


ROW_BYTES = 100
"""The length of a line that `misbehave` says on stderr."""
HEAD_BYTES = len("2026-11-24T12:00:00.000Z m#1 stderr ")
"""What stands before each in the log, at the least."""


def left_out(daemon: Daemon, module: str) -> int:
    """Return how many lines of a module are not in its log."""
    number: int = daemon.status(module)["counters"]["left_out_log_lines"]
    return number


def least_left_out(size_bytes: int, row_bytes: int, since: float) -> float:
    """Return how many of these rows the log can't have had room for; the longer, the fewer."""
    room_bytes = BURST_BYTES + (time.monotonic() - since) * RATE_BYTES_S
    # Some rows are shorter, and some are cut in two by the pipe.
    return 0.9 * (size_bytes // row_bytes) - room_bytes / (HEAD_BYTES + row_bytes)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One for all: its peak holds for the whole series."""
    documents = [
        misbehaving("steady"),
        misbehaving("small", limits={"line_bytes": MEGABYTE}),
        per_invocation("once"),
        narratoria("tool"),
        misbehaving("witness"),
    ]
    with shared(*documents) as running:
        yield running


@pytest.mark.fault(9)
@pytest.mark.parametrize("module", ["once", "tool"])
def test_of_a_line_of_256_megabytes_nothing_is_held(daemon: Daemon, module: str) -> None:
    answer = daemon.invoke(module, fault="long_line+done", bytes=256 * MEGABYTE)
    assert answer.verdict == "internal/line_too_long"
    assert daemon.usable(module).ok
    assert daemon.invoke("witness").ok
    assert daemon.peak_bytes() < PEAK_BYTES


@pytest.mark.fault(9)
def test_of_a_line_of_a_gigabyte_nothing_is_held_and_the_process_stays(daemon: Daemon) -> None:
    pid = daemon.pid("steady")
    answer = daemon.invoke("steady", fault="long_line+done", bytes=1024 * MEGABYTE)
    assert answer.verdict == "internal/line_too_long"
    assert daemon.invoke("steady", word="next").result == {"word": "next"}
    assert daemon.pid("steady") == pid
    assert daemon.invoke("witness").ok
    assert daemon.peak_bytes() < PEAK_BYTES


@pytest.mark.fault(9)
def test_a_line_that_is_too_long_leaves_the_stream_in_step(daemon: Daemon) -> None:
    pid = daemon.pid("small")
    frame = len(b'{"requestId":""}')
    for excess, verdict in ((-1, "ok"), (0, "ok"), (1, "internal/line_too_long")):
        # A line at the limit is a reply to no open request; it is dropped, and the answer follows.
        answer = daemon.invoke("small", fault="long_line+done", bytes=MEGABYTE - frame + excess)
        assert answer.verdict == verdict, excess
        assert daemon.invoke("small", word="next").result == {"word": "next"}
    assert daemon.pid("small") == pid


@pytest.mark.fault(3)
@pytest.mark.parametrize("module", ["steady", "once", "tool"])
def test_ten_megabytes_on_stderr_block_nothing_and_the_tail_is_kept(
    daemon: Daemon, module: str
) -> None:
    before, began_at = left_out(daemon, module), time.monotonic()
    answer = daemon.invoke(module, fault="stderr+exit", bytes=10 * MEGABYTE, code=3)
    assert answer.details["exit_code"] == 3
    assert answer.details["stderr_tail"][-1] == "the last words"
    assert len(answer.details["stderr_tail"]) > 1
    counted = left_out(daemon, module) - before
    assert counted >= least_left_out(10 * MEGABYTE, ROW_BYTES, began_at)
    assert daemon.usable(module).ok
    assert daemon.peak_bytes() < PEAK_BYTES


@pytest.mark.parametrize("module", ["steady", "tool"])
def test_millions_of_empty_lines_on_stderr_are_counted_and_cost_little(
    daemon: Daemon, module: str
) -> None:
    before, began_at = left_out(daemon, module), time.monotonic()
    answer = daemon.invoke(module, fault="stderr_newlines+stderr+exit", bytes=4 * MEGABYTE, code=3)
    assert answer.details["exit_code"] == 3
    assert answer.details["stderr_tail"][-1] == "the last words"
    counted = left_out(daemon, module) - before
    assert counted >= least_left_out(4 * MEGABYTE, 1, began_at)
    assert daemon.usable(module).ok
    assert daemon.invoke("witness").ok
    assert daemon.peak_bytes() < PEAK_BYTES


@pytest.mark.fault(3)
@pytest.mark.parametrize("speaks", [[], ["ids=no"]])
def test_ten_megabytes_on_stderr_before_the_first_line_delay_no_start(
    start_daemon: StartDaemon, speaks: list[str]
) -> None:
    began_at = time.monotonic()
    daemon = start_daemon(misbehaving("loud", "start=stderr", f"bytes={10 * MEGABYTE}", *speaks))
    assert daemon.invoke("loud", word="hello").result == {"word": "hello"}
    assert daemon.status("loud")["restarts"] == 0
    answer = daemon.invoke("loud", fault="exit")  # by now all that the first process said is read
    assert answer.details["stderr_tail"][-1] == "the last words"
    assert left_out(daemon, "loud") >= least_left_out(10 * MEGABYTE, ROW_BYTES, began_at)


@pytest.mark.fault(19)
def test_all_events_arrive_at_a_reader_that_keeps_up(daemon: Daemon) -> None:
    with daemon.connect() as client:
        client.send_invoke("steady", fault="flood+done", events=EVENTS)
        events, left = 0, b""

        def done() -> bool:
            nonlocal events, left
            data = left + client.socket.recv(MEGABYTE)
            whole, _, left = data.rpartition(b"\n")
            events += whole.count(b'"message": "one of many"')
            return b'"type":"done"' in whole

        until(done, "the answer")
    assert events == EVENTS
    assert daemon.peak_bytes() < PEAK_BYTES


def test_a_flood_that_nobody_asked_for_is_dropped(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(
        misbehaving("chatty", "ready=flood", f"events={EVENTS // 4}", "ids=no"),
        misbehaving("witness"),
    )
    assert daemon.invoke("witness").ok
    assert daemon.invoke("chatty", word="hello").result == {"word": "hello"}
    assert daemon.peak_bytes() < PEAK_BYTES
