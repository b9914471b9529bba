"""What an operator types first: verbs of other programs, times, the policy and its refusals."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.test_host_calls import caller, log_result, policy

STDIOD = (sys.executable, "-m", "supervisor.cli")


def stdiod(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STDIOD, "--socket", str(daemon.socket), *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        *((verb, "`stdiod status`: Show what runs") for verb in ("ls", "ps", "list", "LS")),
        ("call", "`stdiod invoke`: Call an op of a module"),
        ("init", "`stdiod new`: Create a working module"),
        ("add", "`stdiod import`: Write descriptors for the MCP servers in a file; `stdiod new`:"),
        ("kill", "`stdiod stop`: Stop modules; they stay down; `stdiod down`: End the daemon"),
        ("stauts", "did you mean 'status'?"),
        ("xyzzy", "`stdiod --help` lists them"),
    ],
)
def test_a_verb_of_another_program_is_told_with_the_one_that_does_it(verb: str, words: str) -> None:
    ended = subprocess.run([*STDIOD, verb], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert f"there is no verb '{verb}'; {words}" in ended.stderr


def test_events_and_logs_are_shown_since_a_time(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(caller("a"))
    now = dt.datetime.now(dt.UTC)
    ago, later = now - dt.timedelta(hours=1), now + dt.timedelta(hours=1)
    past = ["600s", "60m", "1.5h", "2d", ago.isoformat(), f"{ago:%Y-%m-%dT%H:%M}Z"]
    past += [dt.datetime.fromtimestamp(time.time() - 3600).isoformat(" ")]  # noqa: DTZ006 - local
    for verb in (("events",), ("logs", "a")):
        shown = stdiod(daemon, *verb).stdout
        assert shown
        for since in past:
            assert stdiod(daemon, *verb, "--since", since).stdout.startswith(shown), since
        assert stdiod(daemon, *verb, "--since", later.isoformat()).stdout == ""
        for since in ("soon", "10", "10 m", "-1h", "2026-13-01", "10w", ""):
            if verb == ("events",) and since == "10":
                continue
            ended = stdiod(daemon, *verb, "--since", since)
            assert (ended.returncode, "such as 30s, 10m, 2h or 3d" in ended.stderr) == (2, True)
    assert stdiod(daemon, "events", "--since", "1h", "--event", "module:ready").stdout == ""
    number = json.loads(stdiod(daemon, "events", "--json").stdout.splitlines()[1])["seq"]
    assert f" {number} " not in stdiod(daemon, "events", "--since", str(number)).stdout
    assert stdiod(daemon, "logs", "a", "--since", "1h", "-n", "0").stdout == ""


def test_what_a_refusal_says_to_write_is_what_allows_it(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    daemon = start_daemon(caller("a"), options=policy(tmp_path, 'deny = ["log"]\n'))

    def refused(*words: str) -> None:
        said = log_result(daemon)["error"]["message"]
        explained = stdiod(daemon, "policy", "explain", "a", "log").stdout
        for one in words:
            assert one in said
            assert one in explained

    refused(f'take "log" out of `deny` in {file}')
    file.write_text("")
    assert f"the policy {file} was read" in stdiod(daemon, "reload").stdout
    refused(f'add "log" to `allow` of `[modules."a"]` in {file}, then `stdiod reload`')
    file.write_text('[modules."a"]\nallow = ["log"]\n')
    assert f"the policy {file} was read" in stdiod(daemon, "reload").stdout
    assert not log_result(daemon)["is_error"]
    descriptor = daemon.modules / "a.json"
    document: dict[str, Any] = json.loads(descriptor.read_text())
    descriptor.write_text(json.dumps({**document, "capabilities": ["logg", "session.*"]}))
    stdiod(daemon, "reload")
    daemon.op("wait", modules=["a"])
    refused("capabilities do not list it", f'add "log" to "capabilities" in {descriptor}')
    validated = stdiod(daemon, "validate", str(descriptor)).stdout
    assert '/capabilities/0: "logg" is an unknown capability' in validated
    assert 'did you mean "log"?' in validated
    said = stdiod(daemon, "policy", "explain", "a", "logg.in").stdout
    assert '"logg.in" is an unknown capability' in said


def test_the_policy_in_force_is_shown(start_daemon: StartDaemon, tmp_path: Path) -> None:
    text = 'allow = ["log"]\n[modules."a b"]\nmode = "prompt"\ndeny = ["session.*"]\n'
    daemon = start_daemon(caller("a"), options=policy(tmp_path, text))
    file = tmp_path / "policy.toml"
    shown = [
        str(file),
        "[all modules] mode strict",
        '  allow "log"',
        '[modules."a b"] mode prompt',
        '  deny "session.*"',
    ]
    assert stdiod(daemon, "policy", "show").stdout.splitlines() == shown
    found = json.loads(stdiod(daemon, "policy", "show", "--json").stdout)
    assert (found["source"], found["problem"], found["answers"]) == (str(file), None, [])
    assert found["everywhere"]["allow"] == [{"text": "log", "key": "allow[0]"}]
    assert found["modules"]["a b"]["mode"] == "prompt"
    file.write_text("mode = 1\n")
    stdiod(daemon, "reload")
    first, problem, *rest = stdiod(daemon, "policy", "show").stdout.splitlines()
    assert [first, *rest] == shown
    assert "the file is bad now" in problem


def test_without_a_policy_it_is_said_that_nothing_is_granted(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(caller("a"))
    first, second = stdiod(daemon, "policy", "show").stdout.splitlines()
    assert "no policy file, so nothing is granted: `stdiod up --policy FILE`" in first
    assert second == "[all modules] mode strict"
    assert "the policy" not in stdiod(daemon, "reload").stdout
