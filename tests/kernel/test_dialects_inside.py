"""Of `test_dialects.py`, what is bound to the structure."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from protocol.args_schema import op_schemas
from protocol.connection import HostCalled
from protocol.errors import Reason, Success
from protocol.host_call import HostCall
from protocol.host_events import RegisteredAsset
from protocol.replies import Operation
from protocol.transcript import EntrySource
from supervisor.kernel import descriptions
from supervisor.kernel.assets import intake as asset_intake
from supervisor.kernel.host_calls import docket
from supervisor.kernel.host_calls.docket import CallsOfModules
from supervisor.kernel.kernel import AssetOptions, JournalOptions, Kernel
from supervisor.policy.lifecycle import State
from supervisor.policy.verdict import Stopped
from supervisor.runtime.supervision import description as description_module
from supervisor.runtime.supervision.module import Module
from supervisor.transcripts.recording import Recording
from tests.dialects import peers
from tests.dialects.registry import speaking
from tests.factories import actor
from tests.kernel.conftest import Asker, ask, daemon_with, run_op
from tests.kernel.host_calls import allowing, caller
from tests.kernel.noted import invoked, noted
from tests.kernel.remembering import Remembering
from tests.kernel.test_dialects import reason

pytestmark = pytest.mark.usefixtures("made_up_dialects")

GONE = Stopped(Reason.DEADLINE, "its time is over")
ALL = ["module.*", "session.*", "event.*", "log"]


async def emit(event: Any) -> None:
    pass


async def status(daemon: Kernel) -> dict[str, Any]:
    found: dict[str, Any] = await run_op(daemon, "status", {"module": "dice"}, emit)
    return found


class Wire:
    """What the host writes to the module, as messages."""

    def __init__(self, daemon: Kernel) -> None:
        self.messages: list[dict[str, Any]] = []
        self._recording = Recording()
        daemon.fleet.modules["dice"].taps.attach(self._recording)

    async def results(self, count: int) -> dict[str, Any]:
        """Return what so many calls came to, by their ids."""
        while len(self._results()) < count:
            await self._recording.wait()
        return self._results()

    def _results(self) -> dict[str, Any]:
        for one in self._recording.take():
            if one.source is EntrySource.HOST and one.is_line:
                self.messages.append(json.loads(one.content()))
        return {one["result_of"]: one["said"] for one in self.messages if "result_of" in one}


async def calling(daemon: Kernel, method: str, count: int = 1, **params: Any) -> dict[str, Any]:
    """Have the module call the host on its own account; return what came of it."""
    wire = Wire(daemon)
    args = {"calls": count, "method": method, "params": params}
    assert (await ask(daemon, "dice", "echo", args=args).document())["ok"]
    return await wire.results(count)


# Calls that belong to no request.


async def test_a_call_of_no_request_is_served_by_the_rules_for_all(tmp_path: Path) -> None:
    made = speaking(tmp_path, "silent", capabilities=ALL)
    policy = allowing(tmp_path)
    async with daemon_with(tmp_path, made, memory=JournalOptions(), operator=policy) as daemon:
        assert await calling(daemon, "log", message="hi") == {"c0": {}}
        assert await calling(daemon, "event.emit", event="mine:step") == {"c0": {}}
        refused = await calling(daemon, "session.read")
        assert refused == {"c0": {"code": "bad_request"}}
        [entry] = await noted(daemon, "mine:step")
        assert entry["module"] == "dice"
        assert not entry.keys() & {"request_id", "session_id"}
        decisions = await noted(daemon, "policy:decision")
        assert [one["status"] for one in decisions] == ["allowed"] * 3


async def test_a_call_of_no_request_needs_the_capability_too(tmp_path: Path) -> None:
    made = speaking(tmp_path, "silent", capabilities=[])
    async with daemon_with(tmp_path, made, operator=allowing(tmp_path)) as daemon:
        assert await calling(daemon, "log", message="hi") == {"c0": {"code": "forbidden"}}


async def test_a_module_invokes_another_one_on_its_own_account(tmp_path: Path) -> None:
    made, other = speaking(tmp_path, "silent", capabilities=ALL), caller(tmp_path, "b")
    policy = allowing(tmp_path)
    async with daemon_with(
        tmp_path, made, other, memory=JournalOptions(), operator=policy
    ) as daemon:
        params: dict[str, Any] = {"module": "b", "op": "relay", "args": {"path": []}}
        said = await calling(daemon, "module.invoke", **params)
        assert said["c0"]["result"] == {"name": "b"}
        assert (await invoked(daemon, "relay"))["by"] == {
            "name": "module:dice", "face": "module",
        }  # fmt: skip


async def test_what_a_module_began_on_its_own_account_ends_with_its_process(
    tmp_path: Path,
) -> None:
    made, other = speaking(tmp_path, "silent", capabilities=ALL), caller(tmp_path, "b")
    policy = allowing(tmp_path)
    async with daemon_with(
        tmp_path, made, other, memory=JournalOptions(), operator=policy
    ) as daemon:
        params = {"module": "b", "op": "hang"}
        args = {"calls": 1, "method": "module.invoke", "params": params}
        assert (await ask(daemon, "dice", "echo", args=args).document())["ok"]
        dice, b = (daemon.fleet.modules[name] for name in ("dice", "b"))
        while not b.in_flight:
            await trio.lowlevel.checkpoint()
        dice.stop("the test")
        await daemon.fleet.wait_until(lambda: dice.state is State.DOWN or None)
        assert not b.in_flight
        entry = await invoked(daemon, "hang")
        assert entry["error"]["details"]["reason"] == "parent_ended"
        calls: Any = daemon.fleet.modules["dice"].host.calls
        assert (calls._dockets, dice.account.total) == ({}, 0)


async def test_a_flood_of_calls_is_refused_beyond_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docket, "OPEN_CALLS", 3)
    made = speaking(tmp_path, "silent", capabilities=ALL)
    async with daemon_with(tmp_path, made, operator=allowing(tmp_path)) as daemon:
        said = await calling(daemon, "log", 5, message="hi")
        codes = [said[f"c{number}"].get("code") for number in range(5)]
        assert codes == [None, None, None, "bad_request", "bad_request"]


async def test_calls_that_end_before_they_are_begun_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = speaking(tmp_path, "silent", capabilities=ALL)
    async with daemon_with(tmp_path, made, operator=allowing(tmp_path)) as daemon:
        module = daemon.fleet.modules["dice"]
        life: Any = module.workers[0].life
        calls = CallsOfModules(module.host.calls._host)  # type: ignore[attr-defined]
        monkeypatch.setattr(life.process, "answer", lambda *_: None)
        for turn in range(20):
            for number in range(100):
                call = HostCall(call_id=f"c{turn}.{number}", method="log", params={"message": "x"})
                calls.take(module, HostCalled(None, call, 1), life.process)
            one = calls._dockets[life.id]
            one.end(GONE)  # as their own time-outs would
            for _ in range(2):
                await trio.lowlevel.checkpoint()
            assert len(one._to_begin) <= 100
        calls.end(life.id)


async def test_a_hook_emits_nothing_on_its_own_account(tmp_path: Path) -> None:
    # Nobody knows what it was told of that makes it emit: two hooks would tell each other for ever.
    fields = {"kind": "hook", "hook": {"observe": ["nothing:*"]}, "capabilities": ALL}
    made = speaking(tmp_path, "silent", transport={"env": {"PEER_KIND": "hook"}}, **fields)
    async with daemon_with(tmp_path, made, operator=allowing(tmp_path)) as daemon:
        said = await calling(daemon, "event.emit", event="mine:step")
        assert said == {"c0": {"code": "bad_request"}}


async def test_a_hook_is_not_told_of_what_it_causes_on_its_own_account(tmp_path: Path) -> None:
    fields = {"kind": "hook", "hook": {"observe": ["module:invoke"]}, "capabilities": ALL}
    made = speaking(tmp_path, "silent", transport={"env": {"PEER_KIND": "hook"}}, **fields)
    other = caller(tmp_path, "b")
    async with daemon_with(tmp_path, made, other, operator=allowing(tmp_path)) as daemon:
        params: dict[str, Any] = {"module": "b", "op": "relay", "args": {"path": []}}
        assert (await calling(daemon, "module.invoke", **params))["c0"]["ok"]
        assert daemon.requests.lineage.all() == []
        hook = (await status(daemon))["hook"]
        assert (hook["events"]["delivered"], hook["events"]["waiting"]) == (0, 0)


# Descriptions that change.


async def change(daemon: Kernel, times: int, **facts: Any) -> None:
    args = {"times": times, "facts": facts}
    assert (await ask(daemon, "dice", "change", args=args).document())["ok"]


async def test_validation_and_status_agree_on_a_new_description_at_once(tmp_path: Path) -> None:
    recorder = Remembering()
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made, recorder=recorder) as daemon:
        assert await reason(daemon, "op0") == "unknown_op"
        names = ["echo", "carry", "change"]
        assert (await status(daemon))["ops"] == {
            "names": names, "count": 3, "remembered": False,
        }  # fmt: skip
        await change(daemon, 1)
        assert await reason(daemon, "op0") is None
        assert (await status(daemon))["ops"]["names"] == [*names, "op0"]
        [entry] = [one for one in recorder.entries if one["event"] == "module:description"]
        assert entry["module"] == "dice"
        assert entry["data"] == {"instance": "dice#1", "changes": 1, "ops": 4, "misfits": []}


async def test_a_thousand_changes_are_told_in_a_few_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []

    def counted(inputs: Any) -> dict[str, Any] | None:
        built.append(inputs)
        return op_schemas(inputs)

    added: list[Any] = []
    monkeypatch.setattr(description_module, "op_schemas", counted)
    add = descriptions.RememberedDescriptions.add

    def counting(self: Any, *said: Any) -> None:
        added.append(said)
        add(self, *said)

    monkeypatch.setattr(descriptions.RememberedDescriptions, "add", counting)
    recorder = Remembering()
    made = speaking(tmp_path, "carrier", supervision={"concurrency": 8})
    async with daemon_with(tmp_path, made, recorder=recorder) as daemon:
        for _ in range(5):
            await change(daemon, 1000)
        assert await reason(daemon, "op999") is None
        # One for each look at args, not for each change.
        assert len(built) <= 2 + 6
        told = [one for one in recorder.entries if one["event"] == "module:description"]
        seconds = daemon.fleet.modules["dice"].workers[0].life.instances()[0].uptime_s  # type: ignore[union-attr]
        assert 1 <= len(told) <= seconds / description_module.TELL_EVERY_S + 1
        assert len(added) <= 1 + len(told)


async def test_a_change_that_contradicts_the_descriptor_is_a_misfit_and_no_end(
    tmp_path: Path,
) -> None:
    recorder = Remembering()
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made, recorder=recorder) as daemon:
        await change(daemon, 1, kind="hook")
        shown = await status(daemon)
        words = "dice#1 describes itself with kind 'hook'; its descriptor says 'tool'"
        assert (shown["state"], shown["misfits"]) == ("ready", [words])
        assert await reason(daemon, "op0") is None
        [entry] = [one for one in recorder.entries if one["event"] == "module:description"]
        assert entry["data"]["misfits"] == [words]


async def both_ready(daemon: Kernel, module: Module) -> None:
    def ready() -> bool | None:
        return all(one.state is State.READY for one in module.workers) or None

    await daemon.fleet.wait_until(ready)


async def test_in_a_pool_the_newest_ready_process_counts_and_others_that_differ_are_named(
    tmp_path: Path,
) -> None:
    made = speaking(tmp_path, "carrier", supervision={"instances": {"min": 2, "max": 2}})
    async with daemon_with(tmp_path, made) as daemon:
        module = daemon.fleet.modules["dice"]
        await both_ready(daemon, module)
        assert module.descriptions.newest == "dice#2"
        assert (await status(daemon))["misfits"] == []
        await change(daemon, 1)  # of equals the oldest is asked, which is not the newest
        assert await reason(daemon, "op0") == "unknown_op"
        words = "dice#1 describes itself differently than dice#2"
        assert (await status(daemon))["misfits"] == [words]
        second = module.workers[1]
        module.let_go(second, "the test")
        await daemon.fleet.wait_until(lambda: second.life is None or None)
        assert module.descriptions.newest == "dice#1"
        assert await reason(daemon, "op0") is None
        assert (await status(daemon))["misfits"] == []


async def test_describe_is_asked_of_the_newest(tmp_path: Path) -> None:
    made = actor(tmp_path, supervision={"instances": {"min": 2, "max": 2}})
    async with daemon_with(tmp_path, made) as daemon:
        module = daemon.fleet.modules["m"]
        await both_ready(daemon, module)
        recording = Recording()
        module.taps.attach(recording)
        assert isinstance(await module.ask(Operation.DESCRIBE), Success)
        asked = {one.instance for one in recording.take() if one.source is EntrySource.HOST}
        assert asked == {"m#2"}


# What is remembered.


async def test_a_module_that_is_down_is_listed_with_the_ops_it_had_and_started_by_a_request(
    tmp_path: Path,
) -> None:
    recorder = Remembering()
    lazy = {"supervision": {"start": "lazy"}}
    made = speaking(tmp_path, "carrier", **lazy)
    async with daemon_with(tmp_path, made, recorder=recorder) as daemon:
        assert (await status(daemon))["ops"] is None
        await change(daemon, 1)
        await run_op(daemon, "stop", {"module": "dice"}, emit)
        remembered = {"names": ["echo", "carry", "change", "op0"], "count": 4, "remembered": True}
        assert (await status(daemon))["ops"] == remembered
    async with daemon_with(tmp_path, made, recorder=recorder.again()) as daemon:
        module = daemon.fleet.modules["dice"]
        assert (module.state, (await status(daemon))["ops"]) == (State.DOWN, remembered)
        asked = {"module": "dice", "inputs": True}
        ops = (await run_op(daemon, "status", asked, emit))["ops"]
        assert list(ops["inputs"]) == remembered["names"]
        # It knows no `op0` any more, and `new` is not among what is remembered: both are asked.
        assert (await ask(daemon, "dice", "new").document())["ok"]
        assert module.state is State.READY
        assert await reason(daemon, "op0") == "unknown_op"


async def test_what_is_remembered_is_of_one_descriptor(tmp_path: Path) -> None:
    recorder = Remembering()
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made, recorder=recorder):
        pass
    other = speaking(tmp_path, "carrier", supervision={"start": "lazy"})
    async with daemon_with(tmp_path, other, recorder=recorder.again()) as daemon:
        assert (await status(daemon))["ops"] is None


async def test_a_description_too_large_to_remember_is_not_and_a_broken_document_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "DESCRIPTION_BYTES", 100)
    recorder = Remembering()
    made = speaking(tmp_path, "carrier", supervision={"start": "lazy"})
    async with daemon_with(tmp_path, made, recorder=recorder) as daemon:
        assert (await ask(daemon, "dice", "echo").document())["ok"]
        await run_op(daemon, "stop", {"module": "dice"}, emit)
        assert (await status(daemon))["ops"] is None
    recorder.kept["description", "dice"] = (0, b'{"module":7}')
    async with daemon_with(tmp_path, made, recorder=recorder.again()) as daemon:
        assert (await status(daemon))["ops"] is None


def test_of_a_description_too_large_to_remember_only_the_beginning_is_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptions, "DESCRIPTION_BYTES", 100)
    encoded: list[int] = []
    encode = msgspec.json.encode

    def counted(value: object) -> bytes:
        encoded.append(len(made := encode(value)))
        return made

    monkeypatch.setattr(msgspec.json, "encode", counted)
    assert descriptions._encoded({"tools": [{"name": "t" * 50}] * 1000}) is None
    assert sum(encoded) < 200


def test_what_is_remembered_in_all_is_bounded_and_what_was_said_last_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptions, "KEPT_BYTES", 1000)
    recorder = Remembering()
    kept = descriptions.RememberedDescriptions(recorder, lambda: 1.0)
    made = speaking(Path("/"), "carrier")
    modules = [msgspec.structs.replace(made, name=f"m{number}") for number in range(10)]
    for module in (*modules[:3], modules[0], *modules[3:5]):
        kept.add(module, {"inputs": {"op": {}}, "x": "y" * 50})
    found = [one.name for one in modules if kept.find(one) is not None]
    assert {name for kind, name in recorder.kept if kind == "description"} == set(found)
    assert found[-2:] == ["m3", "m4"]
    assert len(found) < 5


# Bytes to assets.


def carry(daemon: Kernel, data: bytes, **args: Any) -> Asker:
    encoded = base64.b64encode(data).decode()
    return ask(daemon, "dice", "carry", args={"data": encoded, **args})


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def store_files(tmp_path: Path) -> list[Path]:
    # `walk` passes over what goes meanwhile.
    found = os.walk(tmp_path / "data" / "assets")
    return [Path(folder, name) for folder, _, names in found for name in names]


async def test_bytes_become_a_file_and_an_asset_like_any_other(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    recorder = Remembering()
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made, recorder=recorder) as daemon:
        asker = carry(daemon, data, piece=10_000)
        document = await asker.document()
        assert (document["ok"], document["warnings"]) == (True, [])
        [event] = asker.events
        assert isinstance(event, RegisteredAsset)
        assert read(event.path) == data
        assert event.registered.sha256 == hashlib.sha256(data).hexdigest()
        assert event.registered.bytes == len(data)
        found = await run_op(daemon, "asset.read", {"asset": event.registered.id}, emit)
        assert read(found["path"]) == data
        assert [one["event"] for one in recorder.entries].count("artifact:write") == 1
        assert store_files(tmp_path) == [Path(event.path)]
        # The same bytes again are kept once.
        again = carry(daemon, data)
        assert (await again.document())["ok"]
        assert store_files(tmp_path) == [Path(event.path)]
    async with daemon_with(tmp_path, made, recorder=recorder.again()) as daemon:
        found = await run_op(daemon, "asset.read", {"asset": event.registered.id}, emit)
        assert read(found["path"]) == data


async def test_what_has_no_room_in_the_store_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    options = AssetOptions(store_bytes=100_000)
    made = speaking(tmp_path, "carrier")
    recorder = Remembering()
    async with daemon_with(tmp_path, made, recorder=recorder, asset_options=options) as daemon:
        asker = carry(daemon, b"x" * 200_000, piece=10_000)
        document = await asker.document()
        assert document["ok"]
        assert [one["reason"] for one in document["warnings"]] == ["asset_not_copied"]
        assert asker.events == []
        assert (await carry(daemon, b"y" * 90_000).document())["warnings"] == []
        assert len(store_files(tmp_path)) == 1


async def test_what_is_not_handed_over_to_its_end_is_no_asset(tmp_path: Path) -> None:
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made, recorder=Remembering()) as daemon:
        document = await carry(daemon, b"x" * 50_000, unfinished=True).document()
        assert document["ok"]
        assert [one["reason"] for one in document["warnings"]] == ["asset_unfinished"]
        with trio.fail_after(60):
            while store_files(tmp_path):
                await trio.lowlevel.checkpoint()


async def test_a_request_may_hand_over_several_and_each_id_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asset_intake, "SPOOLS_OPEN", 2)
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made, recorder=Remembering()) as daemon:
        process: Any = daemon.fleet.modules["dice"].workers[0].life.process  # type: ignore[union-attr]
        asker = ask(daemon, "dice", "echo", args={})
        [request_id] = process.connection.open
        for of, last in (("a", 0), ("b", 0), ("c", 0), ("a", 1), ("c", 1), ("a", 1), ("b", 1)):
            process.receive_data(peers.line(id=request_id, bytes="eA==", of=of, last=bool(last)))
        document = await asker.document()
        reasons = [one["reason"] for one in document["warnings"]]
        assert reasons == ["asset_not_copied", "duplicate_asset"]
        assert [event.asset_id for event in asker.events] == ["a", "b"]  # type: ignore[union-attr]


async def test_a_disk_that_is_slow_pauses_who_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asset_intake, "WAITING_BYTES", 1000)
    made = speaking(tmp_path, "carrier")
    data = bytes(200_000)
    async with daemon_with(tmp_path, made, recorder=Remembering()) as daemon:
        asker = carry(daemon, data, piece=500)
        assert (await asker.document())["ok"]
        [event] = asker.events
        assert read(event.path) == data  # type: ignore[union-attr]


async def test_the_death_of_the_module_takes_its_half_files_along(tmp_path: Path) -> None:
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made, recorder=Remembering()) as daemon:
        life: Any = daemon.fleet.modules["dice"].workers[0].life
        asker = ask(daemon, "dice", "echo", args={"hang": True})
        [request_id] = life.process.connection.open
        life.process.receive_data(peers.line(id=request_id, bytes="eA==", of="a", last=False))
        life.hurry()
        document = await asker.document()
        assert not document["ok"]
        with trio.fail_after(60):
            while store_files(tmp_path):
                await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("last", [False, True])
async def test_a_store_that_is_gone_is_a_warning_and_no_end_of_the_daemon(
    tmp_path: Path, last: bool
) -> None:
    made = speaking(tmp_path, "carrier")
    async with daemon_with(tmp_path, made, recorder=Remembering()) as daemon:
        process: Any = daemon.fleet.modules["dice"].workers[0].life.process  # type: ignore[union-attr]
        asker = ask(daemon, "dice", "echo", args={"hang": True})
        [request_id] = process.connection.open
        process.receive_data(peers.line(id=request_id, bytes="eA==", of="a", last=False))
        with trio.fail_after(60):
            while not store_files(tmp_path):
                await trio.lowlevel.checkpoint()
        shutil.rmtree(tmp_path / "data" / "assets")
        if last:
            process.receive_data(peers.line(id=request_id, bytes="eA==", of="a", last=True))
        process.receive_data(peers.line(id=request_id, got={}))
        document = await asker.document()
        await trio.testing.wait_all_tasks_blocked()
        expected = "asset_not_copied" if last else "asset_unfinished"
        assert [one["reason"] for one in document["warnings"]] == [expected]
        # The rest goes on, and so does the daemon.
        assert (await carry(daemon, b"y").document())["warnings"] == []
