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
    assert f"here: {into / 'here.json'}\nfar: left out\n  it speaks over HTTP" in result.stdout
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
        ('{"a": 1, "a": 2}', "more than once"),
    ):
        path = tmp_path / "x.json"
        path.write_text(text)
        result = run("import", str(path))
        assert result.exit_code == 1
        assert words in result.stderr
