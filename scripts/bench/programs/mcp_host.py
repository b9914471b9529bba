"""mcp_host.py COUNT WINDOW PROGRAM...: call a tool with the MCP SDK's client, WINDOW calls at once.

It runs in the SDK's own environment. PROGRAM is a server over stdio that has a tool `echo`. Prints
the seconds it took, and those of its own CPU, after a quarter as many.
"""

from __future__ import annotations

import asyncio
import sys
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    """Call, and time it."""
    count, window = int(sys.argv[1]), int(sys.argv[2])
    server = StdioServerParameters(command=sys.argv[3], args=sys.argv[4:])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.call_tool("echo", {"n": 1})  # it may look the tool up the first time
        left = 0

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                answer = await session.call_tool("echo", {"n": 1})
                assert answer.content, answer

        begin = used = 0.0
        for calls in (count // 4, count):
            left, begin, used = calls, time.perf_counter(), time.process_time()
            await asyncio.gather(*(caller() for _ in range(window)))
        took, used = time.perf_counter() - begin, time.process_time() - used
    print(f"{took:.9f} {used:.9f}")


asyncio.run(main())
