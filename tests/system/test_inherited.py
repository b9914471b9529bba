"""What a daemon was started with changes nothing for it and its modules (docs/faults.md, 34)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import until
from tests.system.client import Client
from tests.system.daemon import MARKER, command, marked
from tests.system.descriptors import misbehaving, per_invocation, write
from tests.system.liveness import BOUND_S, Liveness

CARELESS = """
import os, resource, signal, sys
everything = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
for number in everything:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, everything)
os.umask(0o777)
for descriptor in range(3):
    os.close(descriptor)
os.execv(sys.argv[1], sys.argv[1:])
"""
OF_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
"""What an interpreter ignores by itself."""


def facts(pid: int) -> dict[str, str]:
    """Return the lines of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def signals(mask: str) -> set[int]:
    # 32 and 33 are the C library's own: nobody can set them, and who started us may ignore them.
    return {number for number in signal.valid_signals() if int(mask, 16) >> number - 1 & 1}


@pytest.mark.fault(34)
def test_a_daemon_that_was_started_carelessly_and_its_modules_are_as_any_other(
    folder: Path, liveness: Liveness
) -> None:
    write(
        folder / "modules",
        misbehaving("one", env={"LIVENESS": str(liveness.path)}),
        per_invocation("once"),
    )
    data, log = folder / "data", folder / "data" / "daemon.log"
    reading, writing = os.pipe()
    words = command(folder / "modules", folder / "socket", data, "--ready-fd", str(writing))
    # Descriptors 0 to 2 are closed, so that a file is where its log goes.
    data.mkdir(mode=0o700)
    daemon = subprocess.Popen(
        [sys.executable, "-c", CARELESS, *words, "--log-file", str(log)],
        env={**os.environ, MARKER: folder.name},
        pass_fds=[writing],
    )
    try:
        os.close(writing)
        with os.fdopen(reading, "rb") as ready:
            assert ready.read() == b"ready\n"
        client = Client(folder / "socket")
        client.op("wait")
        (module,) = liveness.wait_for("module")
        for pid, ignored in ((daemon.pid, OF_PYTHON), (module.pid, OF_PYTHON)):
            found = facts(pid)
            assert signals(found["SigBlk"]) == set()
            assert signals(found["SigIgn"]) <= ignored
            assert found["Umask"] == "0077"
        for number in range(3):
            assert str(Path(f"/proc/{daemon.pid}/fd/{number}").readlink()) == os.devnull
        assert client.invoke("once", fault="exit", code=7).details["exit_code"] == 7
        client.op("logs", module="one", lines=1)  # it is read behind what was written before
        assert {path.stat().st_mode & 0o777 for path in (log, data / "logs" / "one.log")} == {0o600}
        assert (data / "logs").stat().st_mode & 0o777 == 0o700
        daemon.send_signal(signal.SIGHUP)
        until(lambda: client.op("status").result["daemon"]["reloads"], "a reload")
        client.close()
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(BOUND_S) == 0
        module.wait_gone()
        assert not marked(folder.name)
        assert json.loads(log.read_text().splitlines()[-1])["event"] == "stopped"
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()
