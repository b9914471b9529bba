"""The whole status of a daemon that has done nothing, and of a module before and after a call."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from protocol.version import VERSION
from tests.factories import actor, script
from tests.kernel.conftest import ask, own
from tests.kernel.service_peer import peer
from tests.kernel.virtual import Clock, story
from tests.principals import ADA

OF_THE_MACHINE = (
    "containment",
    "tool_containment",
    "guardian_pid",
    "rss_bytes",
    "open_files",
    "why_not_higher",
)


async def test_a_daemon_without_modules_has_done_nothing(tmp_path: Path, mock_clock: Clock) -> None:
    async with story(mock_clock, tmp_path) as world:
        await world.passes(5)
        shown = await own(world.kernel, ADA, "status")
        daemon = {key: one for key, one in shown["daemon"].items() if key not in OF_THE_MACHINE}
        assert shown["modules"] == shown["quarantined"] == []
        assert daemon == {
            "pid": os.getpid(),
            "version": VERSION,
            "uptime_s": 5.0,
            "guardian_problem": None,
            "spawner_pid": None,
            "blank_pid": None,
            "socket": None,
            "http": None,
            "project": None,
            "data_dir": str(tmp_path / "data"),
            "data_dir_problem": None,
            "directories": [],
            "reaped_orphans": 0,
            "left_containers": [],
            "held_bytes": {
                "total": 0,
                "most": 0,
                "limit": 256 << 20,
                "party_limit": 32 << 20,
                "parties": [],
                "more_parties": 0,
            },
            "connections": {"open": 0, "refused": 0},
            "dropped_log_bytes": 0,
            "log_error": None,
            "own_log": None,
            "spans": None,
            "longest_stall": None,
            "suspensions": {"count": 0, "total_s": 0.0, "last_s": None, "last_ts": None},
            "stuck": [],
            "journal": None,
            "reloads": 0,
            "refused": {},
            "last_reload": None,
            "leaving": [],
            "watch": {"mode": "off", "directories": 0, "reason": None},
            "assets": {"known": 0, "forgotten": 0, "copied_bytes": 0},
            "ui": {"subscribers": 0, "placeholders": 0},
            "sessions": {"live": 0, "busy": 0, "ended": 0},
            "policy": None,
            "approvals": {"waiting": 0, "followers": 0},
        }


SUPERVISION = {"health": {"interval_s": 10_000}, "timeouts": {"invoke_s": 1000}}


def status_of(folder: Path, **known: Any) -> dict[str, Any]:
    return {
        "name": "m",
        "kind": "tool",
        "version": None,
        "description": None,
        "url": None,
        "mcp": None,
        "wanted": "up",
        "start": "eager",
        "waits_for": [],
        "missing": [],
        "restarts": 0,
        "next_retry_s": None,
        "in_flight": 0,
        "queued": 0,
        "descriptor": str(folder / "m.json"),
        "unset_variables": [],
        "misfits": [],
        "quarantined": None,
        "instances": [],
        "last_exit": None,
        "counters": {
            "invocations": 0,
            "failures": 0,
            "late_lines": 0,
            "quarantined_lines": 0,
            "left_out_log_lines": 0,
        },
        "latency_ms": {"p50": None, "p99": None, "max": None, "count": 0},
        "ops": None,
        "hook": None,
        **known,
    }


@pytest.mark.parametrize("lifecycle", ["persistent", "per-invocation"])
async def test_a_module_shows_what_it_has_done_and_no_more(
    lifecycle: str, tmp_path: Path, mock_clock: Clock
) -> None:
    made = actor(tmp_path, transport={"lifecycle": lifecycle}, supervision=SUPERVISION)
    async with story(mock_clock, tmp_path, made) as world:
        known = {"protocol": "module", "lifecycle": lifecycle, "state": "ready"}
        stays = lifecycle == "persistent"
        first = await world.is_in("ready")
        instances = first["instances"]
        for one in instances:
            assert one.pop("pid") > 1
            assert one.pop("rss_bytes") > 0
            assert one.pop("cpu_s") >= 0
        shown = {
            "id": "m#1",
            "state": "ready",
            "uptime_s": 0.0,
            "in_flight": 0,
            "warning": None,
            "traced_by": None,
            "last_line": None,
        }
        assert instances == ([shown] if stays else [])
        expected = status_of(tmp_path, **known, instances=instances)
        assert first == expected
        assert (await ask(world.kernel, "m").document())["ok"]
        refused = json.dumps({"ok": False, "error": {"code": "odd", "message": "no"}})
        error = (await ask(world.kernel, "m", "say", args={"lines": [refused]}).document())["error"]
        assert (error["code"], error["message"]) == ("odd", "no")
        last = await world.status()
        for changing in ("instances", "latency_ms", "in_flight"):
            last.pop(changing)
            expected.pop(changing)
        counters = {**expected["counters"], "invocations": 2, "failures": 1}
        assert last == {**expected, "counters": counters}


async def test_a_tool_that_fails_shows_its_end_until_another_one_fails(
    tmp_path: Path, mock_clock: Clock
) -> None:
    body = "read line; case $line in *bad*) echo why >&2; exit 3;; esac; exit 4"
    async with story(mock_clock, tmp_path, script(tmp_path, body)) as world:
        await world.is_in("ready")
        for op, code in (("bad", 3), ("worse", 4)):
            await ask(world.kernel, "m", op).document()
            last = (await world.status())["last_exit"]
            assert last.pop("pid", 2) > 1
            assert (last["reason"], last["exit_code"], last["signal"]) == ("exited", code, None)


async def test_a_service_whose_variable_is_not_set_is_not_begun(
    tmp_path: Path, mock_clock: Clock
) -> None:
    headers = {"headers": {"authorization": "Bearer ${NO_SUCH_TOKEN}"}}
    async with peer() as services:
        made = services.service(tmp_path, "m", transport=headers)
        async with story(mock_clock, tmp_path, made) as world:
            status = await world.is_in("backoff")
            words = "cannot be asked: transport.headers.authorization uses ${NO_SUCH_TOKEN}"
            assert status["last_exit"]["message"] == f"{words}, which the daemon has not set"
            assert services.asked == []
