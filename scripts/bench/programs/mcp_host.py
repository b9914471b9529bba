"""mcp_host.py COUNT WINDOW PROGRAM...: call a tool with the MCP SDK's client, WINDOW calls at once.

It runs in the SDK's own environment. PROGRAM is a server over stdio that has a tool `echo`. Prints
the seconds it took, and those of its own CPU, after a quarter as many.
"""

import asyncio
import sys
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(count: int, window: int, command: str, *words: str) -> None:
    server = StdioServerParameters(command=command, args=list(words))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.call_tool("echo", {"n": 1})  # it may look the tool up the first time

        async def caller(left: list[None]) -> None:
            while left:
                left.pop()
                answer = await session.call_tool("echo", {"n": 1})
                assert answer.content, answer

        for calls in ([None] * (count // 4), [None] * count):
            began_s, used_s = time.perf_counter(), time.process_time()
            await asyncio.gather(*(caller(calls) for _ in range(window)))
        took_s, used_s = time.perf_counter() - began_s, time.process_time() - used_s
    print(f"{took_s:.9f} {used_s:.9f}")


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
