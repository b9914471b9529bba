"""Assets on their way through the pipeline: checked, in order, registered, kept."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from protocol.errors import Failure, Reason
from protocol.events import Asset, Log
from protocol.host_events import RegisteredAsset
from protocol.response import Response
from supervisor.kernel.assets import files as asset_files
from supervisor.kernel.assets import intake as asset_intake
from supervisor.kernel.assets import registry as assets
from supervisor.kernel.assets.files import CheckedFile
from supervisor.kernel.invocation import Invocation
from supervisor.kernel.kernel import AssetOptions, Kernel, Party, Times
from supervisor.policy.verdict import Stopped
from tests.factories import actor
from tests.kernel.conftest import Asker, run_op
from tests.kernel.conftest import daemon_with as daemon_with_times
from tests.kernel.remembering import FULL, Remembering
from tests.principals import ADA

GONE = Stopped(Reason.CLIENT, "the client cancelled the request")
LONG_S = 10_000.0


PATIENT = Times(asset_check_s=LONG_S, digest_s=LONG_S, flush_s=LONG_S)
"""No bound passes because the machine is slow."""

daemon_with = partial(daemon_with_times, times=PATIENT)


def asset(path: Any, asset_id: str = "a", **more: Any) -> dict[str, Any]:
    known = {"assetId": asset_id, "kind": "image", "mediaType": "image/png", "path": str(path)}
    return {"type": "asset", **known, **more}


def log(message: str) -> dict[str, Any]:
    return {"type": "log", "level": "info", "message": message}


DONE = {"type": "done", "ok": True}


def say(daemon: Kernel, *events: dict[str, Any], session: str | None = None) -> Asker:
    return begin(daemon, *events, session=session)[0]


def begin(
    daemon: Kernel, *events: dict[str, Any], session: str | None = None
) -> tuple[Asker, Invocation]:
    lines = [json.dumps({"version": "0", **event}) for event in events]
    asker = Asker()
    if session is not None and isinstance(daemon.sessions.find(session, ADA), Failure):
        daemon.sessions.new(ADA, session)
    content = {"op": "say", "args": {"lines": lines}, "session_id": session}
    invocation = daemon.requests.invoke(ADA, "m", content, asker)
    assert invocation is not None
    return asker, invocation


def kinds(asker: Asker) -> list[str]:
    return [one.message if isinstance(one, Log) else one.path for one in asker.events]  # type: ignore[union-attr]


def reasons(response: Response) -> list[str]:
    return [one.reason for one in response.notices]


class Gate:
    """Holds up the look at files whose name begins with `slow`, as a hung file system would."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self._look = asset_files._look

    def look(self, path: str, *args: Any, **kwargs: Any) -> CheckedFile:
        if Path(path).name.startswith("slow"):
            self.entered.release()
            self.open.wait(60)
        return self._look(path, *args, **kwargs)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(asset_files, "_look", gate.look)
    yield gate
    gate.open.set()


@pytest.mark.clause("N001-4.3-c")
@pytest.mark.clause("N001-4.3-d")
async def test_the_client_gets_a_path_it_can_open_and_a_warning_for_one_it_cannot(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "made").write_text("hello")
    recorder = Remembering()
    made = actor(tmp_path, transport={"cwd": "work"})
    async with daemon_with(tmp_path, made, recorder=recorder) as daemon:
        asker = say(
            daemon,
            asset("made", "a", metadata={"width": 3}),
            asset("none", "b"),
            asset("made", "a"),
            DONE,
            session="s-1",
        )
        response = await asker.response()
        assert response.ok
        (event,) = asker.events
        assert isinstance(event, RegisteredAsset)
        assert event.path == str(tmp_path / "work" / "made")
        assert event.registered.bytes == 5
        assert event.registered.sha256 == hashlib.sha256(b"hello").hexdigest()
        assert sorted(reasons(response)) == ["duplicate_asset", "unreadable_path"]
    (kept,) = recorder.assets()
    assert kept["asset"] == event.registered.id
    assert (kept["asset_id"], kept["module"], kept["session_id"]) == ("a", "m", "s-1")
    assert (kept["size"], kept["metadata"]) == (5, {"width": 3})
    (entry,) = recorder.of("artifact:write")
    assert entry["data"]["uri"] == f"file://{event.path}"
    assert entry["data"]["bytes"] == 5
    assert entry["data"]["asset"] == event.registered.id
    assert (entry["session_id"], entry["request_id"]) == ("s-1", response.request_id)


