"""Clients that nobody here wrote, on `stdiod mcp` and on `/mcp`; `make test-mcp` installs them.

PyPI's `mcp` does all that it can in each of its modes; the Inspector's command line is given the
very entry that stands in a client's file.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scripts.foreign import INSPECTOR, PYTHON
from tests.faces.mcp.clients import FIXTURES
from tests.mcp.servers import BOUND_S, needs_servers, skip_unless_installed
from tests.system.conftest import StartDaemon, folder, start_daemon
from tests.system.daemon import Daemon
from tests.system.descriptors import PATIENT, descriptor
from tests.system.test_host_calls import policy
from tests.system.test_mcp_questions import stdiod

__all__ = ["folder", "start_daemon"]

pytestmark = [needs_servers, pytest.mark.bound(300)]

SDK = Path(__file__).with_name("sdk_client.py")
NEWER, OLDER = "2026-07-28", "2025-11-25"
MODES = {"auto": NEWER, NEWER: NEWER, "legacy": OLDER}

OF_THE_ERA = {"_meta", "resultType", "ttlMs", "cacheScope"}
"""What a result of the newer era has beside what was asked for."""

VIEW = '[mcp.views.default]\nmodules = ["fixtures"]\nprefix = false\n'


@pytest.fixture
def daemon(start_daemon: StartDaemon, tmp_path: Path) -> Daemon:
    """A daemon of the module that has all that MCP has, with an address of its own."""
    supervision = {"timeouts": PATIENT, "concurrency": 16}
    command = [sys.executable, "-I", "-S", str(FIXTURES)]
    document = descriptor("fixtures", command, supervision=supervision)
    document["capabilities"] = ["user.ask", "model.sample", "roots.list"]
    config = tmp_path / "stdiod.toml"
    config.write_text(VIEW, encoding="utf-8")
    options = ("--config", str(config), "--http", "127.0.0.1:0", *policy(tmp_path))
    return start_daemon(document, options=options)


def entry(daemon: Daemon) -> list[str]:
    """Return what a client has to run."""
    stdiod = Path(sys.executable).with_name("stdiod")
    return [str(stdiod), "mcp", "--socket", str(daemon.socket)]


def address(daemon: Daemon) -> tuple[str, str]:
    """Return the URL and a token."""
    token = stdiod(daemon, "token", "new", "clients").stdout.split()[0]
    return f"{daemon.op('status')['daemon']['http']}/mcp", token


def output(command: list[str], **environment: str) -> Any:
    env = {**os.environ, **environment}
    ended = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=BOUND_S
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_sdk_does_all_that_it_can_in_each_mode(daemon: Daemon) -> None:
    skip_unless_installed(PYTHON)
    ways = {"stdio": entry(daemon), "http": [*address(daemon)]}
    python = [str(PYTHON.bin / "python"), str(SDK)]
    runs = [(mode, way) for mode in MODES for way in ways]
    with ThreadPoolExecutor(2) as pool:
        told = pool.map(lambda one: output([*python, one[0], *ways[one[1]]]), runs)
        found = dict(zip(runs, told, strict=True))
    for (mode, way), seen in found.items():
        assert seen.pop("version") == MODES[mode], (mode, way)
        assert seen == found[runs[0]], (mode, way)
    seen = found[runs[0]]
    assert seen["server"] == "stdiod"
    assert seen["tools"] > 20
    assert seen["text"] == "This is a simple text response for testing."
    assert seen["kinds"] == ["text", "image", "resource"]
    assert seen["image"] == seen["blob"][1] == "iVBORw0K"
    assert [done for done, _ in seen["progress"]] == [0, 50, 100]
    assert [one.split()[-1] for one in seen["logs"]] == ["started", "data", "completed"]
    assert seen["failed"] == [True, "This tool intentionally returns an error for testing"]
    assert "ada" in seen["elicited"]
    assert "blue" in seen["rounds"]
    assert seen["sampled"] == "LLM response: to: hi"
    assert seen["roots"] == "roots: file:///srv"
    assert seen["unknown tool"] == seen["no resource"] == -32602
    assert len(seen["prompts"]) == 5
    assert seen["prompt"] == "Prompt with arguments: arg1='one', arg2='two'"
    assert len(seen["resources"]) == 3
    assert seen["templates"] == ["test://template/{id}/data"]
    assert seen["completed"] == ["paris", "park", "party"]


INSPECTED = {
    "tools/list": (),
    "tools/call": ("--tool-name", "test_multiple_content_types"),
    "resources/read": ("--uri", "test://static-binary"),
    "prompts/get": (
        *("--prompt-name", "test_prompt_with_arguments"),
        *("--prompt-args", "arg1=one", "arg2=two"),
    ),
}


def test_the_inspector_is_told_the_same_on_stdio_and_over_http_in_both_eras(
    daemon: Daemon, tmp_path: Path
) -> None:
    skip_unless_installed(INSPECTOR)
    command, *args = entry(daemon)
    url, token = address(daemon)
    headers = {"Authorization": f"Bearer {token}"}
    servers = {
        "stdio": {"command": command, "args": args},
        "http": {"type": "streamable-http", "url": url, "headers": headers},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    programs = INSPECTOR.bin
    inspector = [
        str(programs / "mcp-inspector"),
        "--cli",
        "--config",
        str(file),
        "--format",
        "json",
    ]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    runs = list(itertools.product(INSPECTED, servers, ("legacy", "modern")))

    def inspected(run: tuple[str, str, str]) -> Any:
        method, way, era = run
        how = ["--server", way, "--protocol-era", era, "--method", method, *INSPECTED[method]]
        found = output([*inspector, *how], PATH=path, HOME=str(tmp_path))["result"]
        return {member: said for member, said in found.items() if member not in OF_THE_ERA}

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(runs, pool.map(inspected, runs), strict=True))
    for (method, way, era), said in found.items():
        assert said == found[method, "stdio", "legacy"], (method, way, era)
    tools, call, resource, prompt = (found[one, "stdio", "legacy"] for one in INSPECTED)
    assert len(tools["tools"]) > 20
    assert [one["type"] for one in call["content"]] == ["text", "image", "resource"]
    assert resource["contents"][0]["blob"].startswith("iVBORw0K")
    said = prompt["messages"][0]["content"]["text"]
    assert said == "Prompt with arguments: arg1='one', arg2='two'"
