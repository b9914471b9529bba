from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.connection import Notice
from protocol.events import Asset
from supervisor.kernel.asset_files import resolve
from tests.factories import script
from tests.kernel.conftest import ask, daemon_with


def asset(path: str) -> Asset:
    return Asset(version="0", asset_id="a1", kind="chart", media_type="image/png", path=path)


def test_a_relative_path_starts_from_the_folder_of_the_module(tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_text("x")
    resolved = resolve(asset("chart.png"), str(tmp_path))
    assert isinstance(resolved, Asset)
    assert resolved.path == str(tmp_path / "chart.png")


def test_an_absolute_path_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_text("x")
    resolved = resolve(asset(str(tmp_path / "chart.png")), "/elsewhere")
    assert isinstance(resolved, Asset)
    assert resolved.path == str(tmp_path / "chart.png")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("gone.png", "No such file"),
        (".", "no regular file"),
        ("a\0b", "null"),
        ("x" * 5000, "too long"),
        ("loop", "symbolic links"),
        ("", "no regular file"),
        ("file/below", "Not a directory"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    refusal = resolve(asset(path), str(tmp_path))
    assert isinstance(refusal, Notice)
    assert refusal.reason == "unreadable_path"
    assert words in refusal.message
    assert len(refusal.message) < 500


async def test_the_client_gets_a_path_it_can_open_and_a_warning_for_one_it_cannot(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    lines: list[dict[str, Any]] = [
        {"type": "asset", "assetId": "a", "kind": "k", "mediaType": "text/plain", "path": "made"},
        {"type": "asset", "assetId": "b", "kind": "k", "mediaType": "text/plain", "path": "none"},
        {"type": "done", "ok": True},
    ]
    body = "touch made\n" + "".join(
        f"echo '{json.dumps({'version': '0', **line})}'\n" for line in lines
    )
    async with daemon_with(tmp_path, script(tmp_path, body, transport={"cwd": "work"})) as daemon:
        asker = ask(daemon, "m")
        document = await asker.document()
        assert document["ok"] is True
        (event,) = asker.events
        assert isinstance(event, Asset)
        assert event.path == str(tmp_path / "work" / "made")
        (warning,) = document["warnings"]
        assert warning["reason"] == "unreadable_path"
