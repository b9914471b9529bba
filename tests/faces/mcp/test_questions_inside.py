"""Questions to clients that do not come back, with the bounds of that made small."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio.testing

from supervisor.faces.mcp import questions
from supervisor.faces.mcp.server import McpServer
from supervisor.policy.mcp_views import McpOptions, View
from tests.faces.mcp.clients import McpClient
from tests.faces.mcp.in_process import fixtures, in_flight, mcp_client
from tests.faces.mcp.test_questions import ACCEPTED, GREETED, call
from tests.kernel.conftest import daemon_with
from tests.kernel.host_calls import allowing

OWN = View("own", ("fixtures",), prefix=False)


@asynccontextmanager
async def client_of(folder: Path) -> AsyncIterator[McpClient]:
    operator = allowing(folder)
    views = {"own": OWN}
    async with (
        daemon_with(folder, fixtures(folder), mcp=McpOptions(views), operator=operator) as daemon,
        mcp_client(daemon, "own") as client,
    ):
        yield client


async def test_a_request_whose_client_does_not_come_back_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "PARKED", 1)
    async with client_of(tmp_path) as client:
        first = (await call(client, GREETED))["result"]["requestState"]
        second = (await call(client, GREETED))["result"]["requestState"]
        assert "error" in await call(client, GREETED, requestState=first)
        more = {"requestState": second, "inputResponses": {"user_name": ACCEPTED}}
        assert "result" in await call(client, GREETED, **more)


async def test_a_state_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PARKED_S", 0.0)
    options = McpOptions({"own": OWN})
    module = fixtures(tmp_path)
    async with (
        daemon_with(tmp_path, module, mcp=options, operator=allowing(tmp_path)) as daemon,
        mcp_client(daemon, "own") as client,
    ):
        state = (await call(client, GREETED))["result"]["requestState"]
        while McpServer.of(daemon).parked._all:
            await trio.testing.wait_all_tasks_blocked()
        more = {"requestState": state, "inputResponses": {"user_name": ACCEPTED}}
        assert (await call(client, GREETED, **more))["error"]["code"] == -32602
        while in_flight(daemon, "fixtures"):
            await trio.testing.wait_all_tasks_blocked()
