"""Soak the daemon: `make soak MINUTES=5`.

A real daemon with well-behaved and misbehaving modules is killed, stopped, flooded, reloaded and
asked at random, by many clients, some of them slow or gone in the middle; now and then the daemon
itself is killed and started again. At the end every request must have had exactly one outcome,
unless its client hung up or the daemon was killed, and no process or descriptor may be left. The
daemon is sent what takes long to be looked at, and is suspended; nothing of that may hold up its
event loop for more than 50 ms of its own doing, and what was in flight must not be late by it.

It ends by itself; Ctrl-C ends it early and just as cleanly. The same seed makes the same choices,
but what they meet depends on the machine. Exit status 0 only if nothing was amiss.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import trio

from scripts.checkout import ROOT
from scripts.soak.daemon import NAMELESS, WITHIN_S, Client, Report, Soaked, outcome
from scripts.soak.modules import CALM, EXTRAS, FORMS, Modules, half_written
from tests.system.daemon import marked

CLIENTS: Final = 6
MOST_OPEN: Final = 48
"""More open requests than this would only wait in queues."""
UNHURRIED_S: Final = 3.0
SUSPENDED_S: Final = UNHURRIED_S + 0.5
"""Longer than requests in flight have, of which each takes milliseconds."""
HELD_S: Final = 0.7
"""How long a debugger, a pipe or a crowd stays."""
TRACER: Final = ROOT / "tests" / "runtime" / "containment" / "tracer.py"
SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP)
ODD: Final = (
    b'"tool":"plain","operation":"invoke","input":{"op":"%s"}' % (b"x" * 100_000),
    b'"tool":"plain","operation":"invoke","input":{"op":"go","args":{"n":%s}}' % (b"7" * 5000),
    b'"tool":"plain\\u202e\\u0007","operation":"invoke","input":{"op":"go\\u009b2J"}',
    UNPAIRED := b'"tool":"plain","operation":"\\ud800","input":{"op":"go"}',
)
"""Names and numbers of any length, characters that a terminal would obey, and one that is none."""


class Soak:
    """A daemon, its modules and its clients, and what happens to them at random."""

    def __init__(self, folder: Path, report: Report, nursery: trio.Nursery) -> None:
        """Run the readers of all clients in `nursery`."""
        self.folder, self.report = folder, report
        self.draw = random.Random(report.seed)  # noqa: S311 - dice are not keys
        self.modules = Modules(folder / "modules", self.draw)
        self.daemon: Soaked
        self.clients: list[Client] = []
        self._nursery = nursery
        # Apart from `draw`, from which more or less is taken as things turn out.
        self._order = random.Random(self.draw.random())  # noqa: S311

    async def begin(self) -> None:
        """Start the daemon and connect."""
        self.daemon = await trio.to_thread.run_sync(Soaked, self.folder, self.report)
        self.report.daemons += 1
        self.clients = [await self.connect() for _ in range(CLIENTS)]

    async def act(self) -> None:
        (name,) = self._order.choices(list(ACTIONS), [weight for weight, _ in ACTIONS.values()])
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
        await self.leave()
        await operator.hang_up()
        await trio.to_thread.run_sync(self.daemon.compare_files)
        await self.daemon.stop()

    async def connect(self) -> Client:
        """Return a client that reads."""
        client = Client(await trio.open_unix_socket(self.daemon.socket), self.report)
        self._nursery.start_soon(client.read)
        return client

    async def leave(self) -> None:
        """Take note of what a daemon says of itself before its end, as a client of its own."""
        client = await self.connect()
        self.report.note((await client.ask("status"))["daemon"], self.daemon.peak_bytes())
        await client.hang_up()

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
        for client in self.clients:
            client.gate.set()

    async def any_process(self) -> tuple[str, int]:
        """Return module and pid of a process that may be disturbed; the gateway's is one."""
        status = await self.any_client().ask("status")
        modules = {module["name"]: module["instances"] for module in status["modules"]}
        modules["supervisor/http"] = status["http"]["instances"]
        found = [(name, one["pid"]) for name, of in modules.items() for one in of if name != CALM]
        return self.draw.choice(found) if found else ("", 0)


# What clients ask, and how they leave.


async def invoke(soak: Soak) -> None:
    name, op, args = soak.modules.call()
    timeout_s = soak.draw.choice((0.05, 0.3, 2.0))
    await soak.any_client().send(name, op, args, timeout_s)


async def cancel(soak: Soak) -> None:
    client = soak.any_client()
    if client.open:
        await client.cancel(soak.draw.choice(list(client.open)))


async def own_op(soak: Soak, op: str) -> None:
    """Start, stop or restart a module."""
    await soak.any_client().send("supervisor", op, {"module": soak.modules.any_name()})


