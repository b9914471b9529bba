"""Nothing but stamps uses the wall clock, so a clock that jumps a day changes no timer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WALL_CLOCKS = {
    ("time", name)
    for name in ("time", "time_ns", "localtime", "gmtime", "ctime", "strftime", "CLOCK_REALTIME")
} | {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}

STAMPS = {
    "supervisor/runtime/supervision/host.py",  # hands it down, for stamps
    "supervisor/runtime/supervision/prepare.py",  # of what it logs, also without a daemon
    "supervisor/runtime/stalls.py",  # the stamp of the longest stall, for people
    "supervisor/edge/http/sse.py",  # the stamps of events in the vocabulary of AMCP
    "supervisor/runtime/files/file_digest.py",  # compared with the stamps of files, no timer
    "supervisor/cli/quantities.py",  # `--since 10m`, and "2 minutes ago", for people
    "supervisor/cli/examination.py",  # how long ago a module failed
    "supervisor/cli/status_text.py",  # the same
    "supervisor/cli/verbs/top.py",  # the stamp of a line of figures
    "supervisor/cli/one_module.py",  # when a transcript was recorded
    "supervisor/cli/verbs/writing.py",  # the same, of a new module's test
    "supervisor/cli/developing.py",  # the stamp of a line that passed
    "supervisor/kernel/operations/events.py",  # the same, of a recording
    "supervisor/daemon/project_trust.py",  # when a project was trusted
    "supervisor/kernel/kernel.py",  # its clock, unless it is given one
    "supervisor/kernel/journal.py",  # the stamps of entries
    "supervisor/kernel/recorder.py",  # the same, where there is no journal
    "supervisor/kernel/store/retention.py",  # compared with those; it looks for jumps itself
}


def wall_clocks(source: str) -> list[str]:
    """Return where a source uses the wall clock, whatever it imports it as."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Attribute(value=ast.Name(id=owner), attr=name)
                | ast.Attribute(value=ast.Attribute(attr=owner), attr=name)
            ):
                if (owner, name) in WALL_CLOCKS:
                    found.append(f"{node.lineno}: {owner}.{name}")
            case ast.ImportFrom(module="time", names=names):
                found += [f"{node.lineno}: from time import {one.name}" for one in names]
            case ast.Import(names=names):
                found += [
                    f"{node.lineno}: import {one.name} as {one.asname}"
                    for one in names
                    if one.name in ("time", "datetime") and one.asname not in (None, "dt")
                ]
    return found


def test_the_wall_clock_is_read_where_stamps_are_made_and_nowhere_else() -> None:
    users = {
        str(path.relative_to(ROOT)): found
        for folder in ("protocol", "supervisor", "schemas")
        for path in (ROOT / folder).rglob("*.py")
        if (found := wall_clocks(path.read_text(encoding="utf-8")))
    }
    assert {path: found for path, found in users.items() if path not in STAMPS} == {}
    assert "supervisor/runtime/supervision/host.py" in users


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time\nclock = time.time",
        "from time import time",
        "import time as t\nt.time()",
        "import datetime as dt\ndt.datetime.now(dt.UTC)",
        "from datetime import datetime\ndatetime.utcnow()",
        "import time\ntime.clock_gettime(time.CLOCK_REALTIME)",
    ],
)
def test_every_way_to_the_wall_clock_is_seen(source: str) -> None:
    assert wall_clocks(source)


def test_monotonic_clocks_are_nobodys_business() -> None:
    assert not wall_clocks(
        "import time\ntime.monotonic()\ntime.clock_gettime_ns(time.CLOCK_MONOTONIC)"
    )
