from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import ok, status


def servers(path: Path, **of: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": of}))
    return str(path)


def transport(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["transport"]
    return found


def test_a_file_of_ten_kinds_of_server_is_imported_and_the_wrong_program_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("npx", "uvx", "docker", "python3"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    (project / "srv.py").write_text("")
    (project / "tools" / "here").write_text("#!/bin/sh\n")
    (project / "tools" / "here").chmod(0o755)
    (project / ".env").write_text("OF_FILE=1\n")
    file = servers(
        project / ".cursor" / "mcp.json",
        npx={"command": "npx", "args": ["-y", "x"]},
        uvx={"command": "uvx", "args": ["x"]},
        docker={"command": "docker", "args": ["run", "-it", "-e", "A_TOKEN=sk-hidden", "x"]},
        python={"command": "python3", "args": ["srv.py"]},
        here={"command": "./tools/here", "args": ["${workspaceFolder}"]},
        off={"command": "missing-program", "disabled": True},
        far={"url": "https://x/mcp", "headers": {"Authorization": "Bearer hidden"}},
        defaults={"command": "python3", "args": ["srv.py", "${NOT_SET_ANYWHERE:-x}"]},
        env={"command": "python3 srv.py ${env:OF_FILE}", "envFile": "${workspaceFolder}/.env"},
        wrong={"command": "missing-program"},
    )  # fmt: skip
    into = tmp_path / "new" / "modules"
    result = run("import", file, "--into", str(into))
    assert result.exit_code == 1
    assert result.stderr == "10 of 10 servers imported, 1 cannot start: wrong\n"
    assert result.stdout.endswith(f"\nnext: stdiod up {into}\n")
    assert f"\noff: {into / 'off.json'} (disabled)\n" in result.stdout
    last = result.stdout.split(f"wrong: {into / 'wrong.json'}\n")[1]
    assert "there is no program 'missing-program' in its PATH" in last
    assert "hidden" not in result.stdout + "".join(one.read_text() for one in into.glob("*.json"))
    assert (into / "docker.env").read_text() == 'A_TOKEN="sk-hidden"\n'
    assert stat.S_IMODE((into / "docker.env").stat().st_mode) == 0o600
    assert transport(into / "here.json")["command"] == [f"{project}/tools/here", str(project)]
    assert transport(into / "python.json")["cwd"] == str(project)
    assert transport(into / "env.json")["env_file"] == [f"{project}/.env"]
    again = servers(project / ".mcp.json", off={"command": "missing-program", "disabled": True})
    assert run("import", again, "--into", str(tmp_path / "off")).exit_code == 0


def test_what_is_there_is_not_overwritten_unless_that_is_asked_for(
    run: Run, tmp_path: Path
) -> None:
    file = servers(tmp_path / "mcp.json", here={"command": "true", "env": {"KEY": 'a"$b\\\nc'}})
    path, env = tmp_path / "here.json", tmp_path / "here.env"
    path.symlink_to(tmp_path / "nowhere")
    result = run("import", file, "--into", str(tmp_path), "--json")
    [entry] = json.loads(result.stdout)["servers"]
    assert (result.exit_code, entry["written"]) == (1, None)
    assert "--force" in entry["remarks"][-1]
    path.unlink()
    path.write_text("{}")
    result = run("import", file, "--into", str(tmp_path))
    assert (result.exit_code, path.read_text()) == (0, "{}")
    assert f"{path} is there already (--force replaces it)\n" in result.stdout
    assert result.stderr == "0 of 1 server imported, 1 there already\n"
    path.unlink()
    assert run("import", file, "--into", str(tmp_path), "--force", "--dry-run").exit_code == 0
    assert not env.exists()
    assert not path.exists()
    path.symlink_to(tmp_path / "nowhere")
    assert run("import", file, "--into", str(tmp_path), "--force").exit_code == 0
    assert json.loads(path.read_text())["name"] == "here"
    assert env.read_text() == 'KEY="a\\"\\$b\\\\\\nc"\n'
    assert not (tmp_path / "nowhere").exists()


def test_all_unset_variables_are_named_where_they_stand_with_what_to_do(
    run: Run, tmp_path: Path
) -> None:
    lacking = {"command": "true", "env": {"LACKING": "${LACKING}"}}
    both = {"command": "true", "args": ["${NO_A}"], "env": {"AUTH": "Bearer ${NO_B}"}}
    file = servers(tmp_path / "mcp.json", tickets=lacking, both=both)
    result = run("import", file, "--into", str(tmp_path / "new"))
    assert result.exit_code == 1
    folder = tmp_path / "new"
    for words in (
        "needs LACKING, which is not set, and starts without it: put `LACKING=...` into",
        f' {folder}/tickets.env and `"env_file": "tickets.env"` into its transport, then `stdiod',
        ' restart tickets`; if it is optional, write "LACKING?" in pass_env',
        "/transport/command/1: uses ${NO_A}, which is not set; put `NO_A=...` into",
        "/transport/env/AUTH: uses ${NO_B}, which is not set; put `NO_B=...` into",
    ):
        assert words in result.stdout
    assert ", 1 cannot start, 1 without a variable: tickets, both\n" in result.stderr


def test_a_daemon_that_runs_on_the_directory_picks_them_up(
    run: Run, serve: Serve, tmp_path: Path
) -> None:
    shown = status()
    shown["daemon"]["directories"] = [str(tmp_path / "new")]
    serve(lambda frame: [ok(shown)])
    file = servers(tmp_path / "mcp.json", good={"command": "true"})
    served = run("import", file, "--into", str(tmp_path / "new"))
    assert served.stdout.endswith("the running daemon picks them up; next: stdiod status\n")
    other = run("import", file, "--into", str(tmp_path / "other"))
    assert other.stdout.endswith(f"next: stdiod up {tmp_path}/other\n")


def test_a_dry_run_writes_nothing_and_tells_what_cannot_start(run: Run, tmp_path: Path) -> None:
    file = servers(tmp_path / "mcp.json", here={"command": "missing-program"})
    result = run("import", file, "--into", str(tmp_path / "new"), "--dry-run", "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["ok"], said["next"]) == (1, False, None)
    assert "missing-program" in said["servers"][0]["remarks"][-1]
    assert str(tmp_path / "new" / "here.json") in said["servers"][0]["remarks"][-1]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"command": "true", "args": ["${NOT_SET_ANYWHERE}"]}, "uses ${NOT_SET_ANYWHERE}, which"),
        ({"command": "true", "env": {"LACKING": "${LACKING}"}}, "needs LACKING, which is not set"),
        (
            {"command": "true", "env": {"A": "${input:not-set-anywhere}"}},
            "uses ${NOT_SET_ANYWHERE}",
        ),
        ({"command": "true", "cwd": "missing"}, "missing is not there"),
        ({"command": sys.executable, "args": ["missing.py"]}, "missing.py, which is not there"),
        ({"command": sys.executable, "args": ["x" * 300]}, "is told to run"),
        ({"command": sys.executable, "args": ["x" * 9000]}, "is told to run"),
        ({"command": "x" * 300}, "there is no program"),
        ({"command": f"./{'x' * 300}"}, "File name too long"),
        ({"command": "true", "cwd": "x" * 300}, "is not there"),
        ({"command": "true", "envFile": "x" * 300}, "File name too long"),
        ({"command": sys.executable, "args": ["ghp_a"]}, "told to run ${BAD_ARG}, which is not"),
        ({"command": "true", "envFile": "/dev/zero"}, "/dev/zero, which is not a regular file"),
        ({"command": "true", "envFile": "fifo"}, "fifo, which is not a regular file"),
        ({"command": "true", "envFile": "."}, "Is a directory"),
        ({"command": "true", "envFile": "dangling"}, "dangling, which is a dangling link"),
        ({"command": "true", "envFile": "large"}, "large, which is larger than"),
        (
            {"command": "true", "args": ["x"], "env": {"A": "${X:-${Y}}"}},
            "whose default is a variable",
        ),
    ],
    ids=str,
)
def test_why_a_server_cannot_start_is_named(
    run: Run, tmp_path: Path, server: Any, words: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "large").write_bytes(b"#" * ((1 << 20) + 1))
    file = servers(tmp_path / "mcp.json", good={"command": "true"}, bad=server)
    result = run("import", file, "--into", str(tmp_path / "new"), "--json")
    good, bad = json.loads(result.stdout)["servers"]
    assert result.exit_code == 1
    assert good["ok"] is True
    assert words in bad["remarks"][-1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "has no servers in mcpServers"),
        (b'{"mcpServers": {}}', "has no servers in mcpServers"),
        (b"[mcp_servers]\n", "has no servers in mcpServers"),
        (b"", "is empty"),
        (b"{", "the JSON ends"),
        (b'{\n  // one\n  "a": }', "line 3 column 8"),
        (b"{\n  /* two", "line 2 column 3"),
        (b'{"a": 1, "a": 2}', "more than once"),
        (b'{"a": "\xff"}', "is not UTF-8: byte 0xff"),
        ('{"a": 1}'.encode("utf-16"), "is UTF-16"),
        (b"[" * 200_000, "is nested more than"),
        (b"[mcp_servers.x]\ncommand = \n", "line 2, column 11"),
        (b"[mcp_servers.x]\n[mcp_servers.x]\n", "line 2"),
        (b"[mcp_servers.x]\na = '\xff'\n", "is not UTF-8: line 2, byte 0xff"),
        (b" " * (10 * 1024 * 1024 + 1), "is larger than"),
        ("fifo", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("folder", "Is a directory"),
        ("dangling", "is a dangling link"),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_file_that_is_none_is_named(
    run: Run, tmp_path: Path, data: bytes | str, words: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    path = tmp_path / (data if isinstance(data, str) else "x.json")
    if isinstance(data, bytes):
        path.write_bytes(data)
    result = run("import", str(path))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {path}: ")
    assert words in result.stderr


def test_comments_and_trailing_commas_are_read_and_what_looks_like_one_in_a_text_is_kept(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "x")
    path = tmp_path / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_text("""\ufeff{
      // the servers
      "inputs": [{"id": "key", "type": "promptString", "password": true,},],
      "servers": {
        "a": {
          "command": "true", /* of
          two lines */ "args": ["http://x/*y*/", "a,]", "\\"//"],
          "env": {"KEY": "${input:key}"},
        },
      },
    }""")
    result = run("import", str(path), "--into", str(tmp_path / "new"))
    assert result.exit_code == 0
    found = transport(tmp_path / "new" / "a.json")
    assert found["command"] == ["true", "http://x/*y*/", "a,]", '"//']
    assert (found["cwd"], found["pass_env"]) == (str(tmp_path), ["KEY"])
    assert "/servers/a/env/KEY: the client asks for ${input:" in result.stdout


def test_the_toml_of_codex_is_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(
        b'model = "x"\r\nday = 2026-01-01\r\n[mcp_servers."a.b"]\r\ncommand = "true"\r\n'
        b'env_vars = ["HOME", "NOT_SET_ANYWHERE"]\r\n'
        b'[mcp_servers."a.b".env]\r\nTOKEN = "hidden"\r\n'
        b'[mcp_servers.off]\r\ncommand = "x"\r\nenabled = false\r\n'
    )
    result = run("import", str(path), "--into", str(tmp_path / "new"))
    assert result.exit_code == 0
    assert transport(tmp_path / "new" / "a.b.json")["pass_env"] == ["HOME?", "NOT_SET_ANYWHERE?"]
    assert json.loads((tmp_path / "new" / "off.json").read_text())["enabled"] is False


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("p/.mcp.json", "p"),
        ("p/.vscode/mcp.json", "p"),
        ("p/.junie/mcp/mcp.json", "p"),
        ("p/servers.json", "p"),
        ("home/.cursor/mcp.json", "home"),
        ("home/.config/zed/settings.json", "home"),
        ("home/.claude.json", "home"),
        ("home/p/.mcp.json", "home/p"),
        ("home/p/.codex/config.json", "home/p"),
    ],
)
def test_a_server_runs_in_the_folder_that_its_file_is_about(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, folder: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = servers(tmp_path / file, a={"command": "true"})
    assert run("import", path, "--into", str(tmp_path / "new")).exit_code == 0
    assert transport(tmp_path / "new" / "a.json")["cwd"] == str(tmp_path / folder)


def test_a_file_that_is_not_there_is_a_wrong_argument(run: Run, tmp_path: Path) -> None:
    result = run("import", str(tmp_path / "mcp.jsno"))
    assert result.exit_code == 2
    assert "mcp.jsno' does not exist" in result.stderr
