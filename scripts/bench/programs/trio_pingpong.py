"""trio_pingpong.py COUNT WINDOW PROGRAM...: ask a persistent module from a bare trio host.

As little as one can do in Python on trio: one task reads, answers are parsed as they need to be and
find who waits for them by their id, and all requests of a tick leave in one write. Nobody is
supervised, nothing has a deadline, nothing is remembered. Prints the seconds it took, and those of
its own CPU, after a quarter as many.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import trio

READ_BYTES = 65536


class Answer(msgspec.Struct):
    """What a module answers."""

    request_id: str = msgspec.field(name="requestId")
    ok: bool
    result: Any = None


decode = msgspec.json.Decoder(Answer).decode


class Asking:
    """Requests on their way out, and who waits for which answer."""

    def __init__(self, count: int) -> None:
        self.outgoing: list[bytes] = []
        self.sent = self.answered = 0
        self._count = count
        self._waiting: dict[str, Callable[[Answer], None]] = {}

    def ask(self) -> None:
        """Ask once more, if that is wanted."""
        if self.sent == self._count:
            return
        self.sent += 1
        request_id = f"r{self.sent}"
        self._waiting[request_id] = self.settle
        content = {"op": "echo", "args": {"n": 1}}
        request = {"requestId": request_id, "tool": "primes", "operation": "invoke"}
        self.outgoing.append(msgspec.json.encode({**request, "input": content}))

    def settle(self, answer: Answer) -> None:
        """Take an answer, and ask again."""
        assert answer.ok, answer
        self.answered += 1
        self.ask()

    def receive(self, lines: list[bytes]) -> None:
        """Give each answer to whoever waits for it."""
        for line in lines:
            answer = decode(line)
            self._waiting.pop(answer.request_id)(answer)


async def read(pipe: int) -> bytes:
    """Read what there is, once there is something."""
    while True:
        try:
            return os.read(pipe, READ_BYTES)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(pipe)


async def write(pipe: int, lines: list[bytes]) -> None:
    """Write all lines at once, as far as the pipe takes them."""
    left = memoryview(b"\n".join([*lines, b""]))
    while left:
        try:
            left = left[os.write(pipe, left) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(pipe)


async def main(count: int, window: int, pipes: Sequence[int]) -> None:
    """Ask, and say how long it took."""
    await ask(count // 4, window, pipes)
    begin, used = time.perf_counter(), time.process_time()
    await ask(count, window, pipes)
    print(f"{time.perf_counter() - begin:.9f} {time.process_time() - used:.9f}")


async def ask(count: int, window: int, pipes: Sequence[int]) -> None:
    """Ask so often."""
    stdin, stdout = pipes
    asking = Asking(count)
    for _ in range(window):
        asking.ask()
    rest = b""
    while asking.answered < count:
        lines, asking.outgoing = asking.outgoing, []
        await write(stdin, lines)
        *answers, rest = (rest + await read(stdout)).split(b"\n")
        asking.receive(answers)


pipe = subprocess.PIPE
with subprocess.Popen(sys.argv[3:], stdin=pipe, stdout=pipe) as child:
    ends = [end.fileno() for end in (child.stdin, child.stdout) if end is not None]
    for end in ends:
        os.set_blocking(end, False)
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]), ends)
