"""A descriptor that says `"enabled": false`, and the verbs that write it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.field.conftest import Connect, server
from tests.field.mcp_client import NEWER, OLDER
from tests.system.daemon import Daemon

Host = Callable[..., Daemon]

STDIOD = [sys.executable, "-P", "-m", "supervisor.cli"]
ROOT = Path(__file__).parents[2]
CHANGED = "notifications/tools/list_changed"


def stdiod(socket: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Type a command."""
    named = {"PYTHONPATH": str(ROOT), "STDIOD_SOCKET": str(socket), **variables}
    environment = {**os.environ, **named}
    return subprocess.run(
        [*STDIOD, *words], env=environment, capture_output=True, text=True, check=False
    )


def off(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "enabled": False}


def of_no_program(name: str = "absent") -> dict[str, Any]:
    document = server("plain", name=name)
    return {**document, "transport": {**document["transport"], "command": ["no-such-program"]}}


def file_of(daemon: Daemon, name: str) -> Path:
    return Path(daemon.status(name)["descriptor"])


def write(daemon: Daemon, document: dict[str, Any]) -> None:
    file_of(daemon, document["name"]).write_text(json.dumps(document))
    daemon.op("reload")
    daemon.op("wait", modules=[document["name"]], **{"for": "verdict"})


@pytest.mark.parametrize("start", ["eager", "lazy"])
def test_a_disabled_module_has_no_process_and_no_tool_and_says_what_to_do(
    host: Host, connect: Connect, start: str
) -> None:
    daemon = host(
        server("plain"), off(server("plain", name="other", start=start)), off(of_no_program())
    )
    client = connect(daemon)
    assert set(client.tools()) == {"echo"}
    offered = {one["module"] for one in daemon.op("offers")["modules"]}
    assert offered == {"plain"}
    shown = daemon.status("other")
    assert (shown["state"], shown["wanted"], shown["instances"]) == ("disabled", "down", [])
    for op in ("start", "restart"):
        refused = daemon.client.op(op, module="other")
        assert refused.error["details"]["state"] == "disabled"
        assert "`stdiod enable other`" in refused.error["message"]
    for failure in (daemon.invoke("other", "echo"), daemon.client.op("wait", modules=["other"])):
        assert "other is disabled: `stdiod enable other`" in failure.error["message"]
    assert daemon.status("other")["state"] == "disabled"
    assert "absent" not in stdiod(daemon.socket, "start", "--all").stdout
    listed = stdiod(daemon.socket, "status").stdout
    assert "3 modules: 1 ready, 2 disabled" in listed


def test_a_reload_picks_it_up_in_both_ways_and_touches_nothing_else(
    host: Host, connect: Connect
) -> None:
    other = server("plain", name="other")
    daemon = host(server("plain"), other, prefix=True)
    pid = daemon.pid("plain")
    client = connect(daemon)
    assert set(client.tools()) == {"plain__echo", "other__echo"}
    write(daemon, off(other))
    client.told(CHANGED)
    assert set(client.tools()) == {"plain__echo"}
    assert daemon.status("other")["state"] == "disabled"
    write(daemon, other)
    client.told(CHANGED)
    assert set(client.tools()) == {"plain__echo", "other__echo"}
    assert daemon.status("other")["state"] == "ready"
    assert daemon.pid("plain") == pid


def test_one_that_was_stopped_is_started_when_it_is_enabled_and_falls_back_to_nothing(
    host: Host,
) -> None:
    plain = server("plain")
    daemon = host(plain)
    daemon.op("stop", module="plain")
    write(daemon, off(plain))
    write(daemon, plain)
    assert daemon.status("plain")["state"] == "ready"
    write(daemon, off(of_no_program("plain")))
    assert daemon.op("reload")["unrunnable"] == []
    assert daemon.status("plain")["state"] == "disabled"
    write(daemon, of_no_program("plain"))
    assert daemon.status("plain")["state"] in ("backoff", "failed")


