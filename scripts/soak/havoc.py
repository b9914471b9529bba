"""Everything that can happen to a daemon, at random, by many clients at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import Any, Final

import psutil
import trio

from scripts.soak.clients import ANSWERED_WITHIN_S, Client, HungUpError, connect
from scripts.soak.daemon import Daemon
from scripts.soak.scrape import differences, scrape
from scripts.soak.stalling import BLOCKED_S, CULPRIT
from scripts.soak.tally import Tally
from scripts.soak.zoo import BIG_ANSWER, CALM, CHECKOUT, FLOOD, MANY_VALUES, PICKY, Zoo

CLIENTS: Final = 6
MOST_OPEN: Final = 48
"""More open requests than this would only wait in queues."""

UNHURRIED_S: Final = 3.0
SUSPENDED_S: Final = UNHURRIED_S + 0.5
"""Longer than requests in flight have, of which each takes milliseconds."""

ODD: Final = (
    b'"tool":"plain","operation":"invoke","input":{"op":"%s"}' % (b"x" * 100_000),
    b'"tool":"plain","operation":"invoke","input":{"op":"go","args":{"n":%s}}' % (b"7" * 5000),
    b'"tool":"plain\\u202e\\u0007","operation":"invoke","input":{"op":"go\\u009b2J"}',
    UNPAIRED := b'"tool":"plain","operation":"\\ud800","input":{"op":"go"}',
)
"""Names and numbers of any length, characters that a terminal would obey, and one that is none."""

HELD_S: Final = 0.7
"""How long a debugger, a pipe or a crowd stays."""

TRACER: Final = CHECKOUT / "tests" / "runtime" / "containment" / "tracer.py"

CROWD: Final = 50
"""So many more come until some are refused."""

MOST_CROWDS: Final = 20
MISSPELT: Final = 200
UNREAD_ANSWERS: Final = 30
UNHURRIED: Final = 5
WAITING_REQUESTS: Final = 8
REQUEST_BYTES: Final = 10 << 20

WEIGHTS: Final = {
    "invoke": 60,
    "cancel": 8,
    "kill_module": 8,
    "start": 4,
    "stop": 3,
    "restart": 3,
    "change": 3,
    "touch": 4,
    "remove": 1,
    "put_back": 3,
    "spoil": 1,
    "reload": 2,
    "hang_up": 2,
    "slow_client": 1,
    "backtrack": 1,
    "misspell": 1,
    "small_values": 1,
    "trace": 1,
    "leave_unread": 0.5,
    "big_requests": 0.5,
    "crowd": 1,
    "fifo_descriptor": 1,
    "fifo_log": 0.5,
    "odd": 1,
    "suspend": 0.5,
    "kill_daemon": 0.4,
    "end_daemon": 0.4,
}


class Havoc:
    """One soak: a daemon, its modules and its clients."""

    def __init__(
        self, daemon: Daemon, zoo: Zoo, tally: Tally, nursery: trio.Nursery, draw: random.Random
    ) -> None:
        """Run the readers of all clients in `nursery`."""
        self.clients: list[Client] = []
        self._daemon = daemon
        self._zoo = zoo
        self._tally = tally
        self._nursery = nursery
        self._draw = draw
        self._order = random.Random(draw.random())  # noqa: S311 - dice are not keys
        """Apart from `_draw`, from which more or less is taken as things turn out."""

    async def begin(self) -> None:
        """Start the daemon and connect."""
        await self._daemon.start()
        self.clients = [await self._connect() for _ in range(CLIENTS)]

    async def act(self) -> None:
        """Do one thing."""
        (name,) = self._order.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self._tally.actions[name] += 1
        await getattr(self, f"_{name}")()
        while sum(len(one.open) for one in self.clients) > MOST_OPEN:
            self._open_a_gate()
            await trio.sleep(0.01)
        await trio.sleep(self._draw.random() * 0.02)

    async def end(self) -> None:
        """Wait for every answer, stop every module, compare what is left, end the daemon."""
        async with trio.open_nursery() as nursery:
            for client in self.clients:
                nursery.start_soon(client.wait_answered)
        operator, *others = self.clients
        for client in others:
            await client.hang_up()
        # What was changed last may not have been noticed yet, and modules come and go by that.
        await self._ask(operator, "reload")
        status = await self._ask(operator, "status")
        for module in status["modules"]:
            await self._ask(operator, "stop", module=module["name"])
        # The daemon has seen that the others are gone once it answers after them.
        text, status = await scrape(self._daemon.http), await self._ask(operator, "status")
        self._tally.scraped(differences(text, status), text)
        await operator.hang_up()
        await self._take_note()
        await self._stall()
        with trio.move_on_after(ANSWERED_WITHIN_S):
            while self._daemon.has_more_files():  # noqa: ASYNC110 - a process sets no event
                await trio.sleep(0.05)
        self._daemon.compare_files()
        await self._daemon.end()

    # What can happen.

    async def _invoke(self) -> None:
        name, op, args = self._zoo.call()
        timeout_s = self._draw.choice((0.05, 0.3, 2.0))
        await self._any().send(name, op, args, timeout_s)

    async def _cancel(self) -> None:
        client = self._any()
        if client.open:
            await client.cancel(self._draw.choice(list(client.open)))

    async def _kill_module(self) -> None:
        status = await self._ask(self._any(), "status")
        pids = [
            one["pid"]
            for module in status["modules"]
            for one in module["instances"]
            if module["name"] != CALM
        ]
        if pids:
            self._signal(self._draw.choice(pids))

    def _signal(self, pid: int) -> None:
        number = self._draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP))
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            # Looked at only now: the pidfd stands for what has the number, whoever that is.
            if self._daemon.is_ours(psutil.Process(pid)):
                signal.pidfd_send_signal(pidfd, number)
        except (ProcessLookupError, psutil.Error):
            pass
        finally:
            os.close(pidfd)

    async def _start(self) -> None:
        await self._any().send("supervisor", "start", self._some_module())

    async def _stop(self) -> None:
        await self._any().send("supervisor", "stop", self._some_module())

    async def _restart(self) -> None:
        await self._any().send("supervisor", "restart", self._some_module())

    async def _change(self) -> None:
        self._zoo.write(self._draw.choice(self._zoo.names), changed=True)

    async def _touch(self) -> None:
        self._zoo.write(self._draw.choice(self._zoo.names))

    async def _remove(self) -> None:
        self._zoo.remove(self._draw.choice(self._zoo.names))

    async def _put_back(self) -> None:
        for name in self._zoo.names:
            self._zoo.write(name)

    async def _spoil(self) -> None:
        self._zoo.spoil(self._draw.choice(self._zoo.names))

    async def _reload(self) -> None:
        await self._any().send("supervisor", "reload", {})

    async def _hang_up(self) -> None:
        index = self._draw.randrange(CLIENTS)
        await self.clients[index].hang_up()
        self.clients[index] = await self._connect()

    async def _slow_client(self) -> None:
        self._open_a_gate()
        client = self._any()
        client.gate = trio.Event()
        for _ in range(3):
            await client.send("many", "go", dict(FLOOD))

    # What takes its time to be looked at, and must cost nobody else any.

    async def _backtrack(self) -> None:
        client = self._any()
        for timeout_s in (0.1, 0.3, 2.0):
            await client.send(PICKY, "go", {"word": "a" * 60 + "!"}, timeout_s)
        await client.send(PICKY, "go", {"word": "aaa"}, 2.0)

    async def _misspell(self) -> None:
        client = self._any()
        for _ in range(MISSPELT):
            await client.send(self._zoo.misspelt(), "go", {})

    async def _small_values(self) -> None:
        # Lines of 1 and of 15 MB, of which none is read so far that it has an id.
        count = self._draw.choice((MANY_VALUES, 7_500_000))
        await self._any().send_nameless(b'{"requestId":"","input":[' + b"0," * count + b"0]}\n")

    async def _trace(self) -> None:
        """Have a debugger hold a process while its module is restarted."""
        status = await self._ask(self._any(), "status")
        held = [
            (one["name"], each["pid"])
            for one in status["modules"]
            for each in one["instances"]
            if one["name"] != CALM
        ]
        if not held:
            return
        name, pid = self._draw.choice(held)
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
            await self._any().send("supervisor", "restart", {"module": name})
            await trio.sleep(HELD_S)
        finally:
            tracer.kill()
            await tracer.wait()

    async def _leave_unread(self) -> None:
        """Ask for answers of 4 MiB, and read none of them for a while."""
        self._open_a_gate()
        client = self._any()
        client.gate = trio.Event()
        for _ in range(UNREAD_ANSWERS):
            await client.send("many", "go", dict(BIG_ANSWER))

    async def _big_requests(self) -> None:
        """Send more than one party may have waiting; what was not read by then is withdrawn."""
        client = await self._connect()
        args = {"fault": "hang", "word": "x" * REQUEST_BYTES}
        with trio.move_on_after(HELD_S):
            for _ in range(WAITING_REQUESTS):
                await client.send("plain", "go", args, 0.3)
        await client.hang_up()

    async def _crowd(self) -> None:
        """Have clients come who ask nothing, until the daemon refuses some."""
        operator = self._any()
        before = await self._connections(operator)
        async with AsyncExitStack() as crowd:
            for _ in range(MOST_CROWDS):
                for _ in range(CROWD):
                    stream = await trio.open_unix_socket(self._daemon.socket)
                    await crowd.enter_async_context(stream)
                if (await self._connections(operator))["refused"] > before["refused"]:
                    break
            else:
                self._tally.errors.append("no connection of a crowd was refused")
            await self._any().send("plain", "go", {"word": "in a crowd"})
            await trio.sleep(HELD_S)
        # Who comes next is to have an ordinary place.
        with trio.fail_after(ANSWERED_WITHIN_S):
            while (await self._connections(operator))["open"] > before["open"]:  # noqa: ASYNC110
                await trio.sleep(0.01)

    async def _fifo_descriptor(self) -> None:
        self._zoo.replace_by_fifo(self._draw.choice(self._zoo.names))

    async def _fifo_log(self) -> None:
        """Have a pipe that nobody reads in the place of a module's log."""
        log = self._daemon.data_dir / "logs" / "many.log"
        pipe = log.with_name("pipe")
        os.mkfifo(pipe)
        pipe.replace(log)  # in one step: the daemon may be making its log anew
        await self._any().send("many", "go", {"fault": "stderr", "bytes": 1000})
        await trio.sleep(HELD_S)
        log.rename(log.with_name("fifo"))
        # Whoever waits to open it goes on.
        reader = os.open(log.with_name("fifo"), os.O_RDONLY | os.O_NONBLOCK)
        log.with_name("fifo").unlink()
        await trio.sleep(HELD_S)
        os.close(reader)

    async def _suspend(self) -> None:
        client = self._any()
        await client.finished(await client.send(CALM, "go", {"word": "first"}, ANSWERED_WITHIN_S))
        for _ in range(UNHURRIED):
            args = {"fault": "event+event"}
            client.unhurried.add(await client.send(CALM, "go", args, UNHURRIED_S))
        await self._daemon.suspend(SUSPENDED_S)

    async def _odd(self) -> None:
        client, rest = self._any(), self._draw.choice(ODD)
        if rest is UNPAIRED:  # no JSON, so that the answer has no id
            await client.send_nameless(b'{"requestId":"",%s}\n' % rest)
        else:
            await client.send_raw(rest)

    async def _end_daemon(self) -> None:
        """End it while much is asked, all of which it has read: each request has an answer."""
        for client in self.clients:
            client.gate.set()
            await self._ask(client, "status", module=CALM)
        await self._take_note()
        await self._daemon.end()
        await self.begin()

    async def _kill_daemon(self) -> None:
        await self._take_note()
        for client in self.clients:
            client.killed = True
            client.gate.set()
        await self._daemon.kill()
        await self.begin()

    async def _stall(self) -> None:
        """Have the event loop blocked for once, and see that it is told, unless one was longer."""
        self._daemon.stall()
        client = await self._connect()
        blocked_ms, told = BLOCKED_S * 1000, None
        with trio.move_on_after(ANSWERED_WITHIN_S):
            while told is None or (told["culprit"] != CULPRIT and told["ms"] < blocked_ms):
                told = (await self._ask(client, "status"))["daemon"]["longest_stall"]
                await trio.sleep(0.05)
        self._tally.deliberate_stall = told
        # What other threads were kept from meanwhile may have been taken off.
        if told is None or told["ms"] < blocked_ms / 2:
            self._tally.errors.append(f"of a stall of {blocked_ms:g} ms was told: {told}")
        await client.hang_up()

    # How it is done.

    async def _connections(self, client: Client) -> dict[str, int]:
        found: dict[str, int] = (await self._ask(client, "status"))["daemon"]["connections"]
        return found

    async def _take_note(self) -> None:
        client = await self._connect()
        status = await self._ask(client, "status")
        self._tally.note(status["daemon"], self._daemon.peak_bytes())
        await client.hang_up()

    async def _connect(self) -> Client:
        client = await connect(self._daemon.socket, self._tally)
        self._nursery.start_soon(client.read)
        return client

    def _any(self) -> Client:
        """Return a client that reads."""
        return self._draw.choice([one for one in self.clients if one.gate.is_set()])

    def _open_a_gate(self) -> None:
        for client in self.clients:
            client.gate.set()

    def _some_module(self) -> dict[str, Any]:
        return {"module": self._draw.choice(self._zoo.names)}

    async def _ask(self, client: Client, op: str, **args: Any) -> dict[str, Any]:
        with trio.fail_after(ANSWERED_WITHIN_S):
            answer = await client.ask(op, **args)
        if not answer["ok"]:
            raise HungUpError(op, answer)
        result: dict[str, Any] = answer["result"]
        return result
