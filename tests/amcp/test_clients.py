"""AMCP's own clients, as they are, against this daemon; `make test-amcp` installs and runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from scripts.amcp_clients import VERSIONS, is_installed, python_of
from supervisor.kernel.kernel import Kernel
from tests.faces.http.in_process import LOOPBACK, served
from tests.factories import actor, open_files, opened_since
from tests.kernel.conftest import daemon_with, run_op
from tests.kernel.test_grants import nothing
from tests.kernel.test_host_calls import allowing
from tests.kernel.test_prompts import agent
from tests.system.descriptors import CALM

pytestmark = pytest.mark.skipif(
    "STDIOD_TEST_AMCP" not in os.environ, reason="foreign clients run in `make test-amcp` only"
)

PROGRAM = Path(__file__).with_name("client_program.py")
BOUND_S = 300
"""For all that a client does; one that is slow to start must not fail it."""


async def kill_agent(daemon: Kernel) -> None:
    shown = await run_op(daemon, "status", {"module": "a"}, nothing)
    os.kill(shown["instances"][0]["pid"], signal.SIGKILL)


async def told_by_client(daemon: Kernel, version: str, url: str) -> dict[str, Any]:
    """Run the client to its end; returns what it said last of each thing, and all it saw."""
    found: dict[str, Any] = {"seen": [], "status": []}
    process = await trio.lowlevel.open_process(
        [str(python_of(version)), "-W", "ignore", str(PROGRAM), url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        held = b""
        async for data in process.stdout:
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                what, value = json.loads(line)
                if what == "running":
                    await kill_agent(daemon)
                elif what in ("seen", "status"):
                    found[what].append(value)
                else:
                    found[what] = value
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
    return found


@pytest.mark.bound(BOUND_S + 60)
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_does_all_that_it_can_and_sees_a_kill(version: str, tmp_path: Path) -> None:
    if not is_installed(version):
        pytest.skip(f"amcp-agent {version} is not installed: `make test-amcp` says why")
    before = open_files()
    modules = (
        agent(tmp_path, supervision=CALM, capabilities=["module.invoke"]),
        actor(tmp_path, supervision=CALM),
    )
    with trio.fail_after(BOUND_S):
        async with (
            daemon_with(tmp_path, *modules, operator=allowing(tmp_path)) as daemon,
            served(daemon, tmp_path, LOOPBACK) as face,
        ):
            # Basic, in the URL that the client is given: the older one can say nothing else.
            token, port = await face.token(), face.doors[-1].listener.getsockname()[1]
            url = f"http://any:{token}@127.0.0.1:{port}"
            found = await told_by_client(daemon, version, url)
            while daemon.facts.connections.open:
                await trio.lowlevel.checkpoint()
            assert daemon.facts.ledger.total == 0
    assert found["health"] == {"status": "ok"}
    assert (found["info"], found["agents"]) == ("supervisor", ["a"])
    assert found["created"] == ["trip", "/srv", "a"]
    assert found["listed"] == ["trip"]
    assert found["whole"] == "onetwo"
    whole = [["text", "one"], ["text", "two"], ["complete", ""]]
    assert found["lines"] == found["frames"] == whole
    calls = [kind for kind, _ in found["tool"]]
    assert calls == ["tool_call", "tool_result", "complete"]
    assert found["tool"][0][1] == "m.echo"
    assert found["ping"] is True
    assert found["failed"] == [["PromptError", "too wet"]]
    assert found["status"] == ["busy", "busy"]
    [[error, words]] = found["cancel"]
    assert error == "PromptError"
    assert "cancelled" in words
    [[error, words]] = found["kill"]
    assert error == "PromptError"
    assert "SIGKILL" in words
    course = ["prompt.received", "prompt.started", "message.start", "agent.thinking", "error"]
    for seen in found["seen"]:
        assert [one for one in seen if one in course] == course
        assert seen[-1] == "agent.idle"
    assert found["again"] == "three"
    assert found["history"].count(False) == 3
    assert found["left"] == []
    assert found["deleted"][0][0] == "SessionNotFoundError"
    assert not opened_since(before)
