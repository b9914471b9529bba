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

from scripts.foreign import AMCP
from tests.faces.running import LOOPBACK, PERMISSIVE, Running, running
from tests.system.descriptors import actor, agent

pytestmark = pytest.mark.skipif(
    "STDIOD_TEST_AMCP" not in os.environ, reason="foreign clients run in `make test-amcp` only"
)

PROGRAM = Path(__file__).with_name("client_program.py")
BOUND_S = 300
"""For all that a client does; one that is slow to start must not fail it."""


async def told_by_client(face: Running, version: str, url: str) -> dict[str, Any]:
    """Run the client to its end; returns what it said last of each thing, and all it saw."""
    found: dict[str, Any] = {"seen": [], "status": []}
    process = await trio.lowlevel.open_process(
        [str(AMCP[version].bin / "python"), "-W", "ignore", str(PROGRAM), url],
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
                    os.kill(face.daemon.pid("a"), signal.SIGKILL)
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
@pytest.mark.parametrize("version", AMCP)
async def test_a_client_does_all_that_it_can_and_sees_a_kill(version: str) -> None:
    if not AMCP[version].is_installed():
        pytest.skip(f"amcp-agent {version} is not installed: `make test-amcp` says why")
    modules = ({**agent(), "capabilities": ["module.invoke"]}, actor())
    with trio.fail_after(BOUND_S):
        async with running(*modules, http=LOOPBACK, policy=PERMISSIVE) as face:
            before, files = face.daemon.open_files(), face.gateway_files
            # Basic, in the URL that the client is given: the older one can say nothing else.
            url = face.address.replace("http://", f"http://any:{await face.token()}@")
            found = await told_by_client(face, version, url)
            await face.gateway_parts(files)
            face.daemon.wait_open_files(before)
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
