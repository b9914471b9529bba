"""What each released version kept is carried over: `store/released` has a journal of each.

A file there is `sqlite3`'s dump of the journal of a daemon that was killed with an invocation of
its module `echo` in flight. It had a session of root's, `kept`, in which `echo` had been invoked
twice: each time it patched the state, and named an asset.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

from protocol.version import VERSION
from supervisor.kernel.kernel import JournalOptions
from supervisor.policy.principals import Principal
from tests.kernel.conftest import daemon_with, own

RELEASED = Path(__file__).with_name("store") / "released"
ROOT = Principal("root", "socket")


def test_each_released_version_has_a_journal_here() -> None:
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[?(\d[^\]\s]*)", text, re.MULTILINE)
    assert {*versions, VERSION} <= {path.stem for path in RELEASED.iterdir()}


@pytest.mark.parametrize("version", sorted(path.stem for path in RELEASED.iterdir()))
async def test_a_journal_of_an_earlier_version_is_carried_over(
    version: str, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o700)
    with contextlib.closing(sqlite3.connect(data_dir / "journal.db")) as connection:
        connection.executescript((RELEASED / f"{version}.sql").read_text(encoding="utf-8"))
    async with daemon_with(tmp_path, memory=JournalOptions()) as daemon:
        (session,) = (await own(daemon, ROOT, "session.list"))["sessions"]
        shown = await own(daemon, ROOT, "session.show", session_id=session["session_id"])
        assert (shown["title"], shown["revision"]) == ("kept", 2)
        assert shown["state"] == {"count": 7, "big": 123456789012345678901234567890}
        assert [one["op"] for one in shown["history"]][:2] == ["go", "go"]
        found = await own(daemon, ROOT, "asset.list")
        assert [one["asset_id"] for one in found["assets"]] == ["a", "a"]
        status = (await own(daemon, ROOT, "status"))["daemon"]["journal"]
        assert not status["set_aside"]
