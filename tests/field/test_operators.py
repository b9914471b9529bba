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
        ("add", "`stdiod new`: Create a working module in one of several languages; a module's"),
        ("kill", "`stdiod stop`: Stop modules; they stay down; `stdiod down`: End the daemon"),
        ("tail", "`stdiod logs`: "),
        ("monit", "`stdiod top`: "),
        ("delete", "`stdiod stop`: "),
        ("delete", "`stdiod disable`: "),
        ("tools", "`stdiod describe --all` is about all of them"),
        ("update", "`stdiod reload`: "),
        ("scale", "supervision.instances in the descriptor"),
        ("info", "`stdiod status`: "),
        ("startup", "`stdiod service install`"),
        ("stauts", "did you mean 'status'?"),
        ("xyzzy", "`stdiod --help` lists them"),
    ],
)
def test_a_verb_of_another_program_is_told_with_the_one_that_does_it(verb: str, words: str) -> None:
    ended = subprocess.run([*STDIOD, verb], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert f"there is no verb '{verb}'; " in ended.stderr
    assert words in ended.stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("up -d", "`up` is in the background already"),
        ("up -c x.toml", "--config FILE"),
        ("up --port 8420", "--http HOST:PORT"),
        ("logs dice --tail 3", "-n N"),
        ("status --watch", "`stdiod top` watches modules"),
        ("invoke dice roll --count 3", "args are written count=VALUE"),
        ("invoke dice.roll", "write `stdiod invoke dice roll`"),
        ("invoke dice", "`stdiod describe dice` lists its ops"),
        ("status dice torch", "name one MODULE, or none"),
    ],
)
def test_an_option_or_word_of_another_program_is_told_with_what_there_is(
    typed: str, words: str
) -> None:
    ended = subprocess.run([*STDIOD, *typed.split()], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert words in ended.stderr


def test_words_that_name_no_module_are_told_with_what_was_meant(start_daemon: StartDaemon) -> None:
    op = "roll"
    daemon = start_daemon({**caller("a"), "inputs": {op: {}}})
    for words, said in {
        ("start", "all"): "All modules are meant by --all.",
        ("start", "modules/wc"): "A new folder is noticed by itself in a directory that the daemon",
        ("describe", "a", op): f"{op} is an op of a",
        ("invoke", "a"): f"a has {op}",
    }.items():
        ended = stdiod(daemon, *words)
        assert ended.returncode == (2 if words[0] == "invoke" else 1)
        assert said in ended.stderr


def test_a_second_daemon_is_refused_with_what_the_first_one_serves(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon(caller("a"))
    [serves] = daemon.op("status")["daemon"]["directories"]
    same, other = stdiod(daemon, "up", serves), stdiod(daemon, "up", str(tmp_path))
    noticed = f"already, for {serves}: a module's folder that is put there is noticed; `stdiod"
    assert (same.returncode, other.returncode) == (1, 1)
    assert noticed in same.stderr
    assert "starts one for all" not in same.stderr
    assert f"up {serves} {tmp_path}` starts one for all" in other.stderr


def test_events_and_logs_are_shown_since_a_time(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(caller("a"))
    now = dt.datetime.now(dt.UTC)
    ago, later = now - dt.timedelta(hours=1), now + dt.timedelta(hours=1)
    past = ["600s", "60m", "1.5h", "2d", ago.isoformat(), f"{ago:%Y-%m-%dT%H:%M}Z"]
    past += [dt.datetime.fromtimestamp(time.time() - 3600).isoformat(" ")]  # noqa: DTZ006 - local
    past += [f"{dt.datetime.fromtimestamp(time.time() - 3600):%H:%M}"]  # noqa: DTZ006 - local
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

    refused(f'take "log" out of `deny` in line 1 of {file}')
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
        '  allow "log" (line 1)',
        '[modules."a b"] mode prompt',
        '  deny "session.*" (line 4)',
    ]
    assert stdiod(daemon, "policy", "show").stdout.splitlines() == shown
    found = json.loads(stdiod(daemon, "policy", "show", "--json").stdout)
    assert (found["source"], found["problem"], found["answers"]) == (str(file), None, [])
    assert found["everywhere"]["allow"] == [{"text": "log", "line": 1}]
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