async def hang_up(soak: Soak) -> None:
    index = soak.draw.randrange(CLIENTS)
    await soak.clients[index].hang_up()
    soak.clients[index] = await soak.connect()


async def leave_unread(soak: Soak, times: int, args: dict[str, Any]) -> None:
    """Ask for much, and read none of it for a while."""
    client = soak.slow_client()
    for _ in range(times):
        await client.send("many", "go", args)


async def big_requests(soak: Soak) -> None:
    """Send more than one party may have waiting; what was not read by then is withdrawn."""
    client = await soak.connect()
    args = {"fault": "hang", "word": "x" * (10 << 20)}
    with trio.move_on_after(HELD_S):
        for _ in range(8):
            await client.send("plain", "go", args, 0.3)
    await client.hang_up()


async def crowd(soak: Soak) -> None:
    """Connect without a request until the daemon refuses some; later clients have their place."""
    operator = soak.any_client()

    async def connections(kind: str) -> int:
        return int((await operator.ask("status"))["daemon"]["connections"][kind])

    opened, refused = await connections("open"), await connections("refused")
    async with AsyncExitStack() as streams:
        for number in range(1, 1001):
            await streams.enter_async_context(await trio.open_unix_socket(soak.daemon.socket))
            if number % 50 == 0 and await connections("refused") > refused:
                break
        else:
            soak.report.errors.append("no connection of a crowd was refused")
        await soak.any_client().send("plain", "go", {"word": "in a crowd"})
        await trio.sleep(HELD_S)
    with trio.fail_after(WITHIN_S):
        while await connections("open") > opened:  # noqa: ASYNC110
            await trio.sleep(0.01)


# What takes its time to be looked at, and must cost nobody else any.


async def backtrack(soak: Soak) -> None:
    client = soak.any_client()
    for timeout_s in (0.1, 0.3, 2.0):
        await client.send("picky", "go", {"word": "a" * 60 + "!"}, timeout_s)
    await client.send("picky", "go", {"word": "aaa"}, 2.0)


async def misspell(soak: Soak) -> None:
    """Ask for modules whose names are nearly those of others."""
    client = soak.any_client()
    for _ in range(200):
        await client.send(f"extra-{soak.draw.randrange(EXTRAS):03}x", "go", {})


async def small_values(soak: Soak) -> None:
    """Send a line of 1 or of 15 MB, of which none is read so far that it has an id."""
    count = soak.draw.choice((450_000, 7_500_000))
    await soak.any_client().send_rest(b'"input":[' + b"0," * count + b"0]", NAMELESS)


async def odd(soak: Soak) -> None:
    client, rest = soak.any_client(), soak.draw.choice(ODD)
    # What is no JSON has an answer without an id.
    await client.send_rest(rest, NAMELESS if rest is UNPAIRED else None)


# What happens to processes and files.


async def kill_module(soak: Soak) -> None:
    _, pid = await soak.any_process()
    number = soak.draw.choice(SIGNALS)
    # Looked at only with psutil's handle: it stands for what has the number, whoever that is.
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if pid in marked(soak.daemon.marker):
            process.send_signal(number)


