"""Recordings of a real daemon's modules, by the real command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from protocol.transcript import Happened, Transcript, descriptor_of, read_transcript
from supervisor.transcripts.replay import replay_through_dialect
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import misbehaving
from tests.system.liveness import BOUND_S

EVENTS = 300_000


class Recorder:
    """A running `stdiod record`, writing to a pipe."""

    def __init__(self, daemon: Daemon, module: str, *options: str) -> None:
        words = [sys.executable, "-m", "supervisor.cli", "record", module]
        self.process = subprocess.Popen(
            [*words, "--socket", str(daemon.socket), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.lines: list[bytes] = []
        self.until("transcript")

    def until(self, key: str, value: Any = None) -> None:
        """Read until an entry has a member, of this value if one is given."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            document = json.loads(line)
            if key in document and value in (None, document[key]):
                return
        raise AssertionError(self.lines)

    def end(self) -> tuple[Transcript, int]:
        """Read the rest; returns it all, and the exit status."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        # Not `communicate`, which would leave out what the file object has read ahead.
        self.lines += self.process.stdout
        said = self.process.stderr.read()
        status = self.process.wait(BOUND_S)
        assert b"entries" in said or status
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        return read_transcript(self.lines, "t"), status


def test_ctrl_c_ends_a_recording_with_its_last_line(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("witness"))
    recorder = Recorder(daemon, "witness")
    recorder.until("event", "attached")
    pid = daemon.pid("witness")
    assert daemon.invoke("witness", n=1).result == {"n": 1}
    recorder.until("outcome")
    recorder.process.send_signal(signal.SIGINT)
    transcript, status = recorder.end()
    assert status == 130
    assert transcript.entries[-1].why == "Ctrl-C"
    assert daemon.pid("witness") == pid
    replayed = replay_through_dialect(transcript, descriptor_of(transcript.header, "t"))
    assert (replayed.compared >= 1, replayed.differences) == (True, ())


def test_a_restart_is_recorded_from_the_spawn_to_the_death(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("victim"))
    recorder = Recorder(daemon, "victim", "--restart", "--until-exit")
    recorder.until("operation", "describe")
    assert not daemon.invoke("victim", fault="stderr+exit", code=3).ok
    transcript, status = recorder.end()
    assert status == 0
    assert transcript.flaws == ()
    entries = transcript.instances()["victim#2"]
    assert entries[0].event is Happened.SPAWNED
    assert 3 in [one.exit_code for one in entries]
    replayed = replay_through_dialect(transcript, descriptor_of(transcript.header, "t"))
    assert replayed.differences == ()


def test_a_recorder_that_is_stopped_slows_down_nobody(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(misbehaving("flooder"))
    recorder = Recorder(daemon, "flooder")
    recorder.until("event", "attached")
    recorder.process.send_signal(signal.SIGSTOP)
    answer = daemon.invoke("flooder", fault="flood+done", events=EVENTS, word="end")
    assert answer.result["word"] == "end"
    recorder.process.send_signal(signal.SIGCONT)
    recorder.until("event", "missing")
    recorder.process.send_signal(signal.SIGINT)
    transcript, _ = recorder.end()
    assert any("are missing" in flaw for flaw in transcript.flaws)
    assert daemon.usable("flooder").ok


def test_the_end_of_the_daemon_ends_the_transcript(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon(misbehaving("witness"))
    recorder = Recorder(daemon, "witness")
    recorder.until("event", "attached")
    daemon.end()
    transcript, status = recorder.end()
    assert status in (1, 3)
    assert transcript.entries[-1].event is Happened.ENDED
