"""asyncio_stream.py COUNT PROGRAM...: read a stream of events with asyncio's `readline`.

Prints the seconds it took from the request to the `done` event, and those of its own CPU, after a
stream of a quarter as many.
"""

from __future__ import annotations

import asyncio
import sys
import time

import orjson


async def listen(count: int, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
    """Ask for a stream and read it."""
    ask = {"op": "stream", "args": {"n": count}}
    request = {"requestId": "r1", "tool": "native", "operation": "invoke", "input": ask}
    writer.write(orjson.dumps(request) + b"\n")
    seen = 0
    while orjson.loads(await reader.readline())["type"] != "done":
        seen += 1
    assert seen == count, f"{seen} events of {count}"


async def main() -> None:
    """Ask twice, and time the second stream."""
    count = int(sys.argv[1])
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*sys.argv[2:], stdin=pipe, stdout=pipe)
    assert child.stdin is not None
    assert child.stdout is not None
    await listen(count // 4, child.stdin, child.stdout)
    begin, used = time.perf_counter(), time.process_time()
    await listen(count, child.stdin, child.stdout)
    took, used = time.perf_counter() - begin, time.process_time() - used
    child.stdin.close()
    await child.wait()
    print(f"{took:.9f} {used:.9f}")


asyncio.run(main())
