"""The units of docs/systemd.md: read as systemd would, and held to what the daemon does."""

from __future__ import annotations

import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from supervisor.cli.exit_status import NO, USAGE
from supervisor.cli.verbs.run import run
from supervisor.kernel.kernel import Times
from supervisor.runtime.threads import END_S
from tests.docs.markdown import ROOT

DOCUMENT = (ROOT / "docs/systemd.md").read_text(encoding="utf-8")
UNITS = dict(
    zip(
        ("user", "system"),
        (block.partition("```")[0] for block in DOCUMENT.split("```ini\n")[1:]),
        strict=True,
    )
)


def read(unit: str) -> dict[str, dict[str, str]]:
    """Read a unit; each key stands once, so the last one cannot silently win."""
    sections: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for line in UNITS[unit].splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line:
            key, equals, value = line.partition("=")
            assert equals, line
            assert key not in section, line
            section[key] = value
    return sections


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_service_is_ready_when_the_daemon_says_so(unit: str) -> None:
    service = read(unit)["Service"]
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert service["ExecReload"] == "kill -HUP $MAINPID"
    assert service["Delegate"] == "yes"


def test_systemd_waits_longer_for_the_end_than_the_daemon_may_take(unit: str) -> None:
    service = read(unit)["Service"]
    by_disk_s = 2 * END_S  # what is begun near its bound has some seconds of its own
    times = Times()
    longest_s = times.hurry_after_s + times.killed_within_s + times.flush_s + by_disk_s
    assert float(service["TimeoutStopSec"]) > longest_s
    # To all at once, SIGTERM would end modules that others depend on before those.
    assert service["KillMode"] == "mixed"


def test_the_watchdog_bites_and_a_wrong_set_up_is_not_started_again(unit: str) -> None:
    service = read(unit)["Service"]
    assert float(service["WatchdogSec"]) > 0
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"].split() == [str(NO), str(USAGE)]


def test_the_command_is_one_that_stdiod_takes(unit: str) -> None:
    program, verb, *words = shlex.split(read(unit)["Service"]["ExecStart"])
    assert Path(program).name == "stdiod"
    assert verb == "run"
    known = {name for option in run.params for name in option.opts}
    assert {word for word in words if word.startswith("-")} <= known
    assert "--config" in words


def test_the_machines_daemon_uses_the_directories_that_systemd_makes_for_it() -> None:
    service = read("system")["Service"]
    words = shlex.split(service["ExecStart"])
    socket = Path(words[words.index("--socket") + 1])
    assert socket.parent == Path("/run", service["RuntimeDirectory"])
    assert words[words.index("--data-dir") + 1] == f"/var/lib/{service['StateDirectory']}"
    assert f"STDIOD_SOCKET={socket}" in DOCUMENT


def test_every_line_of_a_service_that_is_ours_is_explained() -> None:
    for line in ("Type=notify", "NotifyAccess=main", "Delegate=yes", "KillMode=mixed"):
        assert f"| `{line}` |" in DOCUMENT
    for key in ("TimeoutStopSec", "WatchdogSec", "RestartPreventExitStatus"):
        assert f"| `{key}={read('system')['Service'][key]}` |" in DOCUMENT


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze(1)")
def test_systemd_finds_nothing_wrong(unit: str, tmp_path: Path) -> None:
    # The program is to be there, and the user: they are not what is being verified.
    program = tmp_path / "stdiod"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    text = UNITS[unit].replace("User=stdiod\n", "")
    for place in ("%h/.local/bin/stdiod", "/usr/local/bin/stdiod"):
        text = text.replace(place, str(program))
    path = tmp_path / "stdiod.service"
    path.write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", f"--{unit}", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in verified.stderr.splitlines() if str(path) in line]
    assert not complaints
    assert "Unknown key" not in verified.stderr
