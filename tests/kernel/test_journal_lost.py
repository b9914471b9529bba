"""A journal that is lost while its daemon runs: all that is kept is in the one that follows it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.model import Descriptor
from supervisor.kernel.journal import FILE
from supervisor.kernel.kernel import JournalOptions, Kernel
from tests.factories import PYTHON, actor, descriptor, open_files
from tests.kernel.conftest import ask, daemon_with, own
from tests.kernel.host_calls import PROMPT, allowing, caller, payload, question, results
from tests.kernel.memory import flushed, until
from tests.kernel.memory import journal as remembered
from tests.principals import ADA

DESCRIBED = """
import json, sys
for line in sys.stdin:
    frame = json.loads(line)
    said = {"status": "ok"} if frame["operation"] == "health" else {"ok": True, "result": 4}
    if frame["operation"] == "describe":
        said = {"name": "d", "kind": "tool", "inputs": {"roll": {"type": "object"}}}
    print(json.dumps({"requestId": frame["requestId"], **said}), flush=True)
"""


def modules(folder: Path) -> tuple[Descriptor, ...]:
    lazy = {"start": "lazy"}
    described = descriptor(folder, [*PYTHON, "-c", DESCRIBED], name="d", supervision=lazy)
    return actor(folder), caller(folder, "a"), described


async def something_of_each_kind(daemon: Kernel, folder: Path) -> None:
    """Have the daemon keep a session, an asset, a token, an answer and a description."""
    await own(daemon, ADA, "session.new", session_id="s", title="kept", state={"n": 1})
    patch = {"session_id": "s", "patch": {"n": 2, "more": [1]}}
    await own(daemon, ADA, "session.patch", **patch)
    (folder / "file").write_bytes(b"hello")
    path = str(folder / "file")
    event = {"type": "asset", "assetId": "x", "kind": "k", "mediaType": "text/plain", "path": path}
    lines = [json.dumps({"version": "0", **one}) for one in (event, {"type": "done", "ok": True})]
    assert (await ask(daemon, "m", "say", args={"lines": lines}).document())["ok"]
    await own(daemon, ADA, "token.new", name="bob")
    asker = ask(daemon, "a", "calls", args={"calls": [payload("log", message="x")], "lines": []})
    asked = await question(daemon)
    await own(daemon, ADA, "approve", id=asked["id"], answer="allow always")
    assert (await asker.document())["ok"]
    assert (await ask(daemon, "d", "roll").document())["ok"]


async def kept(daemon: Kernel) -> dict[str, Any]:
    """Return all that outlives a daemon, as its ops show it."""
    shown = {
        "sessions": await own(daemon, ADA, "session.list"),
        "session": await own(daemon, ADA, "session.show", session_id="s"),
        "assets": await own(daemon, ADA, "asset.list"),
        "tokens": await own(daemon, ADA, "token.list"),
        "answers": (await own(daemon, ADA, "policy.show"))["answers"],
        "ops": (await own(daemon, ADA, "status", module="d"))["ops"],
    }
    shown["ops"].pop("remembered")
    return shown


async def journal(daemon: Kernel) -> dict[str, Any]:
    found: dict[str, Any] = (await own(daemon, ADA, "status"))["daemon"]["journal"]
    return found


def removed(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def replaced(path: Path) -> None:
    removed(path)
    path.touch()


def set_back(path: Path) -> None:
    """Put a copy in its place that has the first entries and no document."""
    copy = path.with_name("copy")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", [str(copy)])
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.execute("DELETE FROM events WHERE seq > 3")
        connection.execute("DELETE FROM documents")
        connection.commit()
    for ending in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{ending}").unlink()
    copy.rename(path)


@pytest.mark.fault(43)
async def test_what_was_removed_does_not_come_back_with_a_file_that_is_put_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data" / "journal.db"
    options: dict[str, Any] = {"memory": JournalOptions()}
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        await own(daemon, ADA, "session.new", session_id="s")
        for name in ("kept", "revoked"):
            await own(daemon, ADA, "token.new", name=name)
        copy = path.with_name("copy")
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM INTO ?", [str(copy)])
        await own(daemon, ADA, "token.revoke", name="revoked")
        before = await journal(daemon)
        removed(path)
        copy.rename(path)
        await own(daemon, ADA, "token.new", name="late")
        while (after := await journal(daemon))["id"] == before["id"] or after["problem"]:
            await trio.lowlevel.checkpoint()
        assert list(open_files().values()).count(f"{path}-last") == 1
    async with daemon_with(tmp_path, actor(tmp_path), **options) as daemon:
        assert [one["name"] for one in (await own(daemon, ADA, "token.list"))["tokens"]] == [
            "kept",
            "late",
        ]
        assert (await own(daemon, ADA, "session.show", session_id="s"))["revision"] == 0


async def test_a_daemon_that_began_without_its_journal_removes_nothing_from_one_put_back(
    tmp_path: Path,
) -> None:
    path, backup = tmp_path / FILE, tmp_path / "backup"
    backup.mkdir()
    async with remembered(backup) as kept:
        kept.keep("card", "a", b"{}")
        assert await flushed(kept) is None
        another = kept.state.journal
    path.mkdir()
    async with remembered(tmp_path) as kept:
        path.rmdir()
        await until(kept, well=True)
        removed(path)
        (backup / FILE).rename(path)
        kept.record("daemon:stop", data={"cause": "a test"})
        while kept.state.journal != another:
            await trio.lowlevel.checkpoint()
        await until(kept, well=True)
    async with remembered(tmp_path) as kept:
        assert kept.restored.kinds == {"card": [("a", b"{}")]}


def damaged(path: Path) -> None:
    wal = path.with_name(f"{path.name}-wal")
    wal.write_bytes(b"\xff" * wal.stat().st_size)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


NOW = "the daemon cannot store anything now"


@pytest.mark.fault(43)
@pytest.mark.parametrize("lose", [removed, replaced, set_back, damaged])
async def test_what_is_kept_is_kept_anew_when_the_journal_was_lost(
    lose: Callable[[Path], None], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"memory": JournalOptions(), "operator": allowing(tmp_path, PROMPT)}
    async with daemon_with(tmp_path, *modules(tmp_path), **options) as daemon:
        await something_of_each_kind(daemon, tmp_path)
        before = await journal(daemon)
        path = tmp_path / "data" / "journal.db"
        lose(path)
        if lose is damaged:
            await own(daemon, ADA, "events", since=0)
        said = await own(daemon, ADA, "token.new", name="late")
        if lose is not damaged:
            words = f"{path}: it was removed or replaced"
            assert said == f"it is done, but could not be stored: {NOW}: {words}"
        while (after := await journal(daemon))["id"] == before["id"] or after["problem"]:
            await trio.lowlevel.checkpoint()
        assert len(after["set_aside"]) == (lose is damaged)
        assert ("set_back" in after) is (lose is not damaged)
        assert after["last_seq"] >= before["last_seq"]
        shown = await kept(daemon)
        assert [one["name"] for one in shown["tokens"]["tokens"]] == ["bob", "late"]
    async with daemon_with(tmp_path, *modules(tmp_path), **options) as daemon:
        assert await kept(daemon) == shown
        [found] = await results(daemon, payload("log", message="x"))
        assert found["is_error"] is False
        assert (await journal(daemon))["id"] == after["id"]
