"""trio_spawn_loop.py COUNT PROGRAM: run a tool COUNT times with `trio.run_process`.

Prints the seconds it took, and those of its own CPU, after a quarter as many.
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
    begin = used = 0.0
    for number in range(-(count // 4), count):
        if number == 0:
            begin, used = time.perf_counter(), time.process_time()
        done = await trio.run_process(command, stdin=line, capture_stdout=True, capture_stderr=True)
        assert orjson.loads(done.stdout)["ok"]
    print(f"{time.perf_counter() - begin:.9f} {time.process_time() - used:.9f}")


trio.run(main)
