"""The comparison with other hosts of MCP: what it reads from a host is what the host did."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.compare_mcp.__main__ import BEGIN, END, PAGE, written_into
from scripts.compare_mcp.faults import BY_KEY
from scripts.compare_mcp.hosts import HOSTS, SERVER, Stdiod


def test_the_page_has_a_row_for_each_fault_and_keeps_what_is_around_them() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition(BEGIN)[2].partition(END)[0]
    for fault in BY_KEY.values():
        assert table.count(f"| {fault.title} | ") == 1
    assert all(host.name in table for host in HOSTS)
    assert written_into(page, table.strip() + "\n") == page


def test_the_server_that_all_of_them_run_answers_and_is_known_by_its_births(
    tmp_path: Path,
) -> None:
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "server/discover"},
        {"id": 4, "method": "tools/call", "params": {"name": "echo"}},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in asked)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SERVER), str(tmp_path)],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}
    (birth,) = tmp_path.iterdir()
    assert birth.read_text() == "server"
    assert answers[3]["error"]["code"] == -32601
    assert answers[4]["result"]["content"][0]["text"] == f"echo from {birth.name}"


def test_faults_are_played_through_this_checkout_as_a_host(tmp_path: Path) -> None:
    host = Stdiod(tmp_path, *BY_KEY["killed"].flags)
    try:
        host.start()
        assert BY_KEY["newer"].scene(host) == "served"
        assert BY_KEY["killed"].scene(host) == "0 of 3"
    finally:
        host.end()
