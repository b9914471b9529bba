"""asyncio_pingpong.py COUNT WINDOW PROGRAM...: ask a persistent module from an asyncio host.

A subprocess, `readline` per answer, a future per request found by its id: what one writes without
looking for speed. Prints the seconds it took, and those of its own CPU, after a quarter as many.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import orjson


async def main() -> None:
    """Ask, and time it."""
    count, window = int(sys.argv[1]), int(sys.argv[2])
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*sys.argv[3:], stdin=pipe, stdout=pipe)
    writer, reader = child.stdin, child.stdout
    assert writer is not None
    assert reader is not None
    waiting: dict[str, asyncio.Future[Any]] = {}
    left = 0

    async def read() -> None:
        while line := await reader.readline():
            answer = orjson.loads(line)
            waiting.pop(answer["requestId"]).set_result(answer)

    async def caller() -> None:
        nonlocal left
        while left:
            request_id = f"r{left}"
            left -= 1
            future = waiting[request_id] = asyncio.get_running_loop().create_future()
            ask = {"op": "echo", "args": {"n": 1}}
            request = {"requestId": request_id, "tool": "primes"}
            line = orjson.dumps({**request, "operation": "invoke", "input": ask})
            writer.write(line + b"\n")
            answer = await future
            assert answer["ok"], answer

    reading = asyncio.create_task(read())
    begin = used = 0.0
    for calls in (count // 4, count):
        left, begin, used = calls, time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller() for _ in range(window)))
    took, used = time.perf_counter() - begin, time.process_time() - used
    writer.close()
    await reading
    await child.wait()
    print(f"{took:.9f} {used:.9f}")


asyncio.run(main())
