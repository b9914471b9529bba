"""Everything that can happen to a daemon, at random, by many clients at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any, Final

import psutil
import trio

from scripts.checkout import ROOT, has_tmpdir
from scripts.soak.client import ANSWERED_WITHIN_S, Client
from scripts.soak.daemon import Daemon
from scripts.soak.modules import (
    BIG_ANSWER,
    CALM,
    FLOOD,
    FORMS,
    MANY_VALUES,
    PICKY,
    Modules,
    half_written,
)
from scripts.soak.report import Report
from scripts.soak.stalling import BLOCKED_S, CULPRIT

CLIENTS: Final = 6
MOST_OPEN: Final = 48
"""More open requests than this would only wait in queues."""
UNHURRIED, UNHURRIED_S = 5, 3.0
SUSPENDED_S: Final = UNHURRIED_S + 0.5
"""Longer than requests in flight have, of which each takes milliseconds."""
HELD_S: Final = 0.7
"""How long a debugger, a pipe or a crowd stays."""
TRACER: Final = ROOT / "tests" / "runtime" / "containment" / "tracer.py"
CROWD, MOST_CROWDS = 50, 20
"""So many more come, so often at most, until some are refused."""
MISSPELT: Final = 200
UNREAD_ANSWERS: Final = 30
WAITING_REQUESTS, REQUEST_BYTES = 8, 10 << 20
SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP)
ODD: Final = (
    b'"tool":"plain","operation":"invoke","input":{"op":"%s"}' % (b"x" * 100_000),
    b'"tool":"plain","operation":"invoke","input":{"op":"go","args":{"n":%s}}' % (b"7" * 5000),
    b'"tool":"plain\\u202e\\u0007","operation":"invoke","input":{"op":"go\\u009b2J"}',
    UNPAIRED := b'"tool":"plain","operation":"\\ud800","input":{"op":"go"}',
)
"""Names and numbers of any length, characters that a terminal would obey, and one that is none."""


class Havoc:
    """One soak: a daemon, its modules and its clients."""

    def __init__(
        self, daemon: Daemon, modules: Modules, report: Report, nursery: trio.Nursery
    ) -> None:
        """Run the readers of all clients in `nursery`."""
        self.clients: list[Client] = []
        self.daemon, self.modules, self.report = daemon, modules, report
        self.draw = modules.draw
        self._nursery = nursery
        # Apart from `draw`, from which more or less is taken as things turn out.
        self._order = random.Random(self.draw.random())  # noqa: S311 - dice are not keys

    async def begin(self) -> None:
        """Start the daemon and connect."""
        await self.daemon.start()
        self.clients = [await self.connect() for _ in range(CLIENTS)]

    async def act(self) -> None:
        """Do one thing."""
        weights = [weight for weight, _ in ACTIONS.values()]
        (name,) = self._order.choices(list(ACTIONS), weights)
        self.report.actions[name] += 1
        happens = ACTIONS[name][1](self)
        if isinstance(happens, Awaitable):
            await happens
        while sum(len(one.open) for one in self.clients) > MOST_OPEN:
            self.open_gates()
            await trio.sleep(0.01)
        await trio.sleep(self.draw.random() * 0.02)

    async def end(self) -> None:
        """Wait for every answer, stop every module, compare what is left, end the daemon."""
        async with trio.open_nursery() as nursery:
            for client in self.clients:
                nursery.start_soon(client.wait_answered)
        operator, *others = self.clients
        for client in others:
            await client.hang_up()
        # What was changed last may not have been noticed yet, and modules come and go by that.
        await operator.ask("reload")
        for module in (await operator.ask("status"))["modules"]:
            await operator.ask("stop", module=module["name"])
        # The daemon has seen that the others are gone once it answers after them.
        await self.daemon.compare_metrics(await operator.ask("status"))
        await self.leave()
        await self._stall(operator)
        await operator.hang_up()
        await self.daemon.compare_files()
        await self.daemon.end()

    async def _stall(self, operator: Client) -> None:
        """Have the event loop blocked for once, and see that it is told, unless one was longer."""
        self.daemon.stall()
        blocked_ms, told = BLOCKED_S * 1000, None
        with trio.move_on_after(ANSWERED_WITHIN_S):
            while told is None or (told["culprit"] != CULPRIT and told["ms"] < blocked_ms):
                told = (await operator.ask("status"))["daemon"]["longest_stall"]
                await trio.sleep(0.05)
        self.report.deliberate_stall = told
        # What other threads were kept from meanwhile may have been taken off.
        if told is None or told["ms"] < blocked_ms / 2:
            self.report.errors.append(f"of a stall of {blocked_ms:g} ms was told: {told}")

    async def connect(self) -> Client:
        """Return a client that reads."""
        client = await Client.connect(self.daemon.socket, self.report)
        self._nursery.start_soon(client.read)
        return client

    def any_client(self) -> Client:
        """Return one of those that read."""
        return self.draw.choice([one for one in self.clients if one.gate.is_set()])

    def slow_client(self) -> Client:
        """Return one that reads nothing until another client becomes slow, or too much is open."""
        self.open_gates()
        client = self.any_client()
        client.gate = trio.Event()
        return client

    def open_gates(self) -> None:
        """Have all clients read."""
        for client in self.clients:
            client.gate.set()

    async def control(self, op: str) -> None:
        """Start, stop or restart a module."""
        await self.any_client().send("supervisor", op, {"module": self.modules.any_name()})

    async def instances(self) -> list[tuple[str, int]]:
        """Return module and pid of all processes that may be disturbed."""
        status = await self.any_client().ask("status")
        return [
            (module["name"], one["pid"])
            for module in status["modules"]
            for one in module["instances"]
            if module["name"] != CALM
        ]

    async def connections(self, operator: Client) -> dict[str, int]:
        """Return how many connections are open and were refused."""
        found: dict[str, int] = (await operator.ask("status"))["daemon"]["connections"]
        return found

    async def leave(self) -> None:
        """Take note of what a daemon says of itself before its end, as a client of its own."""
        client = await self.connect()
        status = await client.ask("status")
        self.report.note(status["daemon"], self.daemon.peak_bytes())
        await client.hang_up()


async def _invoke(havoc: Havoc) -> None:
    name, op, args = havoc.modules.call()
    timeout_s = havoc.draw.choice((0.05, 0.3, 2.0))
    await havoc.any_client().send(name, op, args, timeout_s)


async def _cancel(havoc: Havoc) -> None:
    client = havoc.any_client()
    if client.open:
        await client.cancel(havoc.draw.choice(list(client.open)))


async def _kill_module(havoc: Havoc) -> None:
    """Send a signal to a module's process."""
    found = await havoc.instances()
    if not found:
        return
    _, pid = havoc.draw.choice(found)
    number = havoc.draw.choice(SIGNALS)
    with suppress(ProcessLookupError, psutil.Error), ExitStack() as stack:
        pidfd = os.pidfd_open(pid)
        stack.callback(os.close, pidfd)
        # Looked at only now: the pidfd stands for what has the number, whoever that is.
        if has_tmpdir(psutil.Process(pid), havoc.daemon.scratch):
            signal.pidfd_send_signal(pidfd, number)


