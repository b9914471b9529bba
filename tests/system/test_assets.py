"""Files that modules hand over, and events for user interfaces, through a real daemon."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.descriptors import descriptor

DRAW = r"""
printf 'a picture' > picture
echo '{"version":"0","type":"ui_event","event":"drawn","payload":{"n":1}}'
echo '{"version":"0","type":"asset","assetId":"p","kind":"k","mediaType":"text/plain",'\
'"path":"picture"}'
echo '{"version":"0","type":"log","level":"info","message":"after"}'
echo '{"version":"0","type":"done","ok":true}'
"""


def painter() -> dict[str, Any]:
    return descriptor("painter", ["sh", "-c", DRAW], protocol="narratoria")


@pytest.fixture
def copying(folder: Path) -> tuple[str, str]:
    path = folder / "stdiod.toml"
    path.write_text('assets = "copy"\nasset_store_bytes = 12\n')
    return "--config", str(path)


def test_a_copy_outlives_the_file_and_the_store_is_bounded(
    start_daemon: StartDaemon, copying: tuple[str, str]
) -> None:
    daemon = start_daemon(painter(), options=copying)
    answer = daemon.invoke("painter")
    assert [one["type"] for one in answer.events] == ["ui_event", "asset", "log"]
    placeholder = "['drawn' cannot be shown: nothing here knows this event]"
    assert answer.events[0]["placeholder"] == placeholder
    registered = answer.events[1]["registered"]
    picture = Path(answer.events[1]["path"])
    assert registered["sha256"] == hashlib.sha256(b"a picture").hexdigest()
    assert daemon.op("asset.read", asset=registered["id"])["path"] == str(picture)
    picture.unlink()
    copy = Path(daemon.op("asset.read", asset=registered["id"])["path"])
    assert copy.read_text() == "a picture"
    assert daemon.data_dir in copy.parents
    assert daemon.invoke("painter").warnings == ["asset_not_copied"]
    status = daemon.op("status")["daemon"]
    assert status["assets"] == {"known": 1, "forgotten": 0, "copied_bytes": 9}
    assert status["ui"] == {"subscribers": 0, "placeholders": 2}


def test_without_copies_a_file_that_is_gone_is_said_to_be(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(painter())
    event = daemon.invoke("painter").events[1]
    Path(event["path"]).unlink()
    answer = daemon.client.op("asset.read", asset=event["registered"]["id"])
    assert answer.verdict == "bad_request/asset_changed"
    assert "No such file" in answer.details["changed"]["file"]
    assert not (daemon.data_dir / "assets").exists()


def test_a_file_is_found_by_its_id_or_four_of_its_characters_by_those_who_see_its_module(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(painter())
    named = daemon.invoke("painter").events[1]["registered"]["id"]
    for part in (named, named[:-1], named[:4]):
        assert daemon.op("asset.show", asset=part)["asset"] == named
    for part in (named[:3], named[0], f"{named}0", "nothing", named[1:]):
        assert daemon.client.op("asset.show", asset=part).verdict == "bad_request/unknown_asset"
    assert daemon.op("asset.show", asset="p")["asset"] == named, "what its module calls it"
    again = daemon.invoke("painter").events[1]["registered"]["id"]
    assert daemon.op("asset.show", asset="p")["asset"] == again, "the newest of that name"
    assert {one["asset"] for one in daemon.op("asset.list")["assets"]} == {named, again}
    with daemon.connect() as client:
        assert client.op("narrow", modules=["other"]).ok
        assert client.op("asset.list").result["assets"] == []
        assert client.op("asset.show", asset=named).verdict == "bad_request/unknown_asset"
        assert client.op("asset.read", asset=named).verdict == "bad_request/unknown_asset"


def test_a_subscriber_sees_the_events_of_others_until_it_cancels(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(painter())
    with daemon.connect() as watcher:
        request = {"op": "ui.subscribe", "args": {"events": ["dr*"]}}
        subscription = watcher.send("supervisor", "invoke", request)
        assert next(watcher.lines())["message"] == "watching for ui events"
        assert watcher.op("status").result["daemon"]["ui"]["subscribers"] == 1
        answer = daemon.invoke("painter")
        assert "placeholder" not in answer.events[0]
        seen = next(watcher.lines())
        assert (seen["requestId"], seen["event"]) == (subscription, "drawn")
        assert seen["origin"]["module"] == "painter"
        assert seen["origin"]["request_id"] == answer.done["request_id"]
        watcher.cancel(subscription)
        assert watcher.answer(subscription).verdict == "cancelled/client"
        until(
            lambda: not watcher.op("status").result["daemon"]["ui"]["subscribers"],
            "the end of the subscription",
        )