async def test_events_stay_in_order_around_assets(tmp_path: Path, gate: Gate) -> None:
    for name in ("slow", "quick"):
        (tmp_path / name).write_text(name)
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        events = [log("1"), asset("slow", "a"), log("2"), asset("quick", "b"), log("3"), DONE]
        asker = say(daemon, *events)
        await asker.heard(1)
        # Another request of the same module is answered meanwhile.
        other = say(daemon, log("other"), DONE)
        await other.response()
        assert (kinds(asker), asker.responses) == (["1"], [])
        gate.open.set()
        await asker.response()
        assert kinds(asker) == [
            "1", str(tmp_path / "slow"), "2", str(tmp_path / "quick"), "3",
        ]  # fmt: skip


async def test_a_hundred_assets_of_one_invocation(tmp_path: Path) -> None:
    events = []
    for number in range(100):
        (tmp_path / f"f{number}").write_text(str(number))
        events += [asset(f"f{number}", f"a{number}"), log(f"after {number}")]
    recorder = Remembering()
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder) as daemon:
        asker = say(daemon, *events, DONE)
        response = await asker.response()
        assert response.ok
        assert response.notices == ()
        expected = [(str(tmp_path / f"f{n}"), f"after {n}") for n in range(100)]
        assert kinds(asker) == [one for pair in expected for one in pair]
    assert len(recorder.of("artifact:write")) == 100
    assert len({one["asset"] for one in recorder.assets()}) == 100


async def test_no_more_is_read_while_too_many_events_wait(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "slow").write_text("x")
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        count = asset_intake.WAITING_EVENTS * 10
        logs = [log(f"{n} {'x' * 9000}") for n in range(count)]  # more than a pipe holds
        asker, invocation = begin(daemon, asset("slow"), *logs, DONE)
        await _until(lambda: invocation.guarded and invocation.listener.congested())
        assert len(intake_of(invocation)._waiting) < count
        gate.open.set()
        await asker.response()
        assert len(asker.events) == count + 1


async def test_no_more_is_read_while_too_many_bytes_wait(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "slow").write_text("x")
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        size = asset_intake.WAITING_BYTES // 4
        logs = [log(f"{n} {'x' * size}") for n in range(asset_intake.WAITING_EVENTS)]
        asker, invocation = begin(daemon, asset("slow"), *logs, DONE)
        await _until(lambda: invocation.guarded and invocation.listener.congested())
        intake = intake_of(invocation)
        assert len(intake._waiting) < len(logs)
        gate.open.set()
        await asker.response()
        assert len(asker.events) == len(logs) + 1
        assert intake._waiting_bytes == 0


def intake_of(invocation: Invocation) -> asset_intake.AssetIntake:
    intake = invocation.guard().assets
    assert intake is not None
    return intake


async def _until(condition: Any) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()


async def test_a_file_that_is_never_looked_at_is_refused_in_words(
    tmp_path: Path, gate: Gate
) -> None:
    (tmp_path / "slow").write_text("x")
    times = replace(PATIENT, asset_check_s=0.1)
    async with daemon_with(tmp_path, actor(tmp_path), times=times) as daemon:
        response = await say(daemon, asset("slow"), DONE).response()
        assert response.ok
        (notice,) = response.notices
        assert notice.reason == "unreadable_path"
        assert "'slow' could not be looked at within 0.1 s" in notice.message


async def test_a_hung_file_system_of_one_module_holds_up_no_other(
    tmp_path: Path, gate: Gate
) -> None:
    (tmp_path / "quick").write_text("x")
    slow = [asset(f"slow{n}", f"a{n}") for n in range(asset_files.CHECKS_AT_ONCE + 2)]
    other = actor(tmp_path, name="n")
    async with daemon_with(tmp_path, actor(tmp_path), other) as daemon:
        asker, invocation = begin(daemon, *slow, DONE)
        await _until(lambda: invocation.settled)
        lines = [json.dumps({"version": "0", **one}) for one in (asset("quick"), DONE)]
        neighbour = Asker()
        daemon.begin(Party(ADA), "n", "invoke", {"op": "say", "args": {"lines": lines}}, neighbour)
        assert (await neighbour.response()).notices == ()
        assert asker.responses == []
        gate.open.set()
        await asker.response()


