"""python_host.py MODE COUNT WINDOW PROGRAM...: do the work of a row in Python, without stdiod.

raw-stream      read a stream of events as fast as Python can: split at newlines, `orjson.loads`
asyncio-stream  the same with `readline`
asyncio-ask     `readline` per answer, and a future per request, found by its id: what one writes
                without looking for speed
trio-ask        as little as one can do on trio: answers find by their id who waits for them, all
                requests of a tick leave in one write; no supervision, no deadline
trio-spawn      `trio.run_process`, one run after the other

Prints the seconds that it took, and those of its own CPU, after a quarter as many to warm up.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from subprocess import PIPE
from typing import Any

import msgspec
import orjson
import trio

READ_BYTES = 65536
ECHO = {"tool": "primes", "operation": "invoke", "input": {"op": "echo", "args": {"n": 1}}}
RUN = b'{"requestId":"r1","tool":"done","operation":"run","input":{}}\n'


class Answer(msgspec.Struct):
    request_id: str = msgspec.field(name="requestId")
    ok: bool
    result: Any = None


def stream_of(count: int) -> bytes:
    given = {"op": "stream", "args": {"n": count}}
    request = {"requestId": "r1", "tool": "native", "operation": "invoke", "input": given}
    return orjson.dumps(request) + b"\n"


async def timed(work: Callable[[int], Awaitable[None]]) -> None:
    await work(count // 4)
    began_s, used_s = time.perf_counter(), time.process_time()
    await work(count)
    print(f"{time.perf_counter() - began_s:.9f} {time.process_time() - used_s:.9f}")


async def raw_stream(stdin: int, stdout: int, count: int) -> None:
    os.write(stdin, stream_of(count))
    seen, rest, is_done = 0, b"", False
    while not is_done:
        chunk = os.read(stdout, READ_BYTES)
        assert chunk, "the stream broke off"
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            is_done = orjson.loads(line)["type"] == "done"
            seen += not is_done
    assert seen == count, f"{seen} events of {count}"


async def trio_ask(stdin: int, stdout: int, count: int) -> None:
    decode = msgspec.json.Decoder(Answer).decode
    waiting: dict[str, Callable[[Answer], None]] = {}
    outgoing: list[bytes] = []
    sent = answered = 0
    rest = b""

    def submit() -> None:
        nonlocal sent
        sent += 1
        waiting[f"r{sent}"] = settle
        outgoing.append(msgspec.json.encode({"requestId": f"r{sent}", **ECHO}))

    def settle(answer: Answer) -> None:
        nonlocal answered
        assert answer.ok, answer
        answered += 1
        if sent < count:
            submit()

    for _ in range(min(window, count)):
        submit()
    while answered < count:
        left = memoryview(b"\n".join([*outgoing, b""]))
        outgoing.clear()
        while left:
            try:
                left = left[os.write(stdin, left) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(stdin)
        while True:
            try:
                rest += os.read(stdout, READ_BYTES)
                break
            except BlockingIOError:
                await trio.lowlevel.wait_readable(stdout)
        *lines, rest = rest.split(b"\n")
        for line in lines:
            answer = decode(line)
            waiting.pop(answer.request_id)(answer)


async def trio_spawn(count: int) -> None:
    for _ in range(count):
        done = await trio.run_process(command, stdin=RUN, capture_stdout=True, capture_stderr=True)
        assert orjson.loads(done.stdout)["ok"]


async def on_asyncio() -> None:
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    work = asyncio_ask if mode == "asyncio-ask" else asyncio_stream
    await timed(partial(work, child.stdin, child.stdout))
    child.stdin.close()
    await child.wait()


async def asyncio_stream(
    writer: asyncio.StreamWriter, reader: asyncio.StreamReader, count: int
) -> None:
    writer.write(stream_of(count))
    seen = 0
    while orjson.loads(await reader.readline())["type"] != "done":
        seen += 1
    assert seen == count, f"{seen} events of {count}"


async def asyncio_ask(
    writer: asyncio.StreamWriter, reader: asyncio.StreamReader, count: int
) -> None:
    waiting: dict[str, asyncio.Future[Any]] = {}
    left = count

    async def read() -> None:
        for _ in range(count):
            answer = orjson.loads(await reader.readline())
            waiting.pop(answer["requestId"]).set_result(answer)

    async def caller() -> None:
        nonlocal left
        while left:
            request_id = f"r{left}"
            left -= 1
            future = waiting[request_id] = asyncio.get_running_loop().create_future()
            writer.write(orjson.dumps({"requestId": request_id, **ECHO}) + b"\n")
            answer = await future
            assert answer["ok"], answer

    await asyncio.gather(read(), *(caller() for _ in range(window)))


mode, command = sys.argv[1], sys.argv[4:]
count, window = map(int, sys.argv[2:4])
if mode.startswith("asyncio"):
    asyncio.run(on_asyncio())
elif mode == "trio-spawn":
    trio.run(timed, trio_spawn)
else:
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stdin, stdout = child.stdin.fileno(), child.stdout.fileno()
        os.set_blocking(stdin, mode == "raw-stream")
        os.set_blocking(stdout, mode == "raw-stream")
        trio.run(timed, partial(raw_stream if mode == "raw-stream" else trio_ask, stdin, stdout))
