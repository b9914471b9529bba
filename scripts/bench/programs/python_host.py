"""python_host.py MODE COUNT WINDOW PROGRAM...: do the work of a row in Python, without stdiod.

raw-stream      read a stream of events as fast as Python can: split at newlines, `orjson.loads`
asyncio-stream  the same with `readline`
asyncio-ask     `readline` per answer, and a future per request, found by its id: what one writes
                without looking for speed
trio-ask        as little as one can do on trio: one task reads, answers find by their id who waits
                for them, all requests of a tick leave in one write; no supervision, no deadline
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
from subprocess import PIPE
from typing import Any

import msgspec
import orjson
import trio

READ_BYTES = 65536
STREAM = {"requestId": "r1", "tool": "native", "operation": "invoke"}
ECHO = {"tool": "primes", "operation": "invoke", "input": {"op": "echo", "args": {"n": 1}}}
RUN = {"requestId": "r1", "tool": "done", "operation": "run", "input": {}}


class Answer(msgspec.Struct):
    request_id: str = msgspec.field(name="requestId")
    ok: bool
    result: Any = None


async def timed(count: int, work: Callable[[int], Awaitable[None]]) -> None:
    await work(count // 4)
    begin, used = time.perf_counter(), time.process_time()
    await work(count)
    print(f"{time.perf_counter() - begin:.9f} {time.process_time() - used:.9f}")


def stream_of(count: int) -> bytes:
    return orjson.dumps({**STREAM, "input": {"op": "stream", "args": {"n": count}}}) + b"\n"


async def raw_stream(count: int, stdin: int, stdout: int) -> None:
    async def listen(count: int) -> None:
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

    await timed(count, listen)


async def asyncio_stream(count: int, command: list[str]) -> None:
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    writer, reader = child.stdin, child.stdout
    assert writer is not None
    assert reader is not None

    async def listen(count: int) -> None:
        writer.write(stream_of(count))
        seen = 0
        while orjson.loads(await reader.readline())["type"] != "done":
            seen += 1
        assert seen == count, f"{seen} events of {count}"

    await timed(count, listen)
    writer.close()
    await child.wait()


async def asyncio_ask(count: int, window: int, command: list[str]) -> None:
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
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
            writer.write(orjson.dumps({"requestId": request_id, **ECHO}) + b"\n")
            answer = await future
            assert answer["ok"], answer

    async def ask(count: int) -> None:
        nonlocal left
        left = count
        await asyncio.gather(*(caller() for _ in range(window)))

    reading = asyncio.create_task(read())
    await timed(count, ask)
    writer.close()
    await reading
    await child.wait()


async def trio_ask(count: int, window: int, stdin: int, stdout: int) -> None:
    decode = msgspec.json.Decoder(Answer).decode
    waiting: dict[str, Callable[[Answer], None]] = {}
    outgoing: list[bytes] = []
    wanted = sent = answered = 0

    def submit() -> None:
        nonlocal sent
        sent += 1
        waiting[f"r{sent}"] = settle
        outgoing.append(msgspec.json.encode({"requestId": f"r{sent}", **ECHO}))

    def settle(answer: Answer) -> None:
        nonlocal answered
        assert answer.ok, answer
        answered += 1
        if sent < wanted:
            submit()

    async def write() -> None:
        left = memoryview(b"\n".join([*outgoing, b""]))
        outgoing.clear()
        while left:
            try:
                left = left[os.write(stdin, left) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(stdin)

    async def read() -> bytes:
        while True:
            try:
                return os.read(stdout, READ_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(stdout)

    async def ask(count: int) -> None:
        nonlocal wanted, sent, answered
        wanted, sent, answered, rest = count, 0, 0, b""
        for _ in range(min(window, count)):
            submit()
        while answered < count:
            await write()
            *lines, rest = (rest + await read()).split(b"\n")
            for line in lines:
                answer = decode(line)
                waiting.pop(answer.request_id)(answer)

    os.set_blocking(stdin, False)
    os.set_blocking(stdout, False)
    await timed(count, ask)


async def trio_spawn(count: int, command: list[str]) -> None:
    request = orjson.dumps(RUN) + b"\n"

    async def spawn(count: int) -> None:
        for _ in range(count):
            done = await trio.run_process(
                command, stdin=request, capture_stdout=True, capture_stderr=True
            )
            assert orjson.loads(done.stdout)["ok"]

    await timed(count, spawn)


mode, count, window, *command = sys.argv[1:]
match mode:
    case "asyncio-stream":
        asyncio.run(asyncio_stream(int(count), command))
    case "asyncio-ask":
        asyncio.run(asyncio_ask(int(count), int(window), command))
    case "trio-spawn":
        trio.run(trio_spawn, int(count), command)
    case _:
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as child:
            stdin, stdout = (end.fileno() for end in (child.stdin, child.stdout) if end is not None)
            if mode == "raw-stream":
                trio.run(raw_stream, int(count), stdin, stdout)
            else:
                trio.run(trio_ask, int(count), int(window), stdin, stdout)