async def trace(soak: Soak) -> None:
    """Hold a process with a debugger while its module is restarted."""
    name, pid = await soak.any_process()
    if not pid:
        return
    tracer = await trio.lowlevel.open_process(
        [sys.executable, "-I", "-S", str(TRACER), str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert tracer.stdout is not None
        with trio.move_on_after(WITHIN_S):
            await tracer.stdout.receive_some()
        await soak.any_client().send("supervisor", "restart", {"module": name})
        await trio.sleep(HELD_S)
    finally:
        tracer.kill()
        await tracer.wait()


async def fifo_log(soak: Soak) -> None:
    """Put a pipe that nobody reads in the place of a module's log."""
    log = soak.daemon.data_dir / "logs" / "many.log"
    pipe, fifo = log.with_name("pipe"), log.with_name("fifo")
    os.mkfifo(pipe)
    pipe.replace(log)  # in one step: the daemon may be making its log anew
    await soak.any_client().send("many", "go", {"fault": "stderr", "bytes": 1000})
    await trio.sleep(HELD_S)
    log.rename(fifo)
    # Whoever waits to open it goes on.
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    fifo.unlink()
    await trio.sleep(HELD_S)
    os.close(reader)


async def suspend(soak: Soak) -> None:
    """Suspend the daemon while requests with time enough are in flight: none may be late by it."""
    client, call = soak.any_client(), {"fault": "event+event"}
    first = await client.send(CALM, "go", {"word": "first"}, WITHIN_S)
    await first.ended()
    unhurried = [await client.send(CALM, "go", call, UNHURRIED_S) for _ in range(5)]
    await soak.daemon.suspend(SUSPENDED_S)
    for request in unhurried:
        if answer := await request.ended():
            soak.report.unhurried += 1
            if outcome(answer) == "timeout/deadline":
                soak.report.late.append(request.words)


async def kill_daemon(soak: Soak) -> None:
    """Kill the daemon; what is open then has no outcome."""
    await soak.leave()
    for client in soak.clients:
        client.ends_by = "closed_by_kill"
    soak.open_gates()
    await soak.daemon.stop(signal.SIGKILL)
    await soak.begin()


async def end_daemon(soak: Soak) -> None:
    """End the daemon while much is asked, all of which it has read: each request has an answer."""
    soak.open_gates()
    for client in soak.clients:
        await client.ask("status", module=CALM)
    await soak.leave()
    await soak.daemon.stop()
    await soak.begin()


FLOOD: Final = {"fault": "flood", "events": 20_000}
BIG_ANSWER: Final = {"fault": "big_answer", "bytes": 4 << 20}
ACTIONS: Final[dict[str, tuple[float, Callable[[Soak], Any]]]] = {
    "invoke": (60, invoke),
    "cancel": (8, cancel),
    "kill_module": (8, kill_module),
    "start": (4, lambda soak: own_op(soak, "start")),
    "stop": (3, lambda soak: own_op(soak, "stop")),
    "restart": (3, lambda soak: own_op(soak, "restart")),
    "change": (3, lambda soak: soak.modules.write(soak.modules.any_name(), changed=True)),
    "touch": (4, lambda soak: soak.modules.write(soak.modules.any_name())),
    "remove": (1, lambda soak: soak.modules.remove(soak.modules.any_name())),
    "put_back": (3, lambda soak: soak.modules.write(*FORMS)),
    "spoil": (1, lambda soak: soak.modules.replace(soak.modules.any_name(), half_written)),
    "reload": (2, lambda soak: soak.any_client().send("supervisor", "reload", {})),
    "hang_up": (2, hang_up),
    "slow_client": (1, lambda soak: leave_unread(soak, 3, FLOOD)),
    "backtrack": (1, backtrack),
    "misspell": (1, misspell),
    "small_values": (1, small_values),
    "trace": (1, trace),
    "leave_unread": (0.5, lambda soak: leave_unread(soak, 30, BIG_ANSWER)),
    "big_requests": (0.5, big_requests),
    "crowd": (1, crowd),
    "fifo_descriptor": (1, lambda soak: soak.modules.replace(soak.modules.any_name(), os.mkfifo)),
    "fifo_log": (0.5, fifo_log),
    "odd": (1, odd),
    "suspend": (0.5, suspend),
    "kill_daemon": (0.4, kill_daemon),
    "end_daemon": (0.4, end_daemon),
}
"""What can happen, and how often."""


async def soaked(folder: Path, report: Report, options: argparse.Namespace) -> None:
    began_at = time.monotonic()
    interrupted = trio.Event()
    soak: Soak | None = None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())
    try:
        async with trio.open_nursery() as nursery:
            soak = Soak(folder, report, nursery)
            await soak.begin()
            while (
                report.seconds < options.minutes * 60
                and report.actions.total() < options.actions
                and not interrupted.is_set()
            ):
                await soak.act()
                report.seconds = time.monotonic() - began_at
                show(
                    f"{report.seconds:.0f} s, {report.actions.total()} actions, "
                    f"{report.asked} requests, {len(report.lost)} lost, {report.daemons} daemons"
                )
            await soak.end()
            nursery.cancel_scope.cancel()
    finally:
        show("")
        report.seconds = round(time.monotonic() - began_at, 3)
        if soak is not None and "daemon" in vars(soak):
            soak.daemon.process.kill()
            await trio.to_thread.run_sync(soak.daemon.kill_left)


def show(line: str) -> None:
    """Let people on a terminal see how far it is."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def above_0(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--minutes", type=above_0, default=math.inf, help="when to end")
    option("--actions", type=above_0, default=math.inf, help="or after how many things were done")
    option("--seed", type=int, help="make the same choices again")
    slow = "hold nothing against it that took long: the machine has other work"
    option("--patient", action="store_true", help=slow)
    option("--json", action="store_true", help="print the report as one object")
    options = parser.parse_args()
    if math.isinf(options.minutes) and math.isinf(options.actions):
        parser.error("say --minutes or --actions: a soak is bounded")
    seed = random.randrange(1 << 32) if options.seed is None else options.seed  # noqa: S311
    report = Report(seed, patient=options.patient)
    with tempfile.TemporaryDirectory(prefix="stdiod-soak-", ignore_cleanup_errors=True) as name:
        trio.run(soaked, Path(name).resolve(), report, options)
    print(json.dumps(report.document()) if options.json else report.text())
    return 1 if report.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
