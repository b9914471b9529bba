"""What modules offer, as far as it is known: whole, as it changes, and after a restart."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from protocol.descriptor.model import Descriptor
from protocol.events import Log
from supervisor.kernel.kernel import JournalOptions, Kernel, Party
from supervisor.policy.findings import Found
from supervisor.policy.principals import Principal, Scope
from tests.factories import PYTHON, actor, descriptor
from tests.kernel.conftest import Asker, daemon_with, own
from tests.kernel.hooks.parties import hook, reload
from tests.kernel.virtual import story
from tests.principals import ADA

DESCRIBED = """
import json, sys
extra = json.loads(sys.argv[1])
if "pad" in extra:
    extra["summary"] = "x" * extra.pop("pad")
for line in sys.stdin:
    frame = json.loads(line)
    said = {"status": "ok"} if frame["operation"] == "health" else {"ok": True, "result": None}
    if frame["operation"] == "describe":
        said = {"name": "m", "version": "1", "kind": "tool", "capabilities": [], "outputs": {},
                "features": [], **extra}
    print(json.dumps({"requestId": frame["requestId"], **said}), flush=True)
"""
ECHO = {"echo": {"type": "object"}}
LAZY = {"start": "lazy"}
WHOLE = {"version": "1", "kind": "tool", "capabilities": [], "outputs": {}, "features": []}


def described(folder: Path, name: str = "m", **fields: Any) -> Descriptor:
    """A module that describes itself with these ops."""
    extra = {"name": name, "inputs": fields.pop("ops", ECHO), **fields.pop("extra", {})}
    command = [*PYTHON, "-c", DESCRIBED, json.dumps(extra)]
    return descriptor(folder, command, name=name, **fields)


def by_module(found: Any) -> dict[str, Any]:
    """Return the offers of an answer, which are encoded in it unless they took more than a turn."""
    offers = msgspec.json.decode(msgspec.json.encode(found["modules"]))
    return {one.pop("module"): one for one in offers}


async def offered(daemon: Kernel, who: Principal = ADA, **args: Any) -> dict[str, Any]:
    return by_module(await own(daemon, who, "offers", **args))


async def test_each_module_but_a_hook_is_offered_with_what_it_says(tmp_path: Path) -> None:
    stated = {"get": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    modules = [
        described(tmp_path, "one", description="the first"),
        described(tmp_path, "two", inputs=stated, supervision=LAZY),
        described(tmp_path, "far", supervision=LAZY),
        described(tmp_path, "off", enabled=False),
        hook(tmp_path, observe=["x:*"]),
    ]
    async with daemon_with(tmp_path, *modules) as daemon:
        known = {"kind": "tool", "summary": None, "problem": None, "is_missing": False}
        one = {**known, "summary": "the first", "said": {**WHOLE, "name": "one", "inputs": ECHO}}
        two = {**known, "said": {"inputs": stated}}
        words = "far is stopped; `stdiod start far` starts it"
        down = {**known, "said": None, "problem": words, "is_missing": True}
        found = await offered(daemon, wait=False)
        assert list(found) == ["far", "one", "two"]
        assert found == {"one": one, "two": two, "far": down}
        far = {**known, "said": {**WHOLE, "name": "far", "inputs": ECHO}}
        assert await offered(daemon) == {"far": far, "one": one, "two": two}
        assert (await own(daemon, ADA, "status", module="two"))["state"] == "down"
        off = {"kind": "tool", "summary": None, "said": None, "serves": False, "enabled": False}
        detailed = await offered(daemon, detail=True)
        assert detailed.pop("off") == {**known, **off}
        assert detailed == {
            "far": {**far, "serves": True},
            "one": {**one, "serves": True},
            "two": {**two, "serves": False},
        }
        some = Principal(
            "max", "test", frozenset({Scope.READ}), ("two.get", "one", "one.*", "off*")
        )
        detailed = await offered(daemon, some, detail=True)
        assert list(detailed) == ["off", "one", "two"]
        assert ("ops" in detailed["one"], detailed["two"]["ops"]) == (False, ["get"])
        assert list(await offered(daemon, some)) == ["one", "two"]


async def test_one_whose_start_failed_is_offered_with_the_cause(tmp_path: Path) -> None:
    once = {"restart": "temporary"}
    bad = descriptor(tmp_path, ["sh", "-c", "exit 3"], name="bad", supervision=once)
    async with Kernel(Found((bad,)), data_dir=tmp_path / "data") as daemon:
        await own(daemon, ADA, "wait", modules=["bad"], **{"for": "verdict"})
        [offer] = (await offered(daemon)).values()
        assert (offer["said"], offer["is_missing"]) == (None, True)
        assert "exited with code 3" in offer["problem"]


async def test_a_change_is_told_a_tenth_of_a_second_later_once_for_a_crowd(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    first, second = described(tmp_path), actor(tmp_path, name="n")
    async with daemon_with(tmp_path, first) as daemon:
        await wait_all_tasks_blocked()
        mock_clock.jump(1)
        follower = Asker()
        content = {"op": "offers", "args": {"follow": True}}
        daemon.begin(Party(ADA), "supervisor", "invoke", content, follower)
        await wait_all_tasks_blocked()
        version = (await own(daemon, ADA, "offers"))["version"]
        assert await own(daemon, ADA, "offers", known=version) == {"version": version}
        assert "modules" in await own(daemon, ADA, "offers", known=version - 1)
        await reload(daemon, first, second)
        await daemon.wait_ready()
        mock_clock.jump(0.09)
        await wait_all_tasks_blocked()
        assert follower.events == []
        mock_clock.jump(0.02)
        await follower.heard(1)
        now = (await own(daemon, ADA, "offers"))["version"]
        assert now > version
        [told] = follower.events
        assert isinstance(told, Log)
        assert (told.message, told.fields) == ("what modules offer has changed", {"version": now})
        await reload(daemon, first)
        mock_clock.jump(0.11)
        await follower.heard(2)
        assert list(await offered(daemon)) == ["m"]
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        assert len(follower.events) == 2


async def test_modules_that_start_are_waited_for_ten_seconds(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    slow = actor(tmp_path, "never-ready", supervision={"timeouts": {"start_s": 100}})
    async with story(mock_clock, tmp_path, slow) as world:
        await world.has("m#1")
        asker = Asker()
        content: dict[str, Any] = {"op": "offers", "args": {}}
        world.kernel.begin(Party(ADA), "supervisor", "invoke", content, asker)
        await world.passes(9.99)
        assert not asker.responses
        await world.passes(0.02)
        offer = by_module((await asker.document())["result"])["m"]
        assert (offer["problem"], offer["is_missing"]) == ("m is starting", False)


@pytest.mark.parametrize(("more", "known"), [(0, True), (1, False)])
async def test_a_description_of_256_kib_is_known_by_the_next_daemon_and_a_longer_one_not(
    more: int, known: bool, tmp_path: Path
) -> None:
    ticks = itertools.count(1000)
    options: dict[str, Any] = {"memory": JournalOptions(), "clock": lambda: float(next(ticks))}
    said = {**WHOLE, "name": "m", "inputs": ECHO, "features": [], "summary": ""}
    least = len(json.dumps(said, separators=(",", ":")))
    pad = (256 << 10) - least + more
    said["summary"] = "x" * pad
    module = described(tmp_path, extra={"pad": pad}, supervision=LAZY)
    async with daemon_with(tmp_path, module, **options) as daemon:
        assert (await offered(daemon))["m"]["said"] == said
        await own(daemon, ADA, "session.new")
    async with daemon_with(tmp_path, module, **options) as daemon:
        remembered = said if known else None
        assert (await offered(daemon, wait=False))["m"]["said"] == remembered
        ops = {"names": ["echo"], "count": 1, "remembered": True}
        shown = await own(daemon, ADA, "status", module="m", inputs=True)
        assert shown["state"] == "down"
        assert shown["ops"] == ({**ops, "inputs": ECHO} if known else None)
        assert (await own(daemon, ADA, "status", module="m"))["ops"] == (ops if known else None)
    other = described(tmp_path, extra={"summary": "new"}, supervision=LAZY)
    async with daemon_with(tmp_path, other, **options) as daemon:
        assert (await offered(daemon, wait=False))["m"]["said"] is None
