"""One process that checks (`program`), and the daemon's side of it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import trio

from protocol.args_schema import OpSchema
from protocol.problem import Problem
from supervisor.runtime.checking.contract import CPU_S, MEMORY_BYTES, SIZES, command
from supervisor.runtime.containment import procfs
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.containment.reaping import tracer_of

WALL_S = 10.0
"""How long a check may take by the clock, the start of the process included. It has a bound in CPU
time, for which a busy machine may need a while, and a stopped process for ever."""

ANSWER_BYTES = 1 << 16
"""Its answers are a few hundred bytes."""

_DECODER: msgspec.json.Decoder[Problem | None] = msgspec.json.Decoder(Problem | None)


class Unchecked(msgspec.Struct, frozen=True):
    """Args that could not be checked: as a phrase, why."""

    why: str


class Checker:
    """A process that checks one thing at a time."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        assert popen.stdin is not None  # noqa: S101 - both are pipes
        assert popen.stdout is not None  # noqa: S101
        self.pid = popen.pid
        self._stdin = popen.stdin.fileno()
        self._stdout = popen.stdout.fileno()
        for descriptor in (self._stdin, self._stdout):
            os.set_blocking(descriptor, False)

    @property
    def ended(self) -> bool:
        """Whether it has closed its stdout: it is dead."""
        poll = select.poll()
        poll.register(self._stdout, 0)
        return bool(poll.poll(0))

    async def check(self, schema: OpSchema, args: bytes) -> Problem | Unchecked | None:
        """Return what is wrong with some args, if anything; `Unchecked` is its last answer."""
        answer = b""
        with trio.move_on_after(WALL_S) as scope:
            try:
                sizes = SIZES.pack(len(schema.json), len(args), schema.vouched)
                await self._write(sizes, schema.json, args)
                answer = await self._line()
            except OSError:  # it died while it was written to
                pass
        if answer.endswith(b"\n"):
            return _DECODER.decode(answer)
        now = procfs.stat(self.pid) if scope.cancelled_caught else None
        if now is not None and now.state in "Tt":
            tracer = tracer_of(self.pid)
            by = "" if tracer is None else f" by {tracer.words}, which traces it"
            return Unchecked(f"the process that looks at them (pid {self.pid}) is stopped{by}")
        return Unchecked(
            f"it took more than {CPU_S:g} s, or {MEMORY_BYTES >> 20} MiB, to look at them"
        )

    async def _write(self, *parts: bytes) -> None:
        for part in parts:
            left = memoryview(part)
            while left:
                try:
                    left = left[os.write(self._stdin, left) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._stdin)

    async def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n") and len(line) < ANSWER_BYTES:
            await trio.lowlevel.wait_readable(self._stdout)
            chunk = os.read(self._stdout, ANSWER_BYTES)
            if not chunk:
                break
            line += chunk
        return line


@asynccontextmanager
async def checker(custody: Custody) -> AsyncIterator[Checker]:
    """Run a checker within the block; raises `OSError` if none can be started."""
    theirs, ours = os.pipe2(os.O_CLOEXEC)
    with contextlib.ExitStack() as open_pipes:
        open_pipes.callback(os.close, ours)
        try:
            popen, process = await custody.spawn_own(
                "starting a process that checks args", partial(_start, theirs)
            )
        finally:
            os.close(theirs)
        for pipe in (popen.stdin, popen.stdout):
            assert pipe is not None  # noqa: S101 - see `Checker`
            open_pipes.enter_context(pipe)
        try:
            yield Checker(popen)
        finally:
            await custody.end_own(popen, process)  # it keeps nothing


def _start(lifeline: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(lifeline),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        pass_fds=[lifeline],
        start_new_session=True,
        # Nothing of the daemon's: it is not to be taken for a module's process.
        env={"LANG": "C.UTF-8"},
    )
