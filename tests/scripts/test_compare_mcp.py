"""The comparison with other hosts of MCP: what it reads from a host is what the host did."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.compare_mcp import clients
from scripts.compare_mcp.__main__ import BEGIN, END, PAGE
from scripts.compare_mcp.faults import BY_KEY
from scripts.compare_mcp.hosts import HOSTS, SERVER, Stdiod
from scripts.compare_mcp.table import written_into


def test_the_page_has_a_row_for_each_fault_and_keeps_what_is_around_them() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition(BEGIN)[2].partition(END)[0]
    for fault in BY_KEY.values():
        assert table.count(f"| {fault.title} | ") == 1
    assert all(host.name in table for host in HOSTS)
    assert written_into(page, table.strip() + "\n", BEGIN, END) == page


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


def test_clients_share_a_fleet_or_start_their_own() -> None:
    shared, alone = (clients.lived(kind, 2, 3) for kind in (clients.Shared, clients.Alone))
    assert alone.processes == 6
    # Two relays, the daemon and its guardian, and the servers once.
    assert shared.processes == 7
    page = clients.PAGE.read_text(encoding="utf-8")
    table = page.partition(clients.BEGIN)[2].partition(clients.END)[0]
    assert f"{clients.CLIENTS} clients, {clients.SERVERS} servers" in table
    assert written_into(page, table.strip() + "\n", clients.BEGIN, clients.END) == page