@pytest.mark.parametrize("answered", [True, False])
async def test_a_cancel_does_not_wait_for_a_check(
    tmp_path: Path, gate: Gate, answered: bool
) -> None:
    (tmp_path / "slow").write_text("x")
    recorder = Remembering()
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder) as daemon:
        end = [DONE] if answered else []
        asker, invocation = begin(daemon, asset("slow"), log("behind"), *end)
        await _until(lambda: invocation.guarded and len(intake_of(invocation)._waiting) == 2)
        await _until(lambda: invocation.settled is answered)
        invocation.cancel(GONE)
        (response,) = asker.responses  # at once
        assert response.ok is answered
        assert reasons(response) == ["unreadable_path"]
        assert kinds(asker) == ["behind"]
        gate.open.set()
    assert recorder.assets() == []


async def test_the_end_of_the_daemon_does_not_wait_for_a_check(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "slow").write_text("x")
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        asker = say(daemon, asset("slow"), DONE)
        await _until(lambda: gate.entered.acquire(blocking=False))
    assert len(asker.responses) == 1
    assert reasons(asker.responses[0]) == ["unreadable_path"]


@pytest.mark.clause("N001-4.3-f")
async def test_an_unknown_media_type_degrades_to_a_placeholder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("abc")
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        asker = say(daemon, asset("f", mediaType="application/x-odd"), DONE)
        assert (await asker.response()).notices == ()
        (event,) = asker.events
        assert isinstance(event, RegisteredAsset)
        assert not event.registered.supported
        words = "[a: image, application/x-odd, 3 bytes; there is nothing here that shows this type]"
        assert event.registered.placeholder == words


async def test_a_file_that_changes_while_it_is_read_has_no_digest_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(path: str, *args: Any, **kwargs: Any) -> CheckedFile:
        return CheckedFile(f"{tmp_path}/f", f"{tmp_path}/f", 1, 1, changed=True)

    monkeypatch.setattr(asset_files, "_look", changed)
    recorder = Remembering()
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder) as daemon:
        response = await say(daemon, asset("f"), DONE).response()
        assert reasons(response) == ["asset_changed"]
    (kept,) = recorder.assets()
    assert kept["sha256"] is None
    assert "changed" in kept["problem"]


@pytest.mark.parametrize("copy", [True, False])
async def test_a_large_file_gets_its_digest_after_the_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: bool
) -> None:
    monkeypatch.setattr(asset_files, "DIGEST_BYTES", 2)
    monkeypatch.setattr(asset_files._look, "__kwdefaults__", {"limit_bytes": 2})
    (tmp_path / "f").write_text("abc")
    recorder = Remembering()
    options = AssetOptions(copy=copy)
    async with daemon_with(
        tmp_path, actor(tmp_path), recorder=recorder, asset_options=options
    ) as daemon:
        asker = say(daemon, asset("f"), DONE)
        await asker.response()
        (event,) = asker.events
        assert isinstance(event, RegisteredAsset)
        assert event.registered.sha256 is None
        (kept,) = await recorder.until(lambda: [o for o in recorder.assets() if o["sha256"]])
        assert kept["sha256"] == hashlib.sha256(b"abc").hexdigest()
        assert kept["copied"] is copy


async def test_a_large_file_that_changes_before_it_is_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_text("abc")

    def large(*args: Any, **kwargs: Any) -> CheckedFile:
        size = path.stat().st_size if "limit_bytes" in kwargs else 2
        return CheckedFile(
            str(path), str(path), size, 1, "0" * 64 if "limit_bytes" in kwargs else None
        )

    monkeypatch.setattr(asset_files, "_look", large)
    recorder = Remembering()
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder) as daemon:
        await say(daemon, asset("f"), DONE).response()
        (kept,) = await recorder.until(lambda: [o for o in recorder.assets() if o["problem"]])
        assert kept["sha256"] is None


async def test_a_response_with_assets_waits_until_they_are_kept(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    recorder = Remembering()
    recorder.slow = True
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder) as daemon:
        asker = say(daemon, asset("f"), DONE)
        (done,) = await recorder.until(lambda: recorder.waiting)
        assert asker.responses == []
        await say(daemon, DONE).response()  # no asset: nothing to wait for
        done(None)
        assert asker.responses[0].ok


