"""A client's file, imported and run as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.field.conftest import SERVERS, Connect
from tests.system.daemon import Daemon


def test_an_imported_server_runs_in_its_project_and_a_disabled_one_does_not(
    host: Callable[..., Daemon], connect: Connect, tmp_path: Path
) -> None:
    file = tmp_path / "project" / ".mcp.json"
    file.parent.mkdir()
    (file.parent / "srv.py").write_bytes(SERVERS.read_bytes())
    (file.parent / "servers.env").write_text("LEVEL=1\n")
    command = f"{sys.executable} -I -S ./srv.py plain"
    on = {"command": command, "envFile": "servers.env", "env": {"A_TOKEN": "hidden"}}
    off = {"command": command, "disabled": True}
    file.write_text(json.dumps({"mcpServers": {"on": on, "off": off}}))
    into = tmp_path / "imported"
    import_ = [sys.executable, "-m", "supervisor.cli", "import", str(file), "--into", str(into)]
    subprocess.run(import_, check=True, capture_output=True)
    documents = [json.loads(path.read_text()) for path in sorted(into.glob("*.json"))]
    assert [one.get("enabled", True) for one in documents] == [False, True]
    for one in documents:
        own = one["transport"].get("env_file", [])
        one["transport"]["env_file"] = [str(into / name) for name in own]
    daemon = host(*documents, prefix=True)
    tools = connect(daemon).tools()
    assert {name.split("__")[0] for name in tools} == {"on"}