def test_what_depends_on_it_says_so(host: Host) -> None:
    needed = server("plain", name="needed")
    daemon = host(off(needed), server("plain", depends_on=["needed"]))
    words = "plain waits for needed: needed is disabled: `stdiod enable needed` enables it"
    assert daemon.invoke("plain", "echo").error["message"] == words
    assert daemon.status("plain")["waits_for"] == ["needed"]
    write(daemon, needed)
    daemon.op("wait", modules=["plain"])


def test_a_hook_that_is_disabled_gates_nothing(host: Host) -> None:
    gate = {**off(of_no_program("gate")), "kind": "hook", "hook": {"gate": ["tool:pre"]}}
    assert host(server("plain"), gate).invoke("plain", "echo", text="x").ok


def test_its_missing_program_is_no_failure_of_validate_and_doctor(
    host: Host, tmp_path: Path
) -> None:
    daemon = host(off(of_no_program()))
    folder = str(daemon.modules)
    assert stdiod(daemon.socket, "validate", folder).returncode == 0
    told = stdiod(daemon.socket, "doctor", "--all", folder, STDIOD_DATA_DIR=str(tmp_path)).stdout
    assert "is disabled; " in told
    bad = {**of_no_program(), "enabled": "no"}
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    ended = stdiod(daemon.socket, "validate", str(tmp_path / "bad.json"))
    assert "/enabled: is" in ended.stdout
    assert ended.returncode == 1


# The verbs.


def laid_out(text: str, name: str = "plain") -> str:
    """Return a text with the members of a descriptor in the place of @."""
    members = server("plain", name=name)
    return text.replace("NESTED", NESTED).replace("@", json.dumps(members)[1:-1])


NESTED = '"inputs": {"x": {"properties": {"y": {"default": {"enabled": true}}}}}'
TEXTS = {
    "{@}": '{"enabled": false,@}',
    '{\n  "version": "enabled: true",\n  @\n}\n': (
        '{\n  "enabled": false,\n  "version": "enabled: true",\n  @\n}\n'
    ),
    '{\r\n\t"enabled" :  true ,\r\n\t@}': '{\r\n\t"enabled" :  false ,\r\n\t@}',
    "\ufeff{ @, NESTED}": '\ufeff{ "enabled": false, @, NESTED}',
    '{NESTED, @ ,"enabled":true}': '{NESTED, @ ,"enabled":false}',
    '{"description": "\\"enabled\\": true",@}': (
        '{"enabled": false,"description": "\\"enabled\\": true",@}'
    ),
}
"""Descriptors, and what `disable` makes of them."""


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_verbs_change_one_member_and_no_other_byte(tmp_path: Path, text: str) -> None:
    path, nobody = tmp_path / "plain.json", tmp_path / "socket"
    path.write_bytes(laid_out(text).encode())
    path.chmod(0o640)
    ended = stdiod(nobody, "disable", str(path))
    assert (ended.returncode, ended.stderr) == (0, "")
    changed = laid_out(TEXTS[text]).encode()
    assert path.read_bytes() == changed
    assert path.stat().st_mode & 0o777 == 0o640
    assert stdiod(nobody, "disable", str(path)).returncode == 0
    assert path.read_bytes() == changed
    assert stdiod(nobody, "enable", str(path)).returncode == 0
    again = path.read_bytes()
    assert again == changed.replace(b"false", b"true", 1)
    assert [one.name for one in tmp_path.iterdir()] == ["plain.json"]


def test_the_daemon_follows_at_once_and_the_next_one_too(host: Host) -> None:
    daemon = host(server("plain"), server("plain", name="other"))
    pid = daemon.pid("other")
    ended = stdiod(daemon.socket, "disable", "plain")
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "plain is disabled")
    assert daemon.status("plain")["state"] == "disabled"
    assert json.loads(file_of(daemon, "plain").read_text())["enabled"] is False
    ended = stdiod(daemon.socket, "enable", "plain", "other")
    assert ended.returncode == 0
    assert f"plain is ready (pid {daemon.pid('plain')})" in ended.stdout
    assert daemon.pid("other") == pid