@pytest.mark.parametrize("late", [True, False])
async def test_assets_that_cannot_be_kept_make_the_response_a_failure(
    tmp_path: Path, late: bool
) -> None:
    (tmp_path / "f").write_text("x")
    recorder = Remembering()
    recorder.slow, recorder.failure = late, FULL
    times = replace(PATIENT, flush_s=0.05) if late else PATIENT
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder, times=times) as daemon:
        document = await say(daemon, asset("f"), DONE).document()
        error = document["error"]
        assert (error["code"], error["details"]["reason"]) == ("internal", "storage")
        assert error["message"].startswith(
            "m answered, but what m.say changed could not be stored: "
        )
        for done in recorder.waiting:
            done(None)  # too late; it is answered already


async def test_a_failure_stays_what_it_is_when_its_assets_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    recorder = Remembering()
    recorder.failure = FULL
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder) as daemon:
        error = {"code": "mine", "message": "no"}
        response = await say(daemon, asset("f"), {**DONE, "ok": False, "error": error}).response()
        assert response.document()["error"]["code"] == "mine"
        assert reasons(response) == ["storage"]


async def test_without_a_memory_assets_are_passed_on_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    recorder = Remembering()
    recorder.broken = FULL
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder) as daemon:
        asker = say(daemon, asset("f"), DONE)
        response = await asker.response()
        assert response.ok
        assert reasons(response) == ["not_registered"]
        assert "the disk is full" in response.notices[0].message
        assert [type(one) for one in asker.events] == [Asset]


async def test_copies_outlive_the_files_and_the_daemon(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("abc")
    recorder = Remembering()
    options = AssetOptions(copy=True)
    store = tmp_path / "data" / "assets" / "sha256"
    async with daemon_with(
        tmp_path, actor(tmp_path), recorder=recorder, asset_options=options
    ) as daemon:
        assert (await say(daemon, asset("f"), DONE).response()).notices == ()
    (kept,) = recorder.assets()
    (copy,) = [one for one in store.rglob("*") if one.is_file()]
    async with daemon_with(tmp_path, actor(tmp_path), recorder=recorder.again()) as daemon:
        assert copy.read_text() == "abc"
        result = await run_op(daemon, "asset.show", {"asset": kept["asset"]}, _no_events)
        assert result["sha256"] == kept["sha256"]
    async with daemon_with(tmp_path, actor(tmp_path)):
        assert not copy.exists()  # nobody knows it any more


async def _no_events(event: Any) -> None:
    raise AssertionError(event)


async def test_a_store_that_is_full_refuses_the_asset_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("abc")
    options = AssetOptions(copy=True, store_bytes=2)
    async with daemon_with(tmp_path, actor(tmp_path), asset_options=options) as daemon:
        asker = say(daemon, log("1"), asset("f"), log("2"), DONE)
        response = await asker.response()
        assert response.ok
        (notice,) = response.notices
        assert notice.reason == "asset_not_copied"
        assert "it has 3 bytes, and 0 of the 2 that asset_store_bytes allows" in notice.message
        assert kinds(asker) == ["1", "2"]


async def test_the_oldest_are_forgotten_and_their_copies_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "ASSETS_KEPT", 2)
    recorder = Remembering()
    options = AssetOptions(copy=True)
    store = tmp_path / "data" / "assets" / "sha256"
    async with daemon_with(
        tmp_path, actor(tmp_path), recorder=recorder, asset_options=options
    ) as daemon:
        for name in "abc":
            (tmp_path / name).write_text(name)
            await say(daemon, asset(name, name), DONE).response()
        assert [one["asset_id"] for one in recorder.assets()] == ["b", "c"]
        listed = await run_op(daemon, "asset.list", {}, _no_events)
        assert [one["asset_id"] for one in listed["assets"]] == ["b", "c"]
        assert listed["forgotten"] == 1
        await _until(lambda: len([one for one in store.rglob("*") if one.is_file()]) == 2)


async def test_documents_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    left = Remembering()
    left.keep("asset", "a", b"{}")
    left.keep("asset", "b", b"\xff")
    async with daemon_with(tmp_path, recorder=left.again()) as daemon:
        listed = await run_op(daemon, "asset.list", {}, _no_events)
        assert listed == {"assets": [], "left_out": 0, "forgotten": 0}


async def test_permissions_are_looked_at_in_the_thread_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def look(*args: Any, **kwargs: Any) -> CheckedFile:
        threads.append(threading.current_thread())
        raise asset_files.AssetFileError("may not be read by the daemon")

    monkeypatch.setattr(asset_files, "_look", look)
    async with daemon_with(tmp_path, actor(tmp_path)) as daemon:
        response = await say(daemon, asset(os.devnull), DONE).response()
        assert reasons(response) == ["unreadable_path"]
    assert threading.main_thread() not in threads
