"""What `doctor` says of a daemon that runs, of one that does not, and of what is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.descriptors import descriptor, misbehaving, write
from tests.system.liveness import BOUND_S

Finding = dict[str, Any]


class Diagnosis:
    """What `stdiod doctor --json` printed, and its exit status."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        where = ["--socket", str(folder / "socket"), "--data-dir", str(folder / "data")]
        done = subprocess.run(
            [sys.executable, "-m", "supervisor.cli", "doctor", *words, *where, "--json"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        document = json.loads(done.stdout)
        self.ok: bool = document["ok"]
        self.findings: list[Finding] = document["findings"]
        assert self.ok == (done.returncode == 0)
        assert self.ok == (not any(one["level"] == "bad" for one in self.findings))
        for one in self.findings:
            # Who is told that something is not well is told what to do.
            assert one["hint"] or one["level"] == "ok", one

    def about(self, area: str, subject: str | None = None) -> list[Finding]:
        return [
            one
            for one in self.findings
            if one["area"] == area and subject in (None, one["subject"])
        ]

    def only(self, area: str, subject: str | None = None) -> Finding:
        (one,) = self.about(area, subject)
        return one


def test_a_daemon_that_is_well_is_said_to_be(start_daemon: StartDaemon, folder: Path) -> None:
    daemon = start_daemon(misbehaving("one"), misbehaving("two", start="lazy"))
    diagnosis = Diagnosis(folder)
    assert diagnosis.ok, diagnosis.findings
    assert f"pid {daemon.process.pid}" in diagnosis.only("daemon")["message"]
    assert diagnosis.only("module", "one")["message"] == "ready"
    assert diagnosis.only("descriptor", "one")["message"].startswith("runs ")
    rung = daemon.op("status")["daemon"]["containment"]
    assert diagnosis.only("journal")["message"].endswith(f"in {daemon.data_dir / 'journal.db'}")
    assert rung in diagnosis.only("containment")["message"]
    assert f"the daemon (pid {daemon.process.pid})" in diagnosis.only("environment")["message"]


def test_a_journal_that_was_set_aside_or_cannot_be_written_is_named(
    start_daemon: StartDaemon, folder: Path
) -> None:
    path = folder / "data" / "journal.db"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"not a journal")
    daemon = start_daemon(misbehaving("one"))
    found = Diagnosis(folder).only("journal")
    assert found["level"] == "warn"
    assert "it is not an SQLite database" in found["message"]
    assert "journal.db.set-aside-" in found["message"]
    assert "journal.db.set-aside-" in found["hint"]
    daemon.end()
    again = Diagnosis(folder).only("journal")
    assert (again["level"], again["hint"]) == ("warn", found["hint"])
    path.unlink()
    path.mkdir()
    start_daemon(misbehaving("one"))
    (found,) = [one for one in Diagnosis(folder).about("journal") if one["level"] == "bad"]
    assert str(path) in found["message"]


def test_a_module_that_runs_without_what_it_depends_on_is_a_warning(
    start_daemon: StartDaemon, folder: Path
) -> None:
    daemon = start_daemon(misbehaving("kv"), misbehaving("shop", depends_on=["kv"]))
    daemon.op("wait")
    daemon.op("stop", module="kv")
    found = Diagnosis(folder).only("module", "shop")
    assert found["level"] == "warn"
    assert found["message"] == "ready; it depends on modules that do not serve: kv"


def test_a_dead_module_is_shown_with_its_last_words_and_what_to_do(
    start_daemon: StartDaemon, folder: Path
) -> None:
    dying = misbehaving("dying", "start=stderr+exit", "code=127", intensity=1, retry_failed_s=3600)
    daemon = start_daemon(dying, descriptor("absent", ["no-such-program"]), misbehaving("well"))
    until(lambda: daemon.status("dying")["state"] == "failed", "a module that is given up")
    diagnosis = Diagnosis(folder)
    assert not diagnosis.ok
    dead = diagnosis.only("module", "dying")
    assert dead["level"] == "bad"
    assert "exited with code 127" in dead["message"]
    assert dead["evidence"][-1] == "the last words"
    assert "in PATH" in dead["hint"]
    assert "stdiod logs dying" in dead["hint"]
    absent = diagnosis.only("descriptor", "absent")
    assert absent["level"] == "bad"
    assert "no-such-program" in absent["message"]
    assert diagnosis.only("module", "well")["level"] == "ok"


def test_without_a_daemon_the_descriptors_of_a_directory_are_examined(folder: Path) -> None:
    modules = folder / "modules"
    write(
        modules,
        descriptor("fine", ["sh", "-c", "true"]),
        descriptor("gone", ["./gone.sh"]),
        descriptor("plain", ["./plain.sh"]),
        descriptor("old", ["./old.sh"]),
        descriptor("windows", ["./windows.sh"]),
        descriptor("scriptless", [sys.executable, "missing.py"]),
        descriptor("homeless", ["sh"], cwd="nowhere"),
        descriptor("secretless", ["sh"], env={"KEY": "${NO_SUCH_SECRET}"}),
        descriptor("hopeful", ["sh"], pass_env=["NO_SUCH_SECRET"]),
    )
    for name, mode, text in (
        ("plain.sh", 0o644, "#!/bin/sh\n"),
        ("old.sh", 0o755, "#!/opt/none/python\n"),
        ("windows.sh", 0o755, "#!/bin/sh\r\n"),
    ):
        (modules / name).write_text(text)
        (modules / name).chmod(mode)
    (modules / "broken.json").write_text("{")
    diagnosis = Diagnosis(folder, str(modules))
    words = {
        one["subject"]: (one["level"], one["message"]) for one in diagnosis.about("descriptor")
    }
    assert words["fine"][0] == "ok"
    for name, part in {
        "gone": "gone.sh is not there",
        "plain": "not executable",
        "old": "names /opt/none/python",
        "windows": "carriage return",
        "scriptless": "missing.py, which is not there",
        "homeless": "working folder",
        "secretless": "${NO_SUCH_SECRET}",
        str(modules / "broken.json"): "",
    }.items():
        level, message = words[name]
        assert level == "bad", name
        assert part in message
    assert words["hopeful"][0] == "warn"
    assert diagnosis.only("daemon")["level"] == "ok"


def test_without_a_daemon_the_containment_that_one_would_get_is_said(
    start_daemon: StartDaemon, folder: Path
) -> None:
    before = Diagnosis(folder).only("containment")
    rung = start_daemon().op("status")["daemon"]["containment"]
    assert before["message"].startswith(f"a daemon started here would contain processes by {rung}")


def test_a_daemon_whose_socket_was_deleted_is_named_with_the_way_out(
    start_daemon: StartDaemon, folder: Path
) -> None:
    daemon = start_daemon(misbehaving("one"))
    (folder / "socket").unlink()
    for _ in range(2):  # with the lock beside the socket, and without
        found = Diagnosis(folder).about("socket")[-1]
        assert found["level"] == "bad"
        assert f"is missing, but its daemon (pid {daemon.process.pid}) lives" in found["message"]
        assert f"`kill {daemon.process.pid}`" in found["hint"]
        (folder / "socket.lock").unlink(missing_ok=True)


def test_a_directory_that_is_gone_is_told_of_once(start_daemon: StartDaemon, folder: Path) -> None:
    start_daemon(misbehaving("one"))
    (folder / "modules").rename(folder / "elsewhere")
    found = Diagnosis(folder).only("descriptor")
    assert found["level"] == "bad"
    assert "No such file" in found["message"]


def test_a_directory_that_is_not_there_is_bad(folder: Path) -> None:
    assert Diagnosis(folder, str(folder / "gone")).only("descriptor")["level"] == "bad"


def test_a_socket_left_behind_needs_nothing_and_one_in_use_by_a_stopped_daemon_does(
    start_daemon: StartDaemon, folder: Path
) -> None:
    daemon = start_daemon(misbehaving("one"))
    pid = daemon.process.pid
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        # The kernel still accepts for it; so it is asked, and gives no answer.
        assert Diagnosis(folder).only("daemon")["level"] == "bad"
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    listener = folder / "elsewhere"
    os.link(folder / "socket", listener)
    daemon.end()
    listener.rename(folder / "socket")
    left = Diagnosis(folder).about("socket")[-1]
    assert left["level"] == "warn"
    assert "left behind by a daemon that is gone" in left["message"]
    assert str(pid) not in left["message"]


@pytest.mark.parametrize(
    ("path", "area", "words"),
    [("socket", "socket", "is not a socket"), ("data", "data_dir", "is not a directory")],
)
def test_a_file_in_the_place_of_something_else_is_bad(
    path: str, area: str, words: str, folder: Path
) -> None:
    (folder / path).write_text("somebody's")
    found = Diagnosis(folder).about(area)[-1]
    assert found["level"] == "bad"
    assert words in found["message"]


def test_a_configuration_says_where_to_look(folder: Path) -> None:
    write(folder / "modules", descriptor("gone", ["./gone.sh"]))
    (folder / "stdiod.toml").write_text("directories = ['modules', 'nowhere']")
    diagnosis = Diagnosis(folder, "--config", str(folder / "stdiod.toml"))
    assert diagnosis.only("descriptor", "gone")["level"] == "bad"
    assert any("nowhere" in one["message"] for one in diagnosis.about("descriptor"))


def test_a_path_that_leads_somewhere_odd_is_a_warning(folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    path = f"relative:{folder / 'open'}:{os.environ['PATH']}"
    messages = [one["message"] for one in Diagnosis(folder, PATH=path).about("path")]
    assert any("'relative'" in one for one in messages)
    assert any("everybody may put a program" in one for one in messages)


def test_a_limit_that_is_too_low_for_the_modules_is_bad(folder: Path) -> None:
    write(folder / "modules", *(misbehaving(f"m{number}") for number in range(30)))
    words = f'ulimit -n 100; exec "{sys.executable}" -m supervisor.cli doctor "$@"'
    arguments = [str(folder / "modules"), "--socket", str(folder / "socket"), "--json"]
    done = subprocess.run(
        ["sh", "-c", words, "sh", *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    limits = [one for one in json.loads(done.stdout)["findings"] if one["area"] == "limits"]
    assert limits[0]["level"] == "bad"
    assert "LimitNOFILE" in limits[0]["hint"]


def test_people_get_words_and_hints(folder: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "supervisor.cli", "doctor", "--all"),
            *("--socket", str(folder / "socket")),
        ],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert "kernel\n  ok   Linux" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" bad")