def test_for_programs_each_descriptor_is_a_line_of_json(host: Host) -> None:
    daemon = host(server("plain"), server("plain", name="other"))
    for verb in ("disable", "enable"):
        ended = stdiod(daemon.socket, verb, "plain", "other", "--json")
        told = [json.loads(line) for line in ended.stdout.splitlines()]
        assert [(one["module"], one["enabled"]) for one in told] == [
            ("plain", verb == "enable"), ("other", verb == "enable"),
        ]  # fmt: skip
        assert told[0]["descriptor"] == str(file_of(daemon, "plain").resolve())


def test_one_that_does_not_get_ready_is_a_no(host: Host) -> None:
    daemon = host(off(of_no_program()))
    ended = stdiod(daemon.socket, "enable", "absent")
    assert ended.returncode == 1
    assert "absent is " in ended.stdout


def test_a_link_is_followed_and_said(host: Host, tmp_path: Path) -> None:
    daemon = host(server("plain"))
    path, target = file_of(daemon, "plain"), tmp_path / "elsewhere.json"
    path.rename(target)
    path.symlink_to(target)
    ended = stdiod(daemon.socket, "disable", "plain")
    assert ended.returncode == 0
    assert str(target) in ended.stdout
    assert path.is_symlink()
    assert json.loads(target.read_text())["enabled"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plain", "plane"], "no module plane is in"),
        (["plain", "./none.json"], "none.json: cannot be read: No such file"),
        (["plain", "./fifo.json"], "fifo.json: is not a regular file"),
        (["plain", "./broken.json"], "broken.json: is not JSON at line 1 column"),
        (["plain", "./bad.json"], "bad.json: /kind: "),
        (["plain", "broken"], "broken.json: is not JSON"),
        (["plain", "./theirs.json"], "theirs.json belongs to user 65534"),
    ],
)
def test_what_cannot_be_changed_is_named_and_then_nothing_is(
    host: Host, words: list[str], said: str
) -> None:
    daemon = host(server("plain"))
    before = file_of(daemon, "plain").read_bytes()
    os.mkfifo(daemon.modules / "fifo.json")
    (daemon.modules / "broken.json").write_text("{'name': 1}")
    (daemon.modules / "bad.json").write_text('{"name": "bad", "kind": "x"}')
    (daemon.modules / "theirs.json").write_text(laid_out("{@}", "theirs"))
    if os.geteuid() == 0:
        os.chown(daemon.modules / "theirs.json", 65534, -1)
    elif "./theirs.json" in words:
        pytest.skip("only root can give a file away")
    words = [one.replace("./", f"{daemon.modules}/") for one in words]
    ended = stdiod(daemon.socket, "disable", *words)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert file_of(daemon, "plain").read_bytes() == before


def test_without_a_daemon_a_name_is_one_of_the_project_and_else_the_file_is_asked_for(
    tmp_path: Path,
) -> None:
    ended = stdiod(tmp_path / "socket", "disable", "plain", HOME=str(tmp_path))
    assert ended.returncode == 1
    assert "no module plain is known; name its file" in ended.stderr


# A client that closes its side.


@pytest.mark.parametrize("revision", [NEWER, OLDER])
def test_a_client_that_closes_its_side_while_it_listens_is_gone(
    host: Host, connect: Connect, revision: str
) -> None:
    daemon = host(server("plain"))
    client = connect(daemon, revision=revision)
    if revision == NEWER:
        for number in range(2):
            wanted = {"toolsListChanged": bool(number)}
            client.send("subscriptions/listen", {"notifications": wanted})
            client.told("notifications/subscriptions/acknowledged")
    asked = client.send("tools/call", {"name": "echo", "arguments": {"text": "last"}})
    assert client.process.stdin is not None
    client.process.stdin.close()
    client.process.stdin = None
    assert "result" in client.answer(asked)
    assert client.process.wait() == 0
