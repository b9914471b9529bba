"""raw_stream.py COUNT PROGRAM...: read a stream of events as fast as Python can.

A pipe, a split at newlines, `orjson.loads` of each line: nothing is validated, nobody subscribes.
Prints the seconds it took from the request to the `done` event, and those of its own CPU, after a
stream of a quarter as many.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import orjson

READ_BYTES = 65536


def listen(count: int, writing: int, reading: int) -> None:
    """Ask for a stream and read it."""
    ask = {"op": "stream", "args": {"n": count}}
    request = {"requestId": "r1", "tool": "native", "operation": "invoke", "input": ask}
    os.write(writing, orjson.dumps(request) + b"\n")
    seen, rest, ended = 0, b"", False
    while not ended:
        chunk = os.read(reading, READ_BYTES)
        assert chunk, "the stream broke off"
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            event = orjson.loads(line)
            if event["type"] == "done":
                ended = True
            else:
                seen += 1
    assert seen == count, f"{seen} events of {count}"


def main() -> None:
    """Ask twice, and time the second stream."""
    count = int(sys.argv[1])
    with subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        pipes = child.stdin.fileno(), child.stdout.fileno()
        listen(count // 4, *pipes)
        begin, used = time.perf_counter(), time.process_time()
        listen(count, *pipes)
        took, used = time.perf_counter() - begin, time.process_time() - used
        child.stdin.close()
    print(f"{took:.9f} {used:.9f}")


if __name__ == "__main__":
    main()