async def _hang_up(havoc: Havoc) -> None:
    index = havoc.draw.randrange(CLIENTS)
    await havoc.clients[index].hang_up()
    havoc.clients[index] = await havoc.connect()


async def _slow_client(havoc: Havoc) -> None:
    """Ask for floods, and read none of them for a while."""
    client = havoc.slow_client()
    for _ in range(3):
        await client.send("many", "go", FLOOD)


# What takes its time to be looked at, and must cost nobody else any.


async def _backtrack(havoc: Havoc) -> None:
    """Have a pattern backtrack."""
    client = havoc.any_client()
    for timeout_s in (0.1, 0.3, 2.0):
        await client.send(PICKY, "go", {"word": "a" * 60 + "!"}, timeout_s)
    await client.send(PICKY, "go", {"word": "aaa"}, 2.0)


async def _misspell(havoc: Havoc) -> None:
    """Ask for modules that there are nearly."""
    client = havoc.any_client()
    for _ in range(MISSPELT):
        await client.send(havoc.modules.misspelt(), "go", {})


async def _small_values(havoc: Havoc) -> None:
    """Send a line of 1 or of 15 MB, of which none is read so far that it has an id."""
    count = havoc.draw.choice((MANY_VALUES, 7_500_000))
    line = b'{"requestId":"","input":[' + b"0," * count + b"0]}\n"
    await havoc.any_client().send_nameless(line)


