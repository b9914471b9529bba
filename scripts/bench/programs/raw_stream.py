"""raw_stream.py COUNT PROGRAM...: read a stream of events as fast as Python can.

A pipe, a split at newlines, `orjson.loads` of each line: nothing is validated, nobody subscribes.
Prints the seconds it took from the request to the `done` event.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import orjson

READ_BYTES = 65536


def main() -> None:
    """Ask for the stream and time it."""
    count = int(sys.argv[1])
    with subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        ask = {"op": "stream", "args": {"n": count}}
        request = {"requestId": "r1", "tool": "native", "operation": "invoke", "input": ask}
        reading = child.stdout.fileno()
        begin = time.perf_counter()
        child.stdin.write(orjson.dumps(request) + b"\n")
        child.stdin.flush()
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
        took = time.perf_counter() - begin
        assert seen == count, f"{seen} events of {count}"
        child.stdin.close()
    print(f"{took:.9f}")


if __name__ == "__main__":
    main()
