"""The journal of a real daemon: complete, in order, over its deaths, full disks and damage."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests import journals
from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving
from tests.system.liveness import BOUND_S, Liveness
from tests.system.test_hooks import hook

HELD = {"fault": "gate"}
RESTART = "daemon_restart"


@pytest.fixture
def killable(folder: Path) -> Iterator[Any]:
    """Start a daemon that the test kills by itself."""
    with ExitStack() as stack:

        def start(*documents: dict[str, Any]) -> Daemon:
            daemon = Daemon(folder, *documents)
            stack.callback(daemon.process.wait)
            stack.callback(daemon.process.kill)
            stack.callback(daemon.client.close)
            return daemon

        yield start


def kill(daemon: Daemon) -> None:
    daemon.process.kill()
    daemon.process.wait(BOUND_S)
    daemon.client.close()
    assert not daemon.kill_left()


def entries(daemon: Daemon, **args: Any) -> list[dict[str, Any]]:
    """Return what `events` says, but for its heading."""
    answer = daemon.client.op("events", **{"since": 0, **args})
    assert answer.ok, answer
    return [one["fields"] for one in answer.events if "seq" in one.get("fields", {})]


def until_seen(daemon: Daemon, event: str, **wanted: Any) -> dict[str, Any]:
    """Follow the journal until it has an entry, and return that."""
    with daemon.connect() as follower:
        args = {"since": 0, "follow": True, "event": event}
        follower.send("supervisor", "invoke", {"op": "events", "args": args})
        for line in follower.lines(f"{event} with {wanted}"):
            assert line["type"] == "log", line
            fields: dict[str, Any] = line["fields"]
            if "seq" in fields and wanted.items() <= fields.items():
                return fields
    raise AssertionError("the daemon hung up")


def is_kept(daemon: Daemon, kind: str = "in_flight") -> None:
    """Wait until the journal knows that something has begun and not ended."""
    with closing(sqlite3.connect(daemon.data_dir / journals.FILE)) as connection:
        count = "SELECT count(*) FROM documents WHERE kind = ?"
        until(lambda: connection.execute(count, (kind,)).fetchone()[0], f"a document {kind}")


def test_what_happens_in_a_daemons_life_is_written_down(start_daemon: StartDaemon) -> None:
    bad = {"name": "bad"}
    daemon = start_daemon(misbehaving("one"), bad)
    answer = daemon.invoke("one", word="hello")
    assert daemon.invoke("one", fault="not_ok").error
    assert daemon.invoke("nobody").error
    until_seen(daemon, "module:invoke", module="nobody")
    daemon.end()
    written = journals.read(daemon.data_dir / journals.FILE)
    names = [document["event"] for _, document in written]
    assert names[0] == "daemon:start"
    assert names[-1] == "daemon:stop"
    assert set(names) == {
        "daemon:start",
        "daemon:stop",
        "mount:add",
        "mount:quarantine",
        "module:state",
        "module:invoke",
    }
    well, failed, refused = (one for _, one in written if one["event"] == "module:invoke")
    assert (well["status"], well["module"], well["data"]) == ("ok", "one", {"op": "go"})
    assert well["request_id"] == answer.done["request_id"]
    assert type(well["duration_ms"]) is int
    assert (failed["status"], refused["status"]) == ("error", "error")
    assert refused["error"]["details"]["reason"] == "unknown_module"
    states = [one["data"] for _, one in written if one["event"] == "module:state"]
    assert [(one["from"], one["to"]) for one in states] == [
        ("down", "starting"),
        ("starting", "ready"),
        ("ready", "stopping"),
        ("stopping", "down"),
    ]


def test_after_kill_9_the_journal_goes_on_without_a_gap_and_what_was_in_flight_is_closed(
    killable: Any, start_daemon: StartDaemon, liveness: Liveness
) -> None:
    slow = misbehaving("slow", env={"LIVENESS": str(liveness.path)})
    daemon = killable(slow)
    assert daemon.invoke("slow", word="first").ok
    daemon.client.send_invoke("slow", **HELD)
    liveness.wait_for("gate")
    is_kept(daemon)
    kill(daemon)

    daemon = start_daemon(slow)
    closed = until_seen(daemon, "module:invoke", status="error")
    assert (closed["module"], closed["data"]) == ("slow", {"op": "go"})
    assert closed["error"]["code"] == "unreachable"
    assert closed["error"]["details"] == {"origin": "host", "reason": "daemon_restart"}
    assert closed["duration_ms"] >= 0
    starts = entries(daemon, event="daemon:start")
    assert len(starts) == 2
    assert closed["seq"] == starts[1]["seq"] - 1
    assert entries(daemon, event="daemon:stop") == []
    numbers = [one["seq"] for one in entries(daemon)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_question_that_was_open_at_kill_9_is_decided_once_by_the_next_daemon(
    killable: Any, start_daemon: StartDaemon
) -> None:
    asks = hook(answers={"*": {"action": "ask_user"}}, gate=["tool:pre"])
    daemon = killable(misbehaving("one"), asks)
    daemon.client.send_invoke("one", word="hello")
    asked = until_seen(daemon, "approval:request")
    is_kept(daemon, "open_question")
    kill(daemon)

    for _ in range(2):
        daemon = start_daemon(misbehaving("one"), asks)
        decided = until_seen(daemon, "approval:decision")
        assert decided["data"] == {"id": asked["data"]["id"], "answer": "deny", "by": RESTART}
        assert (decided["status"], decided["request_id"]) == ("denied", asked["request_id"])
        assert daemon.op("approvals")["approvals"] == []
        assert len(entries(daemon, event="approval:*")) == 2
        daemon.end()


def test_what_was_answered_before_kill_9_is_in_the_journal_a_moment_later(
    killable: Any, start_daemon: StartDaemon
) -> None:
    daemon = killable(misbehaving("one"))
    asked = [daemon.invoke("one", word="hello").done["request_id"] for _ in range(20)]
    until_seen(daemon, "module:invoke", request_id=asked[-1])
    kill(daemon)
    daemon = start_daemon(misbehaving("one"))
    assert [one["request_id"] for one in entries(daemon, event="module:invoke")] == asked


class Follower:
    """`stdiod events -f --json` as a program would run it."""

    def __init__(self, daemon: Daemon, *options: str) -> None:
        words = [sys.executable, "-m", "supervisor.cli", "--socket", str(daemon.socket), "events"]
        self.process = subprocess.Popen(
            [*words, "-f", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, event: str, **wanted: Any) -> list[dict[str, Any]]:
        """Read up to an entry, and return all that came."""
        assert self.process.stdout is not None
        came = []
        for line in self.process.stdout:
            came.append(json.loads(line))
            if came[-1]["event"] == event and wanted.items() <= came[-1].items():
                return came
        raise AssertionError(self.process.communicate())

    def waits(self) -> None:
        """Return when it has said that the daemon went away."""
        assert self.process.stderr is not None
        assert "waiting for it" in self.process.stderr.readline()

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C; returns the exit status and what it said."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=BOUND_S)
        return self.process.returncode, said


def test_who_follows_over_restarts_and_kill_9_misses_nothing_and_sees_nothing_twice(
    killable: Any, start_daemon: StartDaemon
) -> None:
    one = misbehaving("one")
    daemon = killable(one)
    follower = Follower(daemon, "--since", "2")
    seen = follower.until("module:state", data=seen_ready())
    kill(daemon)
    follower.waits()

    daemon = killable(one)
    assert daemon.invoke("one").ok
    seen += follower.until("module:invoke")
    daemon.process.terminate()
    daemon.process.wait(BOUND_S)

    daemon = start_daemon(one)
    seen += follower.until("daemon:stop")
    last = daemon.invoke("one").done["request_id"]
    seen += follower.until("module:invoke", request_id=last)
    status, said = follower.interrupt()
    assert status == 130
    assert "the daemon is back" in said
    assert [entry["seq"] for entry in seen] == list(range(3, 3 + len(seen)))


def seen_ready() -> dict[str, str]:
    cause = "answered health and describe"
    return {"from": "starting", "to": "ready", "cause": cause, "instance": "one#1"}


def test_filters_choose_by_pattern_module_session_and_number(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("one"), misbehaving("two"))
    for module in ("one", "two", "one"):
        daemon.invoke(module)
    with daemon.connect() as client:
        content = {"op": "go", "args": {}, "session_id": "s1"}
        client.answer(client.send("two", "invoke", content))
    until_seen(daemon, "module:invoke", session_id="s1")
    everything = entries(daemon)

    def chosen(**args: Any) -> list[int]:
        return [one["seq"] for one in entries(daemon, **args)]

    def expected(**wanted: Any) -> list[int]:
        return [one["seq"] for one in everything if wanted.items() <= one.items()]

    assert chosen(module="one") == expected(module="one")
    assert chosen(event="module:inv*", module="two") == expected(
        event="module:invoke", module="two"
    )
    assert len(chosen(session_id="s1")) == 1
    assert chosen(since=4) == expected()[4:]
    assert chosen(event="[!m]*n:start") == expected(event="daemon:start")
    answer = daemon.client.op("events", last=2, event="module:invoke")
    assert [one["fields"]["seq"] for one in answer.events[1:]] == expected(event="module:invoke")[
        -2:
    ]
    assert answer.events[0]["fields"]["last_seq"] == answer.result["last_seq"]
    refused = daemon.client.op("events", event="module:x*")
    assert refused.verdict == "bad_request/invalid_args"
    assert "there is no event 'module:x*'; there are session:start, " in refused.error["message"]


def test_a_number_beyond_the_end_and_another_journals_number_are_told_apart(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("one"))
    until_seen(daemon, "module:state", data=seen_ready())  # the last that is written
    answer = daemon.client.op("events", since=10**9)
    assert (answer.events[0]["level"], len(answer.events)) == ("warn", 1)
    assert "there is nothing after 1000000000 yet" in answer.events[0]["message"]
    last = answer.result["last_seq"]
    answer = daemon.client.op("events", since=10**9, journal="another")
    assert [one["fields"]["seq"] for one in answer.events[1:]] == list(range(1, last + 1))


@pytest.mark.fault(21)
def test_a_full_disk_is_shown_and_costs_nothing_once_there_is_room_again(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(misbehaving("one"))
    until_seen(daemon, "module:state", data=seen_ready())
    before = entries(daemon)
    _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1, hard))  # as a full disk
    asked = [daemon.invoke("one").done["request_id"] for _ in range(3)]
    problem = until(lambda: daemon.op("status")["daemon"]["journal"]["problem"], "a full disk")
    assert str(daemon.data_dir / journals.FILE) in problem
    assert daemon.invoke("one", word="still").result == {"word": "still"}
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    until_seen(daemon, "module:invoke", request_id=asked[-1])
    assert daemon.op("status")["daemon"]["journal"]["problem"] is None
    after = entries(daemon)
    assert after[: len(before)] == before
    assert asked == [one["request_id"] for one in after if one["event"] == "module:invoke"][:3]


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(100_000))


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1000")
        connection.execute(f"PRAGMA application_id = {0x7374646A}")


@pytest.mark.parametrize("make", [garbage, foreign, newer])
def test_a_file_that_is_no_journal_is_set_aside_with_a_warning_and_never_fatal(
    start_daemon: StartDaemon, folder: Path, make: Any
) -> None:
    path = folder / "data" / journals.FILE
    path.parent.mkdir(mode=0o700)
    make(path)
    before = path.read_bytes()
    daemon = start_daemon(misbehaving("one"))
    (aside,) = daemon.op("status")["daemon"]["journal"]["set_aside"]
    assert Path(aside["path"]).read_bytes() == before
    until(lambda: aside["path"] in daemon.log(), "a word in the log")
    assert daemon.invoke("one").ok
    until_seen(daemon, "module:invoke")


def without_wal(path: Path, earlier: bytes) -> None:
    del earlier
    path.with_name(f"{path.name}-wal").unlink()


def with_a_damaged_wal(path: Path, earlier: bytes) -> None:
    del earlier
    wal = path.with_name(f"{path.name}-wal")
    content = bytearray(wal.read_bytes())
    content[100] ^= 0xFF  # in the first frame: SQLite takes that for the end
    wal.write_bytes(content)


def a_copy(path: Path, earlier: bytes) -> None:
    without_wal(path, earlier)
    path.write_bytes(earlier)


def emptied(path: Path, earlier: bytes) -> None:
    a_copy(path, b"")


@pytest.mark.fault(43)
@pytest.mark.parametrize("lose", [without_wal, with_a_damaged_wal, a_copy, emptied])
def test_a_journal_that_lost_its_newest_entries_is_another_one_and_says_so(
    killable: Any, start_daemon: StartDaemon, lose: Any
) -> None:
    one = misbehaving("one")
    daemon = start_daemon(one)
    path = daemon.data_dir / journals.FILE
    daemon.end()
    earlier = path.read_bytes()
    daemon = killable(one)
    assert daemon.invoke("one").ok
    until_seen(daemon, "module:invoke", module="one")
    before = daemon.op("status")["daemon"]["journal"]
    assert "set_back" not in before
    kill(daemon)
    lose(path, earlier)

    daemon = start_daemon(one)
    asked = daemon.invoke("one").done["request_id"]
    until_seen(daemon, "module:invoke", request_id=asked)
    after = daemon.op("status")["daemon"]["journal"]
    assert after["id"] != before["id"]
    assert f"had entries up to {before['last_seq']}" in after["set_back"]
    assert (after["problem"], after["set_aside"]) == (None, [])
    until(lambda: after["set_back"] in daemon.log(), "a word in the log")
    # Who gives back the old journal has all there is; others have what came since.
    whole = entries(daemon, since=before["last_seq"], journal=before["id"])
    assert whole == entries(daemon, since=0)
    assert len(whole) == after["events"]
    since = entries(daemon, since=before["last_seq"])
    assert next(entry["seq"] for entry in since) == before["last_seq"] + 1
    assert "daemon:start" in [entry["event"] for entry in since]
    daemon.end()

    daemon = start_daemon(one)
    last = daemon.op("status")["daemon"]["journal"]
    assert (last["id"], "set_back" in last) == (after["id"], False)


@pytest.mark.fault(43)
def test_a_copy_of_before_a_journal_was_set_aside_is_another_one_and_says_so(
    start_daemon: StartDaemon,
) -> None:
    one = misbehaving("one")
    daemon = start_daemon(one)
    path = daemon.data_dir / journals.FILE
    daemon.end()
    earlier = path.read_bytes()
    path.write_bytes(b"no journal")
    daemon = start_daemon(one)
    assert daemon.invoke("one").ok
    daemon.end()
    newest, _ = journals.read(path)[-1]
    path.write_bytes(earlier)

    daemon = start_daemon(one)
    asked = daemon.invoke("one").done["request_id"]
    until_seen(daemon, "module:invoke", request_id=asked)
    after = daemon.op("status")["daemon"]["journal"]
    assert f"had entries up to {newest}" in after["set_back"]
    whole = entries(daemon)
    assert next(entry["seq"] for entry in whole if entry["seq"] >= newest) == newest + 1


def test_a_data_directory_without_a_place_for_a_journal_leaves_all_else_as_it_is(
    start_daemon: StartDaemon, folder: Path
) -> None:
    path = folder / "data" / journals.FILE
    path.mkdir(parents=True)
    daemon = start_daemon(misbehaving("one"))
    assert daemon.invoke("one", word="hello").result == {"word": "hello"}
    assert "is not a file" in daemon.op("status")["daemon"]["journal"]["problem"]
    answer = daemon.client.op("events")
    assert answer.verdict == "internal/storage"
    path.rmdir()
    until(lambda: daemon.op("status")["daemon"]["journal"]["problem"] is None, "a sound journal")
    until_seen(daemon, "daemon:start")
    until_seen(daemon, "module:invoke", status="ok")


FLOOD = """
import resource, sys, trio
from pathlib import Path
from supervisor.kernel.journal import remembering
from supervisor.kernel.store.settings import JournalLimits, JournalOptions

async def main():
    options = JournalOptions(limits=JournalLimits(size_bytes=16 << 20))
    async with remembering(Path(sys.argv[1]), options) as journal:
        for number in range(100_000):
            journal.record("daemon:stop", data={"cause": "x" * 800})
            if number % 1000 == 0:
                over = trio.Event()
                journal.flush(lambda failure: over.set())
                await over.wait()
            if number == 10_000:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, journal.dropped)

trio.run(main)
"""


def test_memory_stays_flat_and_the_file_at_its_limit_however_much_is_written(
    folder: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FLOOD, str(folder)], capture_output=True, check=True, text=True
    )
    grown_kib, dropped = map(int, done.stdout.split())
    assert grown_kib < 48 << 10  # of 85 MB that were written
    assert dropped == 0
    assert (folder / journals.FILE).stat().st_size < 40 << 20
    journals.check(folder / journals.FILE)
