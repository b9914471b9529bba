"""Use AMCP's own client as its documentation does: `python client_program.py URL`.

Runs in an environment that has amcp-agent and nothing of ours. Writes what it sees as lines of
JSON, `[what, value]`; after `running` it waits for what becomes of its prompt.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from amcp.client import AMCPClient  # type: ignore[import-not-found, unused-ignore]
from amcp.client.exceptions import AMCPClientError  # type: ignore[import-not-found, unused-ignore]

SESSION = "trip"


def say(what: str, value: Any = None) -> None:
    sys.stdout.write(json.dumps([what, value]) + "\n")
    sys.stdout.flush()


async def streamed(chunks: Any) -> list[tuple[str, str]]:
    found = []
    try:
        async for chunk in chunks:
            found.append((chunk.chunk_type, chunk.content))  # noqa: PERF401 - an error may follow
    except AMCPClientError as error:
        found.append((type(error).__name__, error.message))
    return found


async def heard(watching: Any, wanted: str, seen: list[str]) -> None:
    async for message in watching:
        seen.append(message["payload"]["kind"])
        if seen[-1] == wanted:
            return


async def main(url: str) -> None:
    async with AMCPClient(url) as client:
        say("health", await client.health())
        say("info", (await client.info())["name"])
        say("agents", [one["name"] for one in await client.list_agents()])
        session = await client.create_session(cwd="/srv", agent_name="a", session_id=SESSION)
        say("created", [session.id, session.cwd, session.agent_name])
        say("listed", [one["id"] for one in await client.list_sessions()])
        say("whole", await session.prompt("say one two", stream=False))
        say("lines", await streamed(await session.prompt("say one two")))
        say("tool", await streamed(await session.prompt("call m")))
        socket = await client.websocket_session(SESSION)
        say("ping", await socket.ping())
        say("frames", await streamed(socket.prompt_stream("say one two", priority="high")))
        say("failed", await streamed(socket.prompt_stream("fail")))
        for how in ("cancel", "kill"):
            watching = await client.websocket_session(SESSION)
            seen: list[str] = []
            prompt = asyncio.create_task(streamed(socket.prompt_stream("hang")))
            await heard(watching, "agent.thinking", seen)
            say("status", (await session.info())["status"])
            if how == "cancel":
                await socket.send_cancel()
            else:
                say("running")
            say(how, await prompt)
            await heard(watching, "agent.idle", seen)
            say("seen", seen)
            await watching.close()
        say("again", await session.prompt_full("say three"))
        history = await client._client._request("GET", f"/sessions/{SESSION}/history")
        say("history", [one["ok"] for one in history["history"]])
        await socket.close()
        await session.delete()
        say("left", [one["id"] for one in await client.list_sessions()])
        say("deleted", await streamed(await session.prompt("x")))


asyncio.run(main(sys.argv[1]))
