"""trio_spawn_loop.py COUNT PROGRAM: run a tool COUNT times with `trio.run_process`.

Prints the seconds it took.
"""

from __future__ import annotations

import sys
import time

import orjson
import trio


async def main() -> None:
    """Run it again and again."""
    count, command = int(sys.argv[1]), sys.argv[2:]
    request = {"requestId": "r1", "tool": "done", "operation": "run", "input": {}}
    line = orjson.dumps(request) + b"\n"
    begin = time.perf_counter()
    for _ in range(count):
        done = await trio.run_process(command, stdin=line, capture_stdout=True, capture_stderr=True)
        assert orjson.loads(done.stdout)["ok"]
    print(f"{time.perf_counter() - begin:.9f}")


trio.run(main)
