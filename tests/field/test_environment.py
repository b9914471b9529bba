"""What a module gets of variables from a daemon and env files, and what is said of those unset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.field.conftest import server
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import descriptor, misbehaving, narratoria
from tests.system.liveness import BOUND_S

VALUE = "hush-hush"


def with_transport(document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**document, "transport": {**document["transport"], **fields}}


def variables(daemon: Daemon, module: str) -> dict[str, str]:
    given: dict[str, str] = daemon.invoke(module, fault="environment").result["environment"]
    return given


def stdiod(*words: str, **environment: str) -> str:
    """Return what a command printed; the value of no variable is among it."""
    done = subprocess.run(
        [sys.executable, "-m", "supervisor.cli", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert VALUE not in done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("make", [misbehaving, narratoria])
def test_an_env_file_is_read_anew_at_each_start(
    start_daemon: StartDaemon, folder: Path, make: Any
) -> None:
    modules = folder / "modules"
    modules.mkdir()
    own, shared = modules / "one.env", folder / "all.env"
    own.write_text("SECRET=first\n")
    shared.write_text("export SHARED='a b'\nSECRET=lost\n")
    (folder / "stdiod.toml").write_text('env_file = "all.env"\n')
    daemon = start_daemon(
        with_transport(make("one"), env_file="one.env", env={"SEEN": "${SECRET}/${SHARED}"}),
        options=("--config", str(folder / "stdiod.toml")),
    )
    assert variables(daemon, "one")["SEEN"] == "first/a b"
    own.write_text("SECRET=second\n")
    if make is misbehaving:
        pid = daemon.pid("one")
        assert daemon.op("reload")["unchanged"]
        assert variables(daemon, "one")["SECRET"] == "first"
        assert daemon.pid("one") == pid
    daemon.op("restart", module="one")
    assert daemon.usable("one").ok
    assert variables(daemon, "one")["SEEN"] == "second/a b"


def test_a_start_without_its_env_file_says_so_and_the_next_one_has_it(
    start_daemon: StartDaemon, folder: Path
) -> None:
    document = with_transport(misbehaving("one", intensity=0), env_file=["one.env"])
    daemon = start_daemon(document, misbehaving("two"))
    path = folder / "modules" / "one.env"
    assert daemon.usable("two").ok

    def words() -> str:
        answer = daemon.client.op("restart", module="one")
        assert not answer.ok
        return str(answer.error["message"])

    assert f"transport.env_file names {path}, which cannot be read" in words()
    described = path.with_name("one.json")
    text = described.read_text()
    described.write_text(text.replace("one.env", "x" * 300))
    daemon.client.op("reload")
    assert "x, which cannot be read: File name too long" in words()
    described.write_text(text)
    daemon.client.op("reload")
    os.mkfifo(path)
    assert "is not a regular file" in words()
    assert daemon.usable("two").ok
    path.unlink()
    path.write_text("SECRET=there\n")
    daemon.op("restart", module="one")
    assert daemon.usable("one").ok
    assert variables(daemon, "one")["SECRET"] == "there"


def test_the_command_and_folder_of_a_server_have_variables_with_defaults(
    start_daemon: StartDaemon, folder: Path
) -> None:
    document = server("plain")
    command = document["transport"]["command"]
    document = with_transport(
        document,
        command=[f"${{PYTHON_OF:-{command[0]}}}", *command[1:-1], "${WORD}"],
        cwd="${PLACE:-.}",
        env_file="${PLACE:-.}/one.env",
    )
    (folder / "modules").mkdir()
    (folder / "modules" / "one.env").write_text("WORD=plain\n")
    daemon = start_daemon(document)
    assert daemon.invoke("plain", "echo", text="x").ok, daemon.status("plain")


def test_a_variable_that_is_unset_is_named_where_it_may_matter(
    start_daemon: StartDaemon, folder: Path
) -> None:
    broken = descriptor("broken", ["sh", "-c", "exit 3"], pass_env=["OPENAI_KEY", "MAY_BE?"])
    broken["supervision"] = {"intensity": 0}
    daemon = start_daemon(
        broken,
        with_transport(misbehaving("well"), pass_env=["LACKING", "SET", "MAY_BE?"]),
        with_transport(narratoria("each"), pass_env=["LACKING"]),
        with_transport(misbehaving("later", start="lazy"), pass_env=["LACKING", "OTHER"]),
        environment={"SET": VALUE},
    )
    daemon.wait_state("broken", "failed")
    where = ("--socket", str(folder / "socket"))
    remark = "; OPENAI_KEY, which pass_env names, is not set"
    assert daemon.status("broken")["last_exit"]["message"].endswith(remark)
    assert daemon.status("broken")["unset_variables"] == ["OPENAI_KEY"]
    assert daemon.status("well")["unset_variables"] == ["LACKING"]
    assert daemon.status("each")["unset_variables"] == ["LACKING"]
    assert daemon.status("later")["unset_variables"] == ["LACKING", "OTHER"]
    failure = daemon.invoke("each", fault="exit", code=4)
    assert "code 4; LACKING, which pass_env names, is not set" in failure.error["message"]
    text = stdiod("status", *where)
    assert remark in text
    assert "LACKING, which pass_env names, is not set" in text
    assert "not set     LACKING" in stdiod("status", "well", *where)
    doctor = stdiod("doctor", *where)
    assert "names OPENAI_KEY, which" in doctor
    assert "MAY_BE" not in doctor


def test_up_names_what_is_unset_and_no_value(folder: Path) -> None:
    (folder / "modules").mkdir()
    where = ("--socket", str(folder / "socket"))
    command = ["sh", "-c", "echo ${X} $0; exec cat >/dev/null"]
    module = descriptor("one", command, protocol="narratoria", pass_env=["LACKING"])
    (folder / "modules" / "one.json").write_text(json.dumps(module))
    try:
        up = stdiod("up", str(folder / "modules"), *where, "--data-dir", str(folder / "data"))
        assert "warning: one: LACKING, which pass_env names, is not set" in up
    finally:
        stdiod("down", *where)


def test_the_password_of_an_address_is_shown_nowhere(
    start_daemon: StartDaemon, folder: Path
) -> None:
    address = f"http://ann:{VALUE}@proxy.example:3128/x"
    says = descriptor("says", ["sh", "-c", f"echo no way to {address} >&2; exit 3"])
    lacks = descriptor("lacks", [f"missing-{address}"])
    for one in (says, lacks):
        one["supervision"] = {"intensity": 0}
    daemon = start_daemon(says, lacks, environment={"HTTPS_PROXY": address})
    for name in ("says", "lacks"):
        daemon.wait_state(name, "failed")
    assert "http://***@proxy.example:3128/x" in str(daemon.status("says")["last_exit"])
    assert VALUE not in str(daemon.op("status"))
    assert VALUE not in daemon.log()
    where = ("--socket", str(folder / "socket"))
    for path in (folder / "modules").glob("**/*.json"):
        report = folder / "report.xml"
        checked = stdiod("check", str(path), "--junit", str(report))
        assert "***@proxy.example" in checked
        assert VALUE not in checked + report.read_text()
    for words in (("status",), ("status", "lacks"), ("logs", "says"), ("doctor",), ("events",)):
        stdiod(*words, *where)
