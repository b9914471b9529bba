"""MCP servers in a daemon: real processes of both eras, what they are called, what they ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from trio.testing import MockClock

from protocol.descriptor.model import Lifecycle, McpTransport
from protocol.events import UiEvent
from protocol.host_events import RegisteredAsset
from protocol.trace_context import EXAMPLE, is_traceparent
from supervisor.kernel.kernel import JournalOptions, Kernel, Party
from tests.factories import PYTHON, descriptor
from tests.kernel.conftest import GONE, Asker, ask, daemon_with, nothing, run_op
from tests.kernel.host_calls import allowing, caller, payload, question
from tests.kernel.noted import invoked
from tests.kernel.virtual import story
from tests.principals import ADA

SERVER = str(Path(__file__).with_name("mcp_server.py"))
ERAS = ["modern", "legacy", "ends", "silent"]


def served(folder: Path, *flags: str, **fields: Any) -> Any:
    made = descriptor(
        folder,
        [*PYTHON, SERVER, *flags],
        name="server",
        capabilities=["roots.list", "user.ask", "model.sample:p"],
        **fields,
    )
    transport = replace(
        made.transport,
        protocol="mcp",
        lifecycle=Lifecycle.PERSISTENT,
        mcp=McpTransport(roots=(".",)),
    )
    return replace(made, transport=transport)


def content_of(image: RegisteredAsset) -> bytes:
    return Path(image.path).read_bytes()


async def status(daemon: Kernel) -> Any:
    return await run_op(daemon, "status", {"module": "server"}, nothing)


@pytest.mark.parametrize("kind", ERAS)
async def test_a_server_is_called_in_its_era_whatever_it_does_on_discover(
    kind: str, tmp_path: Path
) -> None:
    async with daemon_with(tmp_path, served(tmp_path, kind)) as daemon:
        shown = await status(daemon)
        modern = kind == "modern"
        assert shown["mcp"] == {
            "era": "modern" if modern else "legacy",
            "revision": "2026-07-28" if modern else "2025-06-18",
        }
        assert (shown["restarts"], shown["last_exit"]) == (0, None)
        assert shown["ops"]["names"] == ["draw", "ask", "sample", "trace", "album", "grow", "die"]
        asker = ask(daemon, "server", "draw", args={"n": 2})
        document = await asker.document()
        assert document["result"] == {
            "content": [{"type": "image", "mimeType": "image/png", "assetId": "image-1"}]
        }
        progress, image = asker.events
        assert isinstance(progress, UiEvent)
        assert progress.payload == {"done": 1, "total": None, "message": None}
        assert isinstance(image, RegisteredAsset)
        assert content_of(image) == b"png"
        wrong = await ask(daemon, "server", "draw", args={"n": "x"}).document()
        assert wrong["error"]["details"]["reason"] == "invalid_args"
        wrong = await ask(daemon, "server", "drew", args={}).document()
        assert wrong["error"]["code"] == "unsupported_op"


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_a_person_answers_what_a_server_asks(kind: str, tmp_path: Path) -> None:
    async with daemon_with(tmp_path, served(tmp_path, kind), operator=allowing(tmp_path)) as daemon:
        asker = ask(daemon, "server", "ask")
        asked = await question(daemon)
        assert (asked["prompt"], asked["op"]) == ("Who?", "ask")
        args = {"id": asked["id"], "content": {"name": "Ada"}}
        await run_op(daemon, "approve", args, nothing)
        said = json.loads((await asker.document())["result"]["content"][0]["text"])
        assert said["person"] == {"action": "accept", "content": {"name": "Ada"}}
        assert said["roots"] == {"roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]}


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_a_list_that_changes_is_a_changed_description(kind: str, tmp_path: Path) -> None:
    async with daemon_with(tmp_path, served(tmp_path, kind)) as daemon:
        assert (await ask(daemon, "server", "grow").document())["ok"]
        module = daemon.fleet.modules["server"]

        def grown() -> bool | None:
            current = module.descriptions.current
            return None if current is None else "grown" in current["inputs"] or None

        while not grown():
            assert (await ask(daemon, "server", "draw", args={"n": 1}).document())["ok"]
        assert (await ask(daemon, "server", "grown").document())["ok"]


async def test_a_server_that_dies_in_a_call_has_its_cause_told_and_serves_the_next(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, served(tmp_path, "modern")) as daemon:
        error = (await ask(daemon, "server", "die").document())["error"]
        assert (error["code"], error["details"]["signal"]) == ("unreachable", 9)
        assert error["details"]["stderr_tail"] == ["I die"]
        assert (await ask(daemon, "server", "draw", args={"n": 1}).document())["ok"]


async def test_a_trace_goes_from_who_asks_to_the_server_and_into_the_journal(
    tmp_path: Path,
) -> None:
    between = caller(tmp_path, "a", capabilities=["module.invoke"])
    options: dict[str, Any] = {"operator": allowing(tmp_path), "memory": JournalOptions()}
    async with daemon_with(tmp_path, served(tmp_path, "modern"), between, **options) as daemon:
        own = await ask(daemon, "server", "trace").document()
        assert is_traceparent(heard := json.loads(own["result"]["content"][0]["text"]))
        data = (await invoked(daemon, "trace"))["data"]
        assert data == {
            "op": "trace",
            "traceparent": heard,
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": "2026-07-28",
            "network.transport": "pipe",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "trace",
        }
        calls = {"calls": [payload("invoke", module="server", op="trace")], "lines": []}
        asker = ask(daemon, "a", "calls", args=calls, traceparent=EXAMPLE)
        [found] = (await asker.document())["result"]["results"]
        through = json.loads(found["output"]["result"]["content"][0]["text"])
        assert (through[:36], through != EXAMPLE) == (EXAMPLE[:36], True)
        bad = (await ask(daemon, "server", "trace", traceparent="x").document())["error"]
        assert (bad["code"], EXAMPLE in bad["message"]) == ("bad_request", True)


async def test_an_answer_may_carry_many_files_and_says_which_of_them_is_none(
    tmp_path: Path,
) -> None:
    async with daemon_with(tmp_path, served(tmp_path, "legacy")) as daemon:
        asker = ask(daemon, "server", "album")
        document = await asker.document()
    images = [one for one in asker.events if isinstance(one, RegisteredAsset)]
    bad, *good = document["result"]["content"]
    assert [one.asset_id for one in images] == [one["assetId"] for one in good]
    assert (bad["data"], "assetId" in bad) == ("%%%%", False)
    [warning] = document["warnings"]
    assert warning["reason"] == "asset_not_copied"
    assert "'image-1': its data is not base64" in warning["message"]


async def test_one_that_is_given_up_while_the_server_is_asked_for_its_list_ends_alone(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    server = served(tmp_path, "legacy", "mute", supervision={"timeouts": {"describe_s": 20}})
    async with story(mock_clock, tmp_path, server) as world:
        await world.is_in("ready", "server")
        party = Party(ADA)
        given_up, other, behind = Asker(), Asker(), Asker()
        handles = [
            world.kernel.begin(party, "server", "invoke", {"op": op}, asker)
            for op, asker in (("one", given_up), ("two", other), ("album", behind))
        ]
        await world.says("asked again", "server")
        assert handles[0] is not None
        handles[0].cancel(GONE)
        error = (await given_up.document())["error"]
        words = "server was still being asked whether it has that op by now"
        assert error["message"] == f"{GONE.message}; {words}"
        await world.passes(19)
        assert not other.responses
        assert not behind.responses
        while not other.responses:
            await world.passes(1)
        # The process takes the machine's time for an answer, so the clock stands still for that.
        assert (await other.document())["error"]["details"]["reason"] == "unknown_op"
        assert (await behind.document())["ok"]
