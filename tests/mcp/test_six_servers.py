"""Six MCP servers that nobody here wrote, in one daemon; `make test-mcp` installs and runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.descriptor.loading import parse_descriptor
from protocol.descriptor.model import Descriptor
from protocol.events import UiEvent
from supervisor.kernel.kernel import Kernel
from tests.bounds import until
from tests.factories import children
from tests.kernel.conftest import ask, daemon_with, nothing, run_op
from tests.kernel.host_calls import allowing, question
from tests.mcp.servers import BOUND_S, NAMES, NEWER, PATIENT, document, needs_servers
from tests.system.conftest import StartDaemon, folder, start_daemon
from tests.system.test_host_calls import policy
from tests.system.test_mcp_questions import stdiod

__all__ = ["folder", "start_daemon"]

pytestmark = needs_servers


def server(folder: Path, name: str, **supervision: Any) -> Descriptor:
    capabilities = ["user.ask"] if name == "everything" else []
    made = document(name, folder, *capabilities, **supervision)
    return parse_descriptor(json.dumps(made).encode(), str(folder / f"{name}.json"))


@asynccontextmanager
async def served(folder: Path, *descriptors: Descriptor) -> AsyncIterator[Kernel]:
    with trio.fail_after(BOUND_S):
        async with daemon_with(folder, *descriptors, operator=allowing(folder)) as daemon:
            yield daemon
    assert children() == []


async def result(daemon: Kernel, name: str, op: str, **args: Any) -> Any:
    document = await ask(daemon, name, op, args=args).document()
    assert document["ok"], document
    return document["result"]


def text(answer: Any) -> str:
    return "\n".join(one.get("text", "") for one in answer["content"])


def make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(folder / "repo")], check=True)


async def test_all_six_are_called_in_one_daemon(tmp_path: Path) -> None:
    make_repository(tmp_path)
    async with served(tmp_path, *(server(tmp_path, name) for name in NAMES)) as daemon:
        for name in NAMES:
            shown = await run_op(daemon, "status", {"module": name}, nothing)
            assert shown["mcp"]["era"] == ("modern" if name in NEWER else "legacy"), name
            assert shown["restarts"] == 0
        assert (await result(daemon, "time", "get_current_time", timezone="UTC"))[
            "timezone"
        ] == "UTC"
        repository = str(tmp_path / "repo")
        assert "No commits yet" in text(
            await result(daemon, "git", "git_status", repo_path=repository)
        )
        closed = await ask(daemon, "fetch", "fetch", args={"url": "http://127.0.0.1:9/"}).document()
        assert closed["error"]["details"]["reason"] == "reported"
        assert text(await result(daemon, "everything", "echo", message="hi")) == "Echo: hi"
        assert str(tmp_path) in str(await result(daemon, "filesystem", "list_allowed_directories"))
        assert await result(daemon, "memory", "read_graph") == {"entities": [], "relations": []}


EVERYTHING: dict[str, dict[str, Any]] = {
    "echo": {"message": "x"},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-env": {},
    "get-resource-links": {"count": 3},
    "get-resource-reference": {"resourceType": "Blob", "resourceId": 1},
    "get-structured-content": {"location": "Chicago"},
    "get-sum": {"a": 1, "b": 2},
    "get-tiny-image": {},
    "gzip-file-as-resource": {
        "name": "x.gz",
        "data": "data:text/plain,x",
        "outputType": "resource",
    },
    "toggle-simulated-logging": {},
    "toggle-subscriber-updates": {},
    "trigger-long-running-operation": {"duration": 0.2, "steps": 2},
    "simulate-research-query": {"topic": "x"},
}
TASKS_ONLY = {"simulate-research-query"}
"""It wants a task, which no client of this version offers."""


async def test_every_tool_of_everything_is_called(tmp_path: Path) -> None:
    async with served(tmp_path, server(tmp_path, "everything")) as daemon:
        shown = await run_op(daemon, "status", {"module": "everything"}, nothing)
        tools = {one for one in shown["ops"]["names"] if "/" not in one}
        assert tools == EVERYTHING.keys() | {"trigger-elicitation-request"}
        for op, args in EVERYTHING.items():
            asker = ask(daemon, "everything", op, args=args)
            document = await asker.document()
            assert document["ok"] or op in TASKS_ONLY, document
            if op == "trigger-long-running-operation":
                done = [one.payload for one in asker.events if isinstance(one, UiEvent)]
                assert [one["done"] for one in done if isinstance(one, dict)] == [1, 2]
        asker = ask(daemon, "everything", "trigger-elicitation-request")
        asked = await question(daemon)
        content = {"name": "Ada", "integer": "7"}
        await run_op(daemon, "approve", {"id": asked["id"], "content": content}, nothing)
        said = text((await asker.document())["result"])
        assert "Ada" in said
        assert '"integer": 7' in said


def test_what_everything_asks_is_answered_by_the_commands_of_a_person(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    everything = document("everything", tmp_path, "user.ask")
    daemon = start_daemon(everything, options=policy(tmp_path))
    asked = daemon.client.send("everything", "invoke", {"op": "trigger-elicitation-request"})
    [waits] = until(lambda: daemon.op("approvals")["approvals"], "a question")
    assert waits["id"] in stdiod(daemon, "approvals").stdout
    said = stdiod(daemon, "approve", waits["id"], "--set", "name=Ada", "--set", "integer=7")
    assert said.returncode == 0, said.stderr
    answer = text(daemon.client.answer(asked).result)
    assert "Ada" in answer
    assert '"integer": 7' in answer


async def test_every_tool_of_filesystem_is_called(tmp_path: Path) -> None:
    path, other, folder = (str(tmp_path / one) for one in ("a.txt", "b.txt", "sub"))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": path, "content": "one\n"}),
        ("read_file", {"path": path}),
        ("read_text_file", {"path": path, "head": 1}),
        ("read_media_file", {"path": path}),
        ("read_multiple_files", {"paths": [path]}),
        ("edit_file", {"path": path, "edits": [{"oldText": "one", "newText": "two"}]}),
        ("create_directory", {"path": folder}),
        ("list_directory", {"path": str(tmp_path)}),
        ("list_directory_with_sizes", {"path": str(tmp_path)}),
        ("directory_tree", {"path": folder}),
        ("move_file", {"source": path, "destination": other}),
        ("search_files", {"path": str(tmp_path), "pattern": "*.txt"}),
        ("get_file_info", {"path": other}),
        ("list_allowed_directories", {}),
    ]
    async with served(tmp_path, server(tmp_path, "filesystem")) as daemon:
        shown = await run_op(daemon, "status", {"module": "filesystem"}, nothing)
        assert {op for op, _ in calls} == set(shown["ops"]["names"])
        for op, args in calls:
            await result(daemon, "filesystem", op, **args)
        assert await trio.Path(other).read_text() == "two\n"


@pytest.mark.parametrize(
    ("name", "op", "args"),
    [
        ("everything", "trigger-long-running-operation", {"duration": 600, "steps": 1000}),
        ("everything", "trigger-elicitation-request", {}),
    ],
)
async def test_a_kill_in_a_call_is_told_with_its_cause_and_the_next_call_goes_well(
    name: str, op: str, args: dict[str, Any], tmp_path: Path
) -> None:
    async with served(tmp_path, server(tmp_path, name)) as daemon:
        asker = ask(daemon, name, op, args=args)
        await asker.heard(1)
        shown = await run_op(daemon, "status", {"module": name}, nothing)
        os.kill(shown["instances"][0]["pid"], signal.SIGKILL)
        error = (await asker.document())["error"]
        assert (error["code"], error["details"]["reason"]) == ("unreachable", "signaled")
        assert error["details"]["stderr_tail"]
        assert text(await result(daemon, name, "echo", message="again")) == "Echo: again"


async def test_a_server_that_is_stopped_is_noticed_and_replaced(tmp_path: Path) -> None:
    health = {"interval_s": 0.2, "failures": 2}
    made = server(tmp_path, "time", health=health, timeouts={**PATIENT, "health_s": 1})
    async with served(tmp_path, made) as daemon:
        module = daemon.fleet.modules["time"]
        shown = await run_op(daemon, "status", {"module": "time"}, nothing)
        os.kill(shown["instances"][0]["pid"], signal.SIGSTOP)
        restarts = module.restarts
        await daemon.fleet.wait_until(lambda: module.restarts > restarts or None)
        # On a busy machine the next one may not be well in time either.
        call = {"args": {"timezone": "UTC"}}
        while not (said := await ask(daemon, "time", "get_current_time", **call).document())["ok"]:
            assert said["error"]["code"] == "unreachable", said
        assert said["result"]["timezone"] == "UTC"