async def _trace(havoc: Havoc) -> None:
    """Have a debugger hold a process while its module is restarted."""
    found = await havoc.instances()
    if not found:
        return
    name, pid = havoc.draw.choice(found)
    tracer = await trio.lowlevel.open_process(
        [sys.executable, "-I", "-S", str(TRACER), str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert tracer.stdout is not None
        with trio.move_on_after(ANSWERED_WITHIN_S):
            await tracer.stdout.receive_some()
        await havoc.any_client().send("supervisor", "restart", {"module": name})
        await trio.sleep(HELD_S)
    finally:
        tracer.kill()
        await tracer.wait()


async def _leave_unread(havoc: Havoc) -> None:
    """Ask for answers of 4 MiB, and read none of them for a while."""
    client = havoc.slow_client()
    for _ in range(UNREAD_ANSWERS):
        await client.send("many", "go", BIG_ANSWER)


async def _big_requests(havoc: Havoc) -> None:
    """Send more than one party may have waiting; what was not read by then is withdrawn."""
    client = await havoc.connect()
    args = {"fault": "hang", "word": "x" * REQUEST_BYTES}
    with trio.move_on_after(HELD_S):
        for _ in range(WAITING_REQUESTS):
            await client.send("plain", "go", args, 0.3)
    await client.hang_up()


async def _crowd(havoc: Havoc) -> None:
    """Have clients come who ask nothing, until the daemon refuses some."""
    operator = havoc.any_client()
    before = await havoc.connections(operator)
    async with AsyncExitStack() as streams:
        for _ in range(MOST_CROWDS):
            for _ in range(CROWD):
                stream = await trio.open_unix_socket(havoc.daemon.socket)
                await streams.enter_async_context(stream)
            if (await havoc.connections(operator))["refused"] > before["refused"]:
                break
        else:
            havoc.report.errors.append("no connection of a crowd was refused")
        await havoc.any_client().send("plain", "go", {"word": "in a crowd"})
        await trio.sleep(HELD_S)
    # Who comes next is to have an ordinary place.
    with trio.fail_after(ANSWERED_WITHIN_S):
        while (await havoc.connections(operator))["open"] > before["open"]:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def _fifo_log(havoc: Havoc) -> None:
    """Put a pipe that nobody reads in the place of a module's log."""
    log = havoc.daemon.data_dir / "logs" / "many.log"
    pipe, fifo = log.with_name("pipe"), log.with_name("fifo")
    os.mkfifo(pipe)
    pipe.replace(log)  # in one step: the daemon may be making its log anew
    await havoc.any_client().send("many", "go", {"fault": "stderr", "bytes": 1000})
    await trio.sleep(HELD_S)
    log.rename(fifo)
    # Whoever waits to open it goes on.
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    fifo.unlink()
    await trio.sleep(HELD_S)
    os.close(reader)


async def _odd(havoc: Havoc) -> None:
    """Send odd names and numbers."""
    client, rest = havoc.any_client(), havoc.draw.choice(ODD)
    if rest is UNPAIRED:  # no JSON, so that the answer has no id
        await client.send_nameless(b'{"requestId":"",%s}\n' % rest)
    else:
        await client.send_rest(rest)


async def _suspend(havoc: Havoc) -> None:
    """Suspend the daemon while requests with time enough are in flight."""
    client = havoc.any_client()
    await client.finished(await client.send(CALM, "go", {"word": "first"}, ANSWERED_WITHIN_S))
    for _ in range(UNHURRIED):
        client.unhurried.add(await client.send(CALM, "go", {"fault": "event+event"}, UNHURRIED_S))
    await havoc.daemon.suspend(SUSPENDED_S)


async def _kill_daemon(havoc: Havoc) -> None:
    """Kill the daemon; what is open then has no outcome."""
    await havoc.leave()
    for client in havoc.clients:
        client.killed = True
    havoc.open_gates()
    await havoc.daemon.kill()
    await havoc.begin()


async def _end_daemon(havoc: Havoc) -> None:
    """End the daemon while much is asked, all of which it has read: each request has an answer."""
    for client in havoc.clients:
        client.gate.set()
        await client.ask("status", module=CALM)
    await havoc.leave()
    await havoc.daemon.end()
    await havoc.begin()


ACTIONS: Final[dict[str, tuple[float, Callable[[Havoc], Any]]]] = {
    "invoke": (60, _invoke),
    "cancel": (8, _cancel),
    "kill_module": (8, _kill_module),
    "start": (4, lambda havoc: havoc.control("start")),
    "stop": (3, lambda havoc: havoc.control("stop")),
    "restart": (3, lambda havoc: havoc.control("restart")),
    "change": (3, lambda havoc: havoc.modules.write(havoc.modules.any_name(), changed=True)),
    "touch": (4, lambda havoc: havoc.modules.write(havoc.modules.any_name())),
    "remove": (1, lambda havoc: havoc.modules.remove(havoc.modules.any_name())),
    "put_back": (3, lambda havoc: havoc.modules.write(*FORMS)),
    "spoil": (1, lambda havoc: havoc.modules.replace(havoc.modules.any_name(), half_written)),
    "reload": (2, lambda havoc: havoc.any_client().send("supervisor", "reload", {})),
    "hang_up": (2, _hang_up),
    "slow_client": (1, _slow_client),
    "backtrack": (1, _backtrack),
    "misspell": (1, _misspell),
    "small_values": (1, _small_values),
    "trace": (1, _trace),
    "leave_unread": (0.5, _leave_unread),
    "big_requests": (0.5, _big_requests),
    "crowd": (1, _crowd),
    "fifo_descriptor": (
        1,
        lambda havoc: havoc.modules.replace(havoc.modules.any_name(), os.mkfifo),
    ),
    "fifo_log": (0.5, _fifo_log),
    "odd": (1, _odd),
    "suspend": (0.5, _suspend),
    "kill_daemon": (0.4, _kill_daemon),
    "end_daemon": (0.4, _end_daemon),
}
"""What can happen, and how often."""
