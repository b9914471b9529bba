"""Interpret any list of operations on a daemon with real modules, and hold the promises meanwhile.

An operation is a name and two numbers, which choose a module, a client, or a detail. Nothing
waits for what was asked, unless the operation is `settle`: requests, deaths, stops and reloads
overlap.

Which processes live is known from their sockets (see `liveness`), not from what the daemon says.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import trio

from supervisor.kernel.kernel import Kernel
from supervisor.policy.findings import usable
from supervisor.runtime.containment import procfs
from supervisor.runtime.files.sources import Sources
from tests.faces.in_process import connected
from tests.factories import children, open_files
from tests.system import forked
from tests.system.descriptors import misbehaving, per_invocation, write
from tests.system.promise_parties import BOUND_S, INVOKES, Asker, Process

Op = tuple[str, int, int]

SHORT = {"exit_s": 0.2, "stop_s": 0.3, "health_s": 0.5, "start_s": 30, "describe_s": 30}

SUPERVISION: dict[str, Any] = {"timeouts": SHORT, "intensity": 4, "period_s": 600}

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

NAMES = ("alpha", "beta", "once")

CALM = "calm"
"""The module that nothing is done to: whatever befalls the others, it keeps its process."""

PERSISTENT = ("alpha", "beta", CALM)

ALONE = "beta"
"""The module that stands no second copy of itself."""

CLIENTS = 3


class World:
    """A daemon, its modules' processes, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules = folder / "modules"
        self.processes: list[Process] = []
        self.askers: list[Asker] = []
        self.daemon: Kernel
        self._nursery: trio.Nursery
        self._variants: Counter[str] = Counter()
        self._seen: dict[str, dict[str, Any]] = {}
        self._calm: str | None = None

    # The operations.

    async def invoke(self, which: int, detail: int) -> None:
        args = dict(INVOKES[detail % len(INVOKES)])
        timeout_s = args.pop("timeout_s", 20)
        asker = self.askers[(which + detail) % CLIENTS]
        await asker.ask(NAMES[which % len(NAMES)], op="go", args=args, timeout_s=timeout_s)

    async def invoke_calm(self, which: int, detail: int) -> None:
        answer = await self.askers[which % CLIENTS].answer(CALM, "go", n=detail)
        assert answer["result"] == {"n": detail}, answer

    async def command(self, which: int, detail: int) -> None:
        op = ("start", "stop", "restart", "start")[detail % 4]
        args = {"module": NAMES[which % len(NAMES)]}
        await self.askers[detail % CLIENTS].ask("supervisor", op=op, args=args)

    async def crash(self, which: int, detail: int) -> None:
        self._take_in()
        number = (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT)[detail % 3]
        for process in self.processes:
            if process.slot == NAMES[which % len(NAMES)] and process.alive():
                signal.pidfd_send_signal(process.pidfd, number)

    async def cancel(self, which: int, detail: int) -> None:
        asker = self.askers[which % CLIENTS]
        if asker.open:
            number = list(asker.open)[detail % len(asker.open)]
            await asker.client.send({"requestId": number, "operation": "cancel"})

    async def disconnect(self, which: int, _: int) -> None:
        asker = self.askers[which % CLIENTS]
        asker.scope.cancel()
        await asker.closed.wait()
        self.askers[which % CLIENTS] = await self._nursery.start(self._converse)

    async def change(self, which: int, _: int) -> None:
        self._variants[NAMES[which % len(NAMES)]] += 1
        await self._write_and_reload(NAMES[which % len(NAMES)])

    async def touch(self, which: int, _: int) -> None:
        await self._write_and_reload((*NAMES, CALM)[which % 4])

    async def remove(self, which: int, _: int) -> None:
        (self.modules / f"{NAMES[which % len(NAMES)]}.json").unlink(missing_ok=True)
        await self._reload()

    async def spoil(self, which: int, _: int) -> None:
        (self.modules / f"{NAMES[which % len(NAMES)]}.json").write_text('{"name": ')
        await self._reload()

    async def settle(self, _: int, __: int) -> None:
        for asker in self.askers:
            await asker.all_answered()

    # The promises.

    async def check(self) -> None:
        """Hold what must hold at every moment."""
        self._take_in()
        status = (await self.askers[0].answer("supervisor", "status"))["result"]
        for module in status["modules"]:
            self._check_growth(module)
            self._check_cause(module)
        (calm,) = next(one for one in status["modules"] if one["name"] == CALM)["instances"]
        self._calm = self._calm or calm["id"]
        assert calm["id"] == self._calm, "the module that nothing was done to was replaced"

    def _check_growth(self, module: dict[str, Any]) -> None:
        before = self._seen.get(module["name"])
        self._seen[module["name"]] = module
        if before is not None:
            for counter, value in module["counters"].items():
                assert value >= before["counters"][counter], (counter, before, module)
            assert module["restarts"] >= before["restarts"], (before, module)

    def _check_cause(self, module: dict[str, Any]) -> None:
        if module["restarts"] == 0 and module["state"] not in ("backoff", "failed"):
            return
        died = module["last_exit"]
        assert died["reason"], module
        if module["name"] in PERSISTENT and died["reason"] != "spawn_failed":
            assert (died["exit_code"] is None) != (died["signal"] is None), module

    def _take_in(self) -> None:
        while select.select([self._listener], [], [], 0)[0]:
            link, _ = self._listener.accept()
            said = b""
            while not said.endswith(b"\n"):
                piece = link.recv(200)
                if not piece:
                    break
                said += piece
            if not said.endswith(b"\n"):
                link.close()
                continue
            role, pid, instance = said.decode().rstrip("\n").split(" ", 2)
            try:
                pidfd = os.pidfd_open(int(pid))
            except ProcessLookupError:
                link.close()
                continue
            stat = procfs.stat(int(pid))
            if stat is None:
                link.close()
                os.close(pidfd)
                continue
            self._join(Process(role, int(pid), instance, link, pidfd, stat.start))

    def _join(self, new: Process) -> None:
        for other in self.processes:
            if other.role == new.role == "module":
                assert other.instance != new.instance, f"{new.instance} was there twice"
        if new.role == "module" and new.slot in PERSISTENT:
            others = [one for one in self.processes if one.role == "module"]
            others = [one for one in others if one.slot == new.slot]
            # Of two that begin in one moment, the later one may be the first to say so.
            later = [one for one in others if one.generation > new.generation]
            assert all(new.began < one.began + TICKS_PER_S for one in later), new.instance
            # One that serves, and one that comes or goes.
            alive = [one.instance for one in (*others, new) if one.alive()]
            assert len(alive) <= 1 + (new.slot != ALONE), f"{alive} live at the same time"
        self.processes.append(new)

    # How it is done.

    def _documents(self) -> list[dict[str, Any]]:
        made = [misbehaving(name, overlap=name != ALONE, **SUPERVISION) for name in NAMES[:2]]
        made.append(per_invocation("once", concurrency=2, **SUPERVISION))
        made.append(misbehaving(CALM))
        for document in made:
            variant = str(self._variants[document["name"]])
            document["transport"]["env"] = {
                "LIVENESS": str(self.folder / "l"),
                "VARIANT": variant,
            }
        return made

    async def _write_and_reload(self, name: str) -> None:
        write(self.modules, *(one for one in self._documents() if one["name"] == name))
        await self._reload()

    async def _reload(self) -> None:
        # Counters are a module's, and one that was removed may come back as a new one.
        self._seen.clear()
        answer = await self.askers[0].answer("supervisor", "reload")
        assert answer["ok"], answer

    async def _converse(self, task_status: trio.TaskStatus[Asker]) -> None:
        async with connected(self.daemon) as client:
            asker = Asker(client)
            task_status.started(asker)
            with asker.scope:
                await asker.read()
        asker.closed.set()

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run the daemon around the block; nothing may be left of it after that."""
        write(self.modules, *self._documents())
        forked.end()  # a child that is none of its own
        with socket.socket(socket.AF_UNIX) as self._listener:
            self._listener.bind(str(self.folder / "l"))
            self._listener.listen(1024)
            sources = Sources.of_directories([self.modules])
            found = usable({}, sources.read_first())
            async with (
                Kernel(
                    found,
                    data_dir=self.folder / "data",
                    directories=[self.modules],
                    sources=sources,
                    whole_process=True,  # as `stdiod run`: every orphan is a module's, and reaped
                ) as self.daemon,
                trio.open_nursery() as self._nursery,
            ):
                for _ in range(CLIENTS):
                    self.askers.append(await self._nursery.start(self._converse))
                waited = await self.askers[0].answer("supervisor", "wait", **{"for": "verdict"})
                assert waited["ok"], waited
                yield
                await self.settle(0, 0)
                self._nursery.cancel_scope.cancel()
            self._nothing_left()

    def _nothing_left(self) -> None:
        self._take_in()
        try:
            for process in self.processes:
                gone, _, _ = select.select([process.link], [], [], BOUND_S)
                assert gone, f"{process.role} {process.pid} of {process.instance} was left behind"
        finally:
            for process in self.processes:
                process.link.close()
                os.close(process.pidfd)


OPS: tuple[str, ...] = (*("invoke",) * 6, *("crash", "command") * 2)

OPS += ("invoke_calm", "cancel", "disconnect", "change", "touch", "remove", "spoil", "settle")


async def play(folder: Path, ops: Iterable[Op]) -> None:
    """Play a list of operations from beginning to end."""
    files, below = set(open_files()), {one.pid for one in children()}
    with trio.fail_after(3 * BOUND_S):
        world = World(folder)
        async with world.run():
            for name, which, detail in ops:
                await getattr(world, name)(which, detail)
                await world.check()
    left = {number: name for number, name in open_files().items() if number not in files}
    assert not left, f"descriptors left open: {left}"
    stayed = [one for one in children() if one.pid not in below]
    assert not stayed, f"children left: {stayed}"


def script(ops: Iterable[Op]) -> str:
    """Write operations as people read them, one a line."""
    return "\n".join(json.dumps([name, which, detail]) for name, which, detail in ops)
