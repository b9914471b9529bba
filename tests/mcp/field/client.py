"""Use the Python SDK as its documentation does: `client.py older|newer MODE`.

Each line of stdin is a command and a list of steps: one connection, and one line of what came of
each step. Runs in an environment that has `mcp` and nothing of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import mcp  # type: ignore[import-not-found, unused-ignore]

LINE, MODE = sys.argv[1:]
CHANGED_S = 20.0


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def tried(step: Callable[..., Awaitable[Any]], *given: Any) -> Any:
    try:
        return await step(*given)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return {"raised": f"{type(error).__name__}: {error}"}


@contextlib.asynccontextmanager
async def connected(command: list[str], changed: asyncio.Event) -> AsyncIterator[Any]:
    """Connect, and listen; yields the client, and the capabilities of the server."""

    async def heard(message: Any) -> None:
        if isinstance(getattr(message, "root", message), mcp.types.ToolListChangedNotification):
            changed.set()

    async def listen(subscription: Any) -> None:
        async for _ in subscription:
            changed.set()

    server = mcp.StdioServerParameters(command=command[0], args=command[1:])
    if LINE == "older":
        async with (
            mcp.stdio_client(server) as (read, write),
            mcp.ClientSession(read, write, message_handler=heard) as session,
        ):
            yield session, dumped((await session.initialize()).capabilities)
        return
    async with mcp.Client(server, mode=MODE, message_handler=heard) as client:
        capabilities = dumped(client.server_capabilities)
        if MODE == "legacy" or not capabilities.get("tools", {}).get("listChanged"):
            yield client, capabilities
            return
        async with client.listen(tools_list_changed=True) as subscription:
            listening = asyncio.create_task(listen(subscription))
            yield client, capabilities
            listening.cancel()


class Steps:
    """What can be asked for, each by its name."""

    def __init__(self, client: Any, announced: Any, change: asyncio.Event) -> None:
        self._client = client
        self._announced = announced
        self._change = change

    async def capabilities(self) -> Any:
        return self._announced

    async def tools(self) -> list[str]:
        return [one.name for one in (await self._client.list_tools()).tools]

    async def prompts(self) -> list[str]:
        return [one.name for one in (await self._client.list_prompts()).prompts]

    async def resources(self) -> list[str]:
        return [str(one.uri) for one in (await self._client.list_resources()).resources]

    async def read(self, uri: str) -> list[str | None]:
        return [one.text for one in (await self._client.read_resource(uri)).contents]

    async def call(self, tool: str, given: Any = None, progressed: Any = None) -> dict[str, Any]:
        asked = self._client.call_tool(tool, given or {}, progress_callback=progressed)
        result = {"isError": False, **dumped(await asked)}
        members = ("content", "structuredContent", "isError")
        return {name: result[name] for name in members if name in result}

    async def progress(self, tool: str, given: Any = None) -> dict[str, Any]:
        seen: list[float] = []

        async def progressed(done: float, _: float | None, __: str | None) -> None:
            seen.append(done)

        return {**await self.call(tool, given, progressed), "progress": seen}

    async def together(self, *calls: list[Any]) -> dict[str, Any]:
        order: list[str] = []

        async def one(tool: str, *given: Any) -> Any:
            outcome = await tried(self.call, tool, *given)
            order.append(tool)
            return outcome

        return {"outcomes": await asyncio.gather(*(one(*each) for each in calls)), "order": order}

    async def changed(self) -> list[str]:
        await asyncio.wait_for(self._change.wait(), CHANGED_S)
        return await self.tools()


async def play(command: list[str], steps: list[list[Any]]) -> list[Any]:
    change = asyncio.Event()
    async with connected(command, change) as (client, announced):
        verbs = Steps(client, announced, change)
        return [await tried(getattr(verbs, verb), *given) for verb, *given in steps]


if __name__ == "__main__":
    for script in sys.stdin:
        print(json.dumps(asyncio.run(tried(play, *json.loads(script)))), flush=True)  # noqa: T201
