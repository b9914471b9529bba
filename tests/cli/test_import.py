from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run


def servers(path: Path, **of: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": of}))
    return str(path)


def test_a_descriptor_is_written_for_each_server_and_the_rest_is_said(
    run: Run, tmp_path: Path
) -> None:
    file = servers(
        tmp_path / ".cursor" / "mcp.json",
        here={"command": "true", "args": ["${workspaceFolder}"]},
        far={"url": "https://x"},
    )
    into = tmp_path / "new" / "modules"
    result = run("import", file, "--into", str(into))
    assert result.exit_code == 1
    left_out = f"far: left out\n  {file}: /mcpServers/far/url: means HTTP"
    assert f"here: {into / 'here.json'}\n{left_out}" in result.stdout
    assert result.stderr == "1 of 2 servers imported\n"
    assert [one.name for one in into.iterdir()] == ["here.json"]
    assert json.loads((into / "here.json").read_text())["transport"]["command"][1] == str(tmp_path)
    assert run("validate", str(into)).exit_code == 0


def test_what_is_there_is_not_overwritten_unless_that_is_asked_for(
    run: Run, tmp_path: Path
) -> None:
    file = servers(tmp_path / "mcp.json", here={"command": "x"})
    path = tmp_path / "here.json"
    path.write_text("mine")
    result = run("import", file, "--into", str(tmp_path), "--json")
    [entry] = json.loads(result.stdout)["servers"]
    assert (result.exit_code, entry["written"]) == (1, None)
    assert "--force" in entry["remarks"][0]
    assert run("import", file, "--into", str(tmp_path), "--force", "--dry-run").exit_code == 0
    assert path.read_text() == "mine"
    assert run("import", file, "--into", str(tmp_path), "--force").exit_code == 0
    assert json.loads(path.read_text())["name"] == "here"


def test_a_file_that_is_none_is_named(run: Run, tmp_path: Path) -> None:
    for text, words in (
        ("{}", "mcpServers"),
        ("{", "the JSON ends"),
        ('{\n  // one\n  "a": }', "line 3 column 8"),
        ("{\n  /* two", "line 2 column 3"),
        ('{"a": 1, "a": 2}', "more than once"),
    ):
        path = tmp_path / "x.json"
        path.write_text(text)
        result = run("import", str(path))
        assert result.exit_code == 1
        assert words in result.stderr


def test_comments_and_trailing_commas_are_read_and_what_looks_like_one_in_a_text_is_kept(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / ".vscode" / "mcp.json"
    path.parent.mkdir()
    (tmp_path / ".env").write_text("LEVEL=7\n")
    path.write_text("""{
      // the servers
      "inputs": [{"id": "key", "type": "promptString", "password": true,},],
      "servers": {
        "a": {
          "command": "true", /* of
          two lines */ "args": ["http://x/*y*/", "a,]", "\\"//"],
          "env": {"KEY": "${input:key}"}, "envFile": "${workspaceFolder}/.env",
        },
      },
    }""")
    result = run("import", str(path), "--into", str(tmp_path / "new"))
    assert result.exit_code == 0
    transport = json.loads((tmp_path / "new" / "a.json").read_text())["transport"]
    assert transport["command"] == ["true", "http://x/*y*/", "a,]", '"//']
    assert (transport["env"], transport["pass_env"]) == ({"LEVEL": "7"}, ["KEY"])
    assert f"{path}: /servers/a/env/KEY: is asked for there: set KEY" in result.stdout
