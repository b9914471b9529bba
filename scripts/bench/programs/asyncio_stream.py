"""asyncio_stream.py COUNT PROGRAM...: read a stream of events with asyncio's `readline`.

Prints the seconds it took from the request to the `done` event.
"""

from __future__ import annotations

import asyncio
import sys
import time

import orjson


async def main() -> None:
    """Ask for the stream and time it."""
    count = int(sys.argv[1])
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*sys.argv[2:], stdin=pipe, stdout=pipe)
    assert child.stdin is not None
    assert child.stdout is not None
    ask = {"op": "stream", "args": {"n": count}}
    request = {"requestId": "r1", "tool": "native", "operation": "invoke", "input": ask}
    begin = time.perf_counter()
    child.stdin.write(orjson.dumps(request) + b"\n")
    seen = 0
    while orjson.loads(await child.stdout.readline())["type"] != "done":
        seen += 1
    took = time.perf_counter() - begin
    assert seen == count, f"{seen} events of {count}"
    child.stdin.close()
    await child.wait()
    print(f"{took:.9f}")


asyncio.run(main())
